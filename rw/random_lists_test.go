package rw_test

import (
	"rdmarw/transport"
)

// choose picks one of 0 .. n-1. What for is said so that a failure can be read.
type choose func(n int, what string) int

// oneIn is true once in n times.
func (c choose) oneIn(n int, what string) bool { return c(n, what) == n-1 }

// room hands out ranges of a region that nobody else uses, one after the other.
type room struct {
	region *transport.Region
	at     uint64
}

// reset begins a round: everything handed out before is free again. It goes on
// where it was, as long as a round's lists still fit behind.
func (r *room) reset() {
	if r.at > r.region.Len()/2 {
		r.at = 0
	}
}

// take is one piece of n bytes, after a gap, at a multiple of align.
func (r *room) take(n uint32, gap, align uint64) transport.Piece {
	r.at = (r.at + gap + align - 1) / align * align
	p := r.region.Piece(r.at, n)
	r.at += uint64(n)
	return p
}

// list cuts n bytes into pieces the way storage does, and the ways it doesn't: odd
// lengths at odd addresses, whole pages, sectors; neighbours or not; and pieces of
// nothing.
func (r *room) list(c choose, n int) (list []transport.Piece) {
	r.take(0, 1+uint64(c(64, "start")), 1) // no two lists touch
	style := c(4, "style")
	for n > 0 {
		gap := uint64(0)
		if c.oneIn(2, "apart") {
			gap = uint64(1 + c(600, "gap"))
		}
		size, align := 1+c(2500, "length"), uint64(1)
		switch style {
		case 1:
			size, align = 4096*(1+c(2, "pages")), 4096
		case 2:
			size, align = 512, 512
		}
		size = min(size, n)
		list = append(list, r.take(uint32(size), gap, align))
		n -= size
		if c.oneIn(8, "piece of nothing") {
			list = append(list, r.take(0, 0, 1))
		}
	}
	return list
}

// contentOf copies the n bytes of a list from an offset on out of a region's content.
func contentOf(r *transport.Region, content []byte, list []transport.Piece, offset, n uint64) (out []byte) {
	eachRange(r, list, offset, n, func(at, n uint64) { out = append(out, content[at:at+n]...) })
	return out
}

// store writes bytes to where a list says, in a region's content.
func store(r *transport.Region, content []byte, list []transport.Piece, offset uint64, data []byte) {
	eachRange(r, list, offset, uint64(len(data)), func(at, n uint64) {
		copy(content[at:at+n], data)
		data = data[n:]
	})
}

func eachRange(r *transport.Region, list []transport.Piece, offset, n uint64, fn func(at, n uint64)) {
	m := mapping{Mapping: transport.Mapping{List: list}}
	for _, s := range m.stretches(offset, n) {
		fn(s.addr-r.Addr(), s.n)
	}
}
