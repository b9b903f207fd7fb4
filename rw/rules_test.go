package rw_test

import (
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// What must hold of anything that is posted, whatever was planned: found out from
// the requests, the SGEs, and what the registrations they name were mapped to. The
// rules know neither plans nor transport.Coverage.

// posted is a chain that the device took.
type posted struct {
	wrs   []transport.WR
	sges  []transport.SGE
	moves []move
	// stale is how many requests invalidate what an earlier use left valid,
	// trailing how many invalidate what the chain itself made valid.
	stale, trailing int
	// ownKey: a READ lands under the key of a whole region.
	ownKey bool
}

// move is a range of bytes that a request moves.
type move struct {
	local  uint64 // its address in the device's memory, whatever key it goes under
	remote uint64
	rkey   transport.RKey
	n      uint64
	read   bool
}

func (w *witness) breach(format string, args ...any) {
	w.breaches = append(w.breaches, fmt.Errorf(format, args...))
}

// stretch is a contiguous range of local memory.
type stretch struct{ addr, n uint64 }

// stretches returns what a mapping covers, from an offset on, n bytes.
func (m *mapping) stretches(off, n uint64) (out []stretch) {
	off += uint64(m.From.Offset)
	for _, p := range m.List[m.From.Piece:] {
		if off >= uint64(p.Len) {
			off -= uint64(p.Len)
			continue
		}
		take := min(uint64(p.Len)-off, n)
		if take == 0 {
			break
		}
		if last := len(out) - 1; last >= 0 && out[last].addr+out[last].n == p.Addr+off {
			out[last].n += take
		} else {
			out = append(out, stretch{p.Addr + off, take})
		}
		n -= take
		off = 0
	}
	return out
}

// checkMapping: no more than one registration holds, and no right that its use
// doesn't need.
func (w *witness) checkMapping(r *registered) {
	m, caps := r.next, w.Caps()
	parts := m.stretches(0, m.ext.Len)
	var total uint64
	for _, s := range parts {
		total += s.n
	}
	switch {
	case m.ext.Len == 0 || total != m.ext.Len || m.ext.IOVA != parts[0].addr:
		w.breach("%v: extent %+v of a list with %d bytes there", r.Kind(), m.ext, total)
	case !m.Access.Valid():
		w.breach("%v mapped with %v", r.Kind(), m.Access)
	case r.Kind() != transport.FastMR && len(parts) > 1:
		w.breach("%v over %d stretches of memory", r.Kind(), len(parts))
	case r.Kind() != transport.FastMR && m.ext.Len > caps.MaxMRSize:
		w.breach("%v of %d bytes", r.Kind(), m.ext.Len)
	}
	if r.Kind() != transport.FastMR {
		return
	}
	if caps.FastReg.PageSizes>>m.PageShift&1 == 0 {
		w.breach("pages of 2^%d bytes, the device has %#x", m.PageShift, caps.FastReg.PageSizes)
	}
	page := uint64(1) << m.PageShift
	pages := uint64(len(parts))
	if !caps.FastReg.Gaps {
		pages = 0
		for i, s := range parts {
			if i > 0 && s.addr%page != 0 || i < len(parts)-1 && (s.addr+s.n)%page != 0 {
				w.breach("page list with a gap at stretch %d of %d: [%#x,+%d)", i, len(parts), s.addr, s.n)
			}
			pages += (s.addr+s.n-1)/page - s.addr/page + 1
		}
	}
	if pages > uint64(r.maxPages) {
		w.breach("page list of %d, the registration holds %d", pages, r.maxPages)
	}
}

// judge holds the accepted requests of a chain against the rules.
func (q *witnessQP) judge(wrs []transport.WR, sges []transport.SGE, accepted int) {
	w := q.w
	j := &chainJudge{q: q, w: w, caps: w.Caps(), sges: sges, used: make(map[*registered]int), fenced: -1}
	cookies := make(map[uint64]bool)
	for i := range accepted {
		wr := &wrs[i]
		if cookies[wr.Cookie] {
			w.breach("request %d: cookie %#x again", i, wr.Cookie)
		}
		cookies[wr.Cookie] = true
		if (wr.Flags&transport.Signaled != 0) != (i == len(wrs)-1) {
			w.breach("request %d of %d: flags %#x, only the last is signaled", i, len(wrs), wr.Flags)
		}
		if wr.Flags&transport.Fence != 0 && wr.Op != transport.OpLocalInv {
			w.breach("request %d: a fence on %v", i, wr.Op)
		}
		var following *transport.WR
		if i+1 < len(wrs) {
			following = &wrs[i+1]
		}
		j.request(i, wr, following)
	}
	j.out.wrs = append(j.out.wrs, wrs[:accepted]...)
	j.out.sges = append(j.out.sges, sges...)
	w.posts = append(w.posts, j.out)
}

// chainJudge follows one chain.
type chainJudge struct {
	q    *witnessQP
	w    *witness
	caps *transport.Caps
	sges []transport.SGE
	out  posted

	used   map[*registered]int // last request of the chain that moves bytes under it
	fenced int                 // position of the last fence
	inInv  bool                // the request before was an invalidation at the end
}

func (j *chainJudge) request(i int, wr, following *transport.WR) {
	wasInv := j.inInv
	j.inInv = false
	switch wr.Op {
	case transport.OpFastReg, transport.OpBindWindow:
		j.makeValid(i, wr)
	case transport.OpLocalInv:
		j.inInv = j.invalidate(i, wr, following, wasInv)
	case transport.OpRead, transport.OpReadWithInv, transport.OpWrite, transport.OpSend, transport.OpSendWithInv, transport.OpSendWithImm:
		j.data(i, wr)
	default:
		j.w.breach("request %d: a %v, which nothing here needs", i, wr.Op)
	}
}

func (j *chainJudge) makeValid(i int, wr *transport.WR) {
	r := j.w.regs[wr.Reg]
	kind := transport.FastMR
	if wr.Op == transport.OpBindWindow {
		kind = transport.Window
	}
	switch {
	case r == nil || r.Kind() != kind:
		j.w.breach("request %d: %v of registration %#x", i, wr.Op, wr.Reg)
		return
	case r.valid:
		j.w.breach("request %d: %v of what is valid still", i, wr.Op)
	case r.next == nil:
		j.w.breach("request %d: %v, nothing is mapped", i, wr.Op)
		return
	case wr.KeyByte == r.keyByte:
		j.w.breach("request %d: %v with key byte %#x once more", i, wr.Op, wr.KeyByte)
	}
	j.w.past[r.RKey(r.keyByte)] = true
	r.valid, r.keyByte, r.now, r.next = true, wr.KeyByte, r.next, nil
	r.shown = false
}

// invalidate reports whether it is one at the end of a transfer.
func (j *chainJudge) invalidate(i int, wr, following *transport.WR, afterInv bool) bool {
	r := j.w.regs[wr.Reg]
	if r == nil || !r.valid || r.keyByte != wr.KeyByte {
		j.w.breach("request %d: invalidation of %#x.%02x, which isn't valid", i, wr.Reg, wr.KeyByte)
		return false
	}
	if j.caps.LocalInv[r.Kind()] != transport.InvWorks {
		j.w.breach("request %d: an invalidation of %v is %v on this device", i, r.Kind(), j.caps.LocalInv[r.Kind()])
	}
	r.valid = false
	fence := wr.Flags&transport.Fence != 0
	last, inChain := j.used[r]
	if !inChain { // of an earlier use, or the end of an exposure
		again := following != nil && following.Op == transport.OpFastReg && following.Reg == wr.Reg
		if again {
			j.out.stale++
		}
		if again == (r.now.Access&transport.RemoteAny != 0) {
			j.w.breach("request %d: invalidation of a registration with %v, used again: %v", i, r.now.Access, again)
		}
		if fence {
			j.w.breach("request %d: a fence, nothing before it needs one", i)
		}
		return false
	}
	j.out.trailing++
	if fence && afterInv {
		j.w.breach("request %d: a second fence", i)
	}
	if fence {
		j.fenced = i
	}
	if j.fenced <= last {
		j.w.breach("request %d: invalidation without a fence after request %d, which uses it", i, last)
	}
	return true
}

// data checks a request that moves bytes, and writes down which.
func (j *chainJudge) data(i int, wr *transport.WR) {
	limit := j.q.Granted().MaxSendSGE
	if wr.Op.IsRead() {
		limit = min(limit, max(1, j.caps.MaxSGERead))
	}
	if int(wr.NumSGE) > limit {
		j.w.breach("request %d: %v of %d SGEs, %d are possible", i, wr.Op, wr.NumSGE, limit)
	}
	list := j.sges[wr.FirstSGE:][:wr.NumSGE]
	var total uint64
	for _, sge := range list {
		if sge.Len == 0 {
			j.w.breach("request %d: an SGE of nothing", i)
		}
		remote := wr.RemoteAddr + total
		for _, s := range j.resolve(i, wr, sge) {
			if !wr.Op.IsSend() {
				j.out.moves = append(j.out.moves, move{local: s.addr, remote: remote, rkey: wr.RKey, n: s.n, read: wr.Op.IsRead()})
			}
			remote += s.n
		}
		total += uint64(sge.Len)
	}
	if total > j.caps.MaxMsg {
		j.w.breach("request %d: %d bytes, %d are possible", i, total, j.caps.MaxMsg)
	}
	if wr.Op.IsRead() && total == 0 {
		j.w.breach("request %d: a READ of nothing", i)
	}
	if wr.Op != transport.OpReadWithInv {
		return
	}
	r := j.w.regs[wr.Reg]
	switch {
	case !j.caps.ReadWithInv:
		j.w.breach("request %d: the device has no READ_WITH_INV", i)
	case r == nil || len(list) != 1 || list[0].LKey != r.LKey(wr.KeyByte):
		j.w.breach("request %d: READ_WITH_INV of another key than its sink's", i)
	default:
		r.valid = false
	}
}

// resolve finds the memory behind an SGE: its key must be alive at this point of
// the chain, cover the range and have the rights for the operation, and no others.
func (j *chainJudge) resolve(i int, wr *transport.WR, sge transport.SGE) []stretch {
	var need, peers transport.Access
	if wr.Op.IsRead() {
		ops := mrpool.ReadSink
		need = transport.LocalWrite
		peers = ops.Access(j.caps) & transport.RemoteAny
	}
	for _, e := range j.q.pd.Regions().View() {
		if e.ID == 0 || e.LKey != sge.LKey {
			continue
		}
		if !e.Contains(sge.Addr, sge.Len) || !e.Access.Has(need|peers) {
			j.w.breach("request %d: %v of [%#x,+%d) under the key of region [%#x,+%d) with %v", i, wr.Op, sge.Addr, sge.Len, e.Addr, e.Len, e.Access)
		}
		j.out.ownKey = j.out.ownKey || wr.Op.IsRead()
		return []stretch{{sge.Addr, uint64(sge.Len)}}
	}
	for _, r := range j.w.regs {
		if !r.valid || r.Kind() == transport.Window || r.LKey(r.keyByte) != sge.LKey {
			continue
		}
		m := r.now
		off := sge.Addr - m.ext.IOVA
		if off > m.ext.Len || uint64(sge.Len) > m.ext.Len-off {
			j.w.breach("request %d: %v of [%#x,+%d), registered is [%#x,+%d)", i, wr.Op, sge.Addr, sge.Len, m.ext.IOVA, m.ext.Len)
			return nil
		}
		if !m.Access.Has(need) || m.Access&transport.RemoteAny != peers {
			j.w.breach("request %d: %v under a registration with %v, for the peer it needs %v", i, wr.Op, m.Access, peers)
		}
		j.used[r] = i
		m.through += uint64(sge.Len)
		if wr.Op.IsRead() && j.caps.Protocol == transport.IWARP {
			r.shown = true
		}
		return m.stretches(off, uint64(sge.Len))
	}
	j.w.breach("request %d: %v under %v, which nothing valid has", i, wr.Op, sge.LKey)
	return nil
}

// invalidatedByPeer: a message says that its sender had a key invalidated. An own
// invalidation may have been posted meanwhile.
func (w *witness) invalidatedByPeer(key transport.RKey) {
	for _, r := range w.regs {
		if r.RKey(r.keyByte) == key {
			r.valid = false
			return
		}
	}
	if w.past[key] {
		return // it came too late
	}
	w.breach("a message invalidates %v, which nothing here has", key)
}

// living returns the registrations that peers may reach something by: valid, and
// with rights for them, or a key that they have seen.
func (w *witness) living() (out []*registered) {
	for _, r := range w.regs {
		if r.valid && !r.lasting && (r.shown || r.now.Access&transport.RemoteAny != 0) {
			out = append(out, r)
		}
	}
	return out
}

// inOne joins moves that go on where the one before ended.
func inOne(moves []move) (out []move) {
	for _, m := range moves {
		if k := len(out) - 1; k >= 0 && out[k].local+out[k].n == m.local && out[k].remote+out[k].n == m.remote &&
			out[k].rkey == m.rkey && out[k].read == m.read {
			out[k].n += m.n
			continue
		}
		out = append(out, m)
	}
	return out
}

// wanted is what a transfer should move: its lists, laid beside each other.
func wanted(read bool, local []transport.Piece, offset, length uint64, remote []transport.Remote) (out []move) {
	remote = append([]transport.Remote(nil), remote...)
	for _, p := range local {
		addr, n := p.Addr, uint64(p.Len)
		skip := min(offset, n)
		addr, n, offset = addr+skip, n-skip, offset-skip
		n = min(n, length)
		length -= n
		for n > 0 {
			for remote[0].Len == 0 {
				remote = remote[1:]
			}
			r := &remote[0]
			take := min(n, uint64(r.Len))
			out = append(out, move{local: addr, remote: r.Addr, rkey: r.Key, n: take, read: read})
			addr, n = addr+take, n-take
			r.Addr, r.Len = r.Addr+take, r.Len-uint32(take)
		}
	}
	return inOne(out)
}
