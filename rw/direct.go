package rw

import (
	"fmt"
	"math"
	"slices"

	"rdmarw/transport"
)

// direct plans SGEs under keys that exist already: the regions' own, or those of
// persistent sinks. How long the transfer is, it finds out unless t says so.
//
// Most transfers are pieces of one region, apart from each other, so that each is an SGE,
// and a remote segment's end is a request's end. Others, and what is wrong, are looked at
// piece by piece.
func (p *plan) direct(t *Transfer, lim *Limits, regions transport.RegionView) error {
	list := t.Local
	limit, need := lim.directSGEs(t.Op), t.need()
	e := regions.Lookup(list[0].Region)
	if e == nil || !e.Access.Has(need) || t.Offset > 0 {
		return p.pieceByPiece(t, lim, regions)
	}
	if cap(p.sges) < len(list) {
		p.sges = slices.Grow(p.sges, len(list))
	}
	n, total, even := e.SGEs(p.sges[:len(list)], list, 0)
	if n < len(list) || t.Length != 0 && t.Length != total {
		return p.pieceByPiece(t, lim, regions)
	}
	p.sges = p.sges[:n]
	if n <= limit && p.oneRequest(t, lim, total) || n > limit && p.cut(t, lim, limit, even) {
		p.isDirect(t.Op, total)
		return nil
	}
	return p.pieceByPiece(t, lim, regions)
}

// isDirect notes what there is in p.wrs.
func (p *plan) isDirect(op Op, bytes uint64) {
	p.Strategy, p.Bytes, p.Cost.WRs = Direct, bytes, len(p.wrs)
	if op == Read {
		p.Cost.Reads = len(p.wrs)
	}
}

// directSGEs is how many SGEs a request can have.
func (lim *Limits) directSGEs(op Op) int {
	if op == Read {
		return lim.Caps.ReadSGEs(lim.SendSGE)
	}
	return max(1, lim.SendSGE)
}

// pieceByPiece is direct for any list.
func (p *plan) pieceByPiece(t *Transfer, lim *Limits, regions transport.RegionView) error {
	p.wrs, p.sges = p.wrs[:0], p.sges[:0]
	limit, need := lim.directSGEs(t.Op), t.need()
	from, err := begin(t.Local, t.Offset)
	if err != nil {
		return err
	}
	var s splitter
	s.begin(t, lim)
	left := t.Length
	if left == 0 {
		left = math.MaxUint64
	}
	list, i, offset := t.Local, from.Piece, from.Offset
	wrs, sges := p.wrs, slices.Grow(p.sges, len(list)-i)
	e := &nowhere // the region of the piece before
	var total uint64
	// The request that is being written: its first SGE, the address after its last, how
	// many bytes it can have at most, and how many of them are left (none: it has to
	// be begun).
	var first int
	var end, most, room uint64
	for i < len(list) && left > 0 {
		piece := &list[i]
		if piece.Len == 0 {
			i++
			continue
		}
		if e.ID != piece.Region || !e.Contains(piece.Addr, piece.Len) {
			if e, err = regions.Check(*piece, need); err != nil {
				return err
			}
		}
		if room == 0 {
			if s.left == 0 {
				if err := s.segment(uint64(piece.Len - offset)); err != nil {
					return err
				}
			}
			most = min(s.left, s.maxMsg, left)
			room, first, end = most, len(sges), 0
		}
		var bytes uint64
		if offset == 0 {
			var n int
			n, bytes, _ = e.SGEs(sges[len(sges):min(first+limit, cap(sges))], list[i:], end)
			for bytes > room { // rare, so that the loop needn't look
				n--
				bytes -= uint64(list[i+n].Len)
			}
			i += n
			sges = sges[:len(sges)+n]
		}
		if bytes > 0 {
			end = list[i-1].End()
		} else { // it goes on where the last one ended, or only a part fits, or is left
			addr := piece.Addr + uint64(offset)
			bytes = min(uint64(piece.Len-offset), room)
			var ok bool
			if sges, ok = appendPart(sges, first, limit, transport.SGE{Addr: addr, Len: uint32(bytes), LKey: e.LKey}); !ok {
				wrs = s.append(wrs, most-room, first, len(sges))
				room = 0
				continue
			}
			end = addr + bytes
			if offset += uint32(bytes); offset == piece.Len {
				i++
				offset = 0
			}
		}
		total += bytes
		left -= bytes
		if room -= bytes; room == 0 || len(sges)-first == limit && (i == len(list) || list[i].Addr != end && list[i].Len > 0) {
			wrs = s.append(wrs, most-room, first, len(sges))
			room = 0
		}
	}
	if room > 0 {
		wrs = s.append(wrs, most-room, first, len(sges))
	}
	if total < t.Length {
		return tooShort(t.Length - total)
	}
	p.wrs, p.sges = wrs, sges
	if total > 0 {
		p.isDirect(t.Op, total)
	}
	return nil
}

// cut makes requests of at most limit SGEs, unless a remote segment ends, or a message
// is full, within one. SGEs known to be of one length needn't be added up.
func (p *plan) cut(t *Transfer, lim *Limits, limit int, even bool) bool {
	var s splitter
	s.begin(t, lim)
	wrs, sges := p.wrs, p.sges
	for first := 0; first < len(sges); {
		end := min(first+limit, len(sges))
		bytes := uint64(end-first) * uint64(sges[0].Len)
		if !even {
			bytes = bytesIn(sges[first:end])
		}
		if s.left == 0 && s.segment(bytes) != nil || bytes > min(s.left, s.maxMsg) {
			return false
		}
		wrs = s.append(wrs, bytes, first, end)
		first = end
	}
	p.wrs = wrs
	return true
}

// oneRequest makes one request of all SGEs, if the first remote segment is long enough.
func (p *plan) oneRequest(t *Transfer, lim *Limits, total uint64) bool {
	if len(t.Remote) == 0 {
		return false
	}
	r := &t.Remote[0]
	if total > uint64(r.Len) || r.Addr+uint64(r.Len) < r.Addr || total > lim.Caps.MaxMsg && lim.Caps.MaxMsg > 0 {
		return false
	}
	p.wrs = append(p.wrs, transport.WR{})
	wr := &p.wrs[0]
	wr.Op = transport.OpWrite
	if t.Op == Read {
		wr.Op = transport.OpRead
	}
	wr.RemoteAddr, wr.RKey, wr.NumSGE = r.Addr, r.Key, uint16(len(p.sges))
	return true
}

// bytesIn adds up lengths.
func bytesIn(sges []transport.SGE) (n uint64) {
	for i := range sges {
		n += uint64(sges[i].Len)
	}
	return n
}

// nowhere is a region in which nothing lies.
var nowhere transport.RegionEntry

// appendPart appends an SGE, or makes the last one longer if it goes on where that ends,
// unless there are limit from the first on.
func appendPart(sges []transport.SGE, first, limit int, sge transport.SGE) ([]transport.SGE, bool) {
	if n := len(sges); n > first {
		last := &sges[n-1]
		if last.LKey == sge.LKey && last.Addr+uint64(last.Len) == sge.Addr {
			last.Len += sge.Len
			return sges, true
		}
		if n-first == limit {
			return sges, false
		}
	}
	return append(sges, sge), true
}

// persistent plans a READ under the keys of the pool's persistent sinks.
func (p *plan) persistent(t *Transfer, lim *Limits, regions transport.RegionView) error {
	if lim.Sinks == nil {
		return fmt.Errorf("READ with policy %v: the pool has no sinks: %w", SinkPersistent, transport.ErrRegion)
	}
	if err := p.direct(t, lim, lim.Sinks.View()); err != nil {
		return fmt.Errorf("READ with policy %v (is the region a sink of the pool?): %w", SinkPersistent, err)
	}
	return nil
}
