package target

import "math/bits"

// memory hands out parts of a queue's data memory: powers of two of pages (a buddy
// allocator). Each part is contiguous, so that a READ or WRITE is one request, and a
// backend gets one buffer. Nothing is allocated after newMemory.
type memory struct {
	orders int // the largest part has 2^(orders-1) pages, which is all
	// free[o] is the first free part of 2^o pages, or -1. Parts are named by their first
	// page.
	free []int32
	// For the first page of a free part: its neighbours in its list; for the first page
	// of any part its order, with isFree if it is free.
	next, prev []int32
	order      []uint8
}

const (
	isFree = 0x80
	nobody = int32(-1)
)

// part is memory that was handed out. The zero value is none.
type part struct {
	at   uint32 // in bytes, from the start
	size uint32 // as asked for
}

// newMemory makes memory of size bytes, a power of two of at least a page, all free.
func newMemory(size int) *memory {
	pages := size / page
	m := &memory{orders: bits.Len(uint(pages))}
	m.free = make([]int32, m.orders)
	m.next, m.prev, m.order = make([]int32, pages), make([]int32, pages), make([]uint8, pages)
	for i := range m.free {
		m.free[i] = nobody
	}
	m.push(0, m.orders-1)
	return m
}

// largest is the most that take can ever give, in bytes.
func (m *memory) largest() int { return page << (m.orders - 1) }

// take hands out n bytes, which begin on a page, or reports that there is no part that
// is large enough.
func (m *memory) take(n uint32) (part, bool) {
	want := 0
	if n > page {
		want = bits.Len32((n - 1) / page)
	}
	o := want
	for o < m.orders && m.free[o] == nobody {
		o++
	}
	if n == 0 || o >= m.orders {
		return part{}, false
	}
	p := m.free[o]
	m.unlink(p, o)
	for o > want {
		o--
		m.push(p+1<<o, o)
	}
	m.order[p] = uint8(o)
	return part{at: uint32(p) * page, size: n}, true
}

// give takes a part back.
func (m *memory) give(t part) {
	p := int32(t.at / page)
	o := int(m.order[p])
	for o < m.orders-1 {
		buddy := p ^ 1<<o
		if m.order[buddy] != uint8(o)|isFree {
			break
		}
		m.unlink(buddy, o)
		p &= buddy
		o++
	}
	m.push(p, o)
}

func (m *memory) push(p int32, o int) {
	m.order[p] = uint8(o) | isFree
	m.prev[p], m.next[p] = nobody, m.free[o]
	if m.free[o] != nobody {
		m.prev[m.free[o]] = p
	}
	m.free[o] = p
}

func (m *memory) unlink(p int32, o int) {
	m.order[p] = 0
	if m.prev[p] == nobody {
		m.free[o] = m.next[p]
	} else {
		m.next[m.prev[p]] = m.next[p]
	}
	if m.next[p] != nobody {
		m.prev[m.next[p]] = m.prev[p]
	}
}
