package sim

import (
	"slices"

	"rdmarw/transport"
)

// PostSend posts a chain.
//
// Requests are checked in order and posting stops at the first that is refused;
// those before it are posted, unless Caps.AtomicPost. What only the device can
// find out (keys, ranges) is found out when the request runs.
func (q *QP) PostSend(wrs []transport.WR, sges []transport.SGE) (int, error) {
	f := q.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	first := q.sq.tail
	accepted, refused := 0, q.postable()
	for refused == nil && accepted < len(wrs) {
		if refused = q.post(&wrs[accepted], sges); refused == nil {
			accepted++
		}
	}
	if refused == nil {
		q.ring(first)
		return accepted, nil
	}
	err := &transport.Error{Op: "post send", Device: q.dev.name, WR: accepted, Err: refused}
	if q.dev.caps.AtomicPost {
		q.unpost(first)
		accepted = 0
	}
	q.ring(first)
	return accepted, err
}

// ring is the doorbell: it starts what was posted from first on.
func (q *QP) ring(first uint64) {
	n := q.sq.tail - first
	if n == 0 {
		return
	}
	if f := q.dev.fabric; f.log != nil {
		f.tracef(q.dev, "qp %d post %d from %d", q.num, n, first)
	}
	q.dev.fabric.timeline.posted(q, first)
	switch {
	case q.state == transport.QPReady:
		q.kickRequester()
	case q.dev.profile.FlushesLate:
		q.scheduleFlush()
	}
}

// postable tells whether the queue pair takes requests at all. In the error
// state it does as long as its user can't know of that: they flush, or never
// complete.
func (q *QP) postable() error {
	switch {
	case q.closed:
		return transport.ErrBadState
	case q.dev.dead:
		return q.dev.down
	case q.state == transport.QPInit:
		return transport.ErrBadState
	case q.knownToFail() && !q.dev.profile.Kernel:
		return transport.ErrBadState
	}
	return nil
}

// knownToFail tells whether the user of the queue pair knows that it is in the error
// state: the user put it there, or was told that the connection has ended.
func (q *QP) knownToFail() bool {
	return q.state == transport.QPError && (q.failed || q.conn.state == connEnded)
}

// post checks a request and enters it into the queue.
func (q *QP) post(wr *transport.WR, sges []transport.SGE) error {
	if q.sq.len() >= q.sendSlots {
		return transport.ErrQueueFull
	}
	if !q.offers(wr.Op) {
		return transport.ErrUnsupported
	}
	e := sqe{wr: *wr, sge: q.sges.tail}
	var list []transport.SGE
	switch wr.Op {
	case transport.OpLocalInv, transport.OpFastReg, transport.OpBindWindow:
		if err := q.checkLocal(wr); err != nil {
			return err
		}
		e.wr.NumSGE = 0
	default:
		if uint64(wr.FirstSGE)+uint64(wr.NumSGE) > uint64(len(sges)) && wr.NumSGE > 0 {
			return transport.ErrInvalid
		}
		if wr.NumSGE > 0 {
			list = sges[wr.FirstSGE:][:wr.NumSGE]
		}
		if err := q.checkList(&e, list); err != nil {
			return err
		}
	}
	if fault := q.dev.fabric.faults.Post; fault != nil {
		if err := fault(q, q.sq.tail, wr); err != nil {
			return err
		}
	}
	if wr.Flags&transport.Inline != 0 && list != nil {
		if err := q.copyInline(&e, list); err != nil {
			return err
		}
		list = nil
	}
	for i := range list {
		q.sges.push(list[i])
	}
	e.numSGE = uint16(len(list))
	q.sq.push(e)
	q.dev.stats.posted(wr.Op, e.length)
	return nil
}

// unpost takes back what was posted from first on.
func (q *QP) unpost(first uint64) {
	for seq := q.sq.tail; seq > first; seq-- {
		e := q.sq.at(seq - 1)
		q.dev.fabric.buffers.put(e.inline)
		q.sges.tail = e.sge
		q.dev.stats.unposted(e.wr.Op, e.length)
	}
	q.sq.tail = first
}

// offers tells whether the device has an operation at all.
func (q *QP) offers(op transport.Opcode) bool {
	caps := &q.dev.caps
	switch op {
	case transport.OpSend, transport.OpWrite, transport.OpRead:
		return true
	case transport.OpSendWithInv:
		return caps.SendWithInv
	case transport.OpSendWithImm, transport.OpWriteWithImm:
		return caps.WriteWithImm
	case transport.OpReadWithInv:
		return caps.ReadWithInv
	case transport.OpFastReg:
		return caps.FastReg.MaxPages > 0
	case transport.OpBindWindow:
		return caps.Windows != transport.NoWindows
	case transport.OpLocalInv:
		// A device that can invalidate something takes the request, and fails it
		// when it runs if it names something else. What would be harmful is held
		// back, as package ibverbs does.
		return slices.Contains(caps.LocalInv[:], transport.InvWorks)
	case transport.OpCompareSwap, transport.OpFetchAdd:
		return caps.Atomics
	}
	return false
}

// checkLocal checks a request about an own registration.
func (q *QP) checkLocal(wr *transport.WR) error {
	r := q.pd.registration(wr.Reg)
	if r == nil {
		return transport.ErrInvalid
	}
	switch wr.Op {
	case transport.OpFastReg:
		if r.Kind() != transport.FastMR {
			return transport.ErrInvalid
		}
	case transport.OpBindWindow:
		if w, ok := r.(*window); !ok || w.mapped.region == nil {
			return transport.ErrInvalid
		}
	}
	return nil
}

// checkList checks a request's SGEs and takes in their length.
func (q *QP) checkList(e *sqe, list []transport.SGE) error {
	wr := &e.wr
	p := &q.dev.profile
	maxSGE, maxInline := q.granted.MaxSendSGE, q.granted.MaxInline
	if p.DeviceLimits {
		maxSGE, maxInline = q.dev.caps.MaxSendSGE, q.dev.caps.MaxInline
	}
	if len(list) > maxSGE {
		return transport.ErrTooManySGE
	}
	if !p.Kernel && (wr.Op.IsRead() && wr.Flags&transport.Fence != 0 && p.FencedReadFails ||
		wr.Op == transport.OpSendWithInv && wr.Flags&transport.Inline != 0 && p.NoInlineWithInv) {
		return transport.ErrUnsupported
	}
	if wr.Op.IsRead() || wr.Op.IsAtomic() {
		switch {
		case q.ord == 0 && q.state == transport.QPReady:
			return transport.ErrReadDepth
		case wr.Flags&transport.Inline != 0:
			return transport.ErrUnsupported
		}
	}
	if wr.Op.IsRead() && len(list) > q.readSGE {
		return transport.ErrTooManySGE
	}
	var length uint64
	for i := range list {
		length += uint64(list[i].Len)
		if p.NoEmptySGEs && list[i].Len == 0 && i+1 < len(list) && wr.Flags&transport.Inline == 0 {
			return transport.ErrUnsupported
		}
	}
	switch {
	case length > q.dev.caps.MaxMsg && !q.dev.profile.LongMessages:
		return transport.ErrMessageTooLong
	case wr.Op.IsAtomic() && p.ChecksAtomics && (length < 8 || wr.RemoteAddr%8 != 0):
		return transport.ErrInvalid
	case wr.Op == transport.OpReadWithInv:
		// The devices ignore the key to be invalidated and take the sink's, so
		// anything else is a mistake.
		r, ok := q.pd.registration(wr.Reg).(*fastMR)
		if !ok || len(list) != 1 || list[0].LKey != r.LKey(wr.KeyByte) {
			return transport.ErrInvalid
		}
	case wr.Flags&transport.Inline != 0 && length > uint64(maxInline):
		return transport.ErrInlineTooLong
	}
	e.length = uint32(min(length, 1<<32-1))
	if wr.Op.IsAtomic() {
		e.length = 8 // whatever there is room for
	}
	return nil
}

// copyInline takes the data at once, as the CPU sees it: lkeys don't matter.
func (q *QP) copyInline(e *sqe, list []transport.SGE) error {
	for i := range list {
		if list[i].Len > 0 && q.dev.memory(list[i].Addr, list[i].Len) == nil {
			return transport.ErrRange // a segmentation fault, in reality
		}
	}
	e.inline = q.dev.fabric.buffers.get(int(e.length))
	to := e.inline
	for i := range list {
		to = to[copy(to, q.dev.memory(list[i].Addr, list[i].Len)):]
	}
	return nil
}
