package host

import (
	"rdmarw/mrpool"
	"rdmarw/transport"
)

// reach is what one command can describe: a keyed SGL has one descriptor, so its data
// must fit under one key.
type reach struct {
	most  uint64 // bytes, a multiple of any block size
	fast  bool   // keys are of fast registrations, which cover lists
	pages int    // of a fast registration
	shift uint8
	gaps  bool
}

// reachOf returns the reach of a device with a pool.
func reachOf(caps *transport.Caps, pool *mrpool.Pool, most int) reach {
	r := reach{most: uint64(most), fast: caps.FastReg.MaxPages > 0}
	if r.fast {
		r.pages, r.shift, r.gaps = pool.FastPages(), pool.PageShift(), caps.FastReg.Gaps
	}
	return r
}

// covers returns how many bytes of a list, from a position on, one command can
// describe, and where the next goes on: as many whole blocks as fit. It returns zero
// if that isn't even one.
func (r *reach) covers(list []transport.Piece, from transport.Cursor, block uint64) (n uint64, next transport.Cursor) {
	n = r.extent(list, from, r.most).Len
	if whole := n - n%block; whole != n {
		n = whole
		if n == 0 {
			return 0, from
		}
		return n, r.extent(list, from, n).Next
	}
	return n, r.extent(list, from, r.most).Next
}

func (r *reach) extent(list []transport.Piece, from transport.Cursor, limit uint64) transport.Extent {
	if r.fast {
		return transport.Coverage(list, from, limit, r.shift, r.pages, r.gaps)
	}
	return transport.Contiguous(list, from, limit)
}

// slice appends the pieces of n bytes of a list, from a position on.
func slice(dst, list []transport.Piece, from transport.Cursor, n uint64) []transport.Piece {
	offset := from.Offset
	for _, p := range list[from.Piece:] {
		if n == 0 {
			break
		}
		p.Addr += uint64(offset)
		p.Len -= offset
		offset = 0
		p.Len = uint32(min(uint64(p.Len), n))
		if p.Len > 0 {
			dst = append(dst, p)
		}
		n -= uint64(p.Len)
	}
	return dst
}

func length(list []transport.Piece) (n uint64) {
	for _, p := range list {
		n += uint64(p.Len)
	}
	return n
}
