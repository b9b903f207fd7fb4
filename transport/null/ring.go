package null

import (
	"unsafe"

	"rdmarw/transport"
)

// SlotSize is what send queues are counted in, on hardware as here.
const SlotSize = 64

// slot is 64 bytes: a header, 4 SGEs, or 8 addresses of pages.
type slot [SlotSize / 8]uint64

// header begins each request.
type header struct {
	wr transport.WR
	// sges and pages are the numbers of what follows, in slots of its own.
	sges, pages uint32
}

var _ [SlotSize]byte = [unsafe.Sizeof(header{})]byte{}

const (
	sgesPerSlot  = SlotSize / int(unsafe.Sizeof(transport.SGE{}))
	pagesPerSlot = SlotSize / int(unsafe.Sizeof(uint64(0)))
)

// Ring is the memory of a send queue. A request takes a slot for itself, and as many
// as it needs for its SGEs or its page list, all of them in a row: a request for which
// the end is too near begins at the start again.
//
// PostSend writes to it, or somebody does by hand, to see what that costs.
type Ring struct {
	slots []slot
	head  int // the next slot
	// passed is how many slots earlier laps took, with what they left at the end.
	passed uint64
}

// NewRing makes a ring of a number of slots. The largest request must fit.
func NewRing(slots int) *Ring { return &Ring{slots: make([]slot, slots)} }

// take returns the first of n slots in a row.
func (r *Ring) take(n int) int {
	at := r.head
	if at+n > len(r.slots) {
		r.passed += uint64(len(r.slots))
		at = 0
	}
	r.head = at + n
	return at
}

// Request returns the places of the next request and of its SGEs, to be written
// whole: they hold what was there before. WR.FirstSGE means nothing here and is to be
// zero.
func (r *Ring) Request(sges int) (*transport.WR, []transport.SGE) {
	at := r.take(1 + (sges+sgesPerSlot-1)/sgesPerSlot)
	h := r.header(at)
	h.sges, h.pages = uint32(sges), 0
	return &h.wr, r.sges(at, sges)
}

// FastReg returns the places of a FAST_REG and of its page list, to be written
// whole. The request says in RemoteAddr where the registration begins, in CompareAdd
// how long it is, and in Imm what rights it has.
func (r *Ring) FastReg(pages int) (*transport.WR, []uint64) {
	at := r.take(1 + (pages+pagesPerSlot-1)/pagesPerSlot)
	h := r.header(at)
	h.sges, h.pages = 0, uint32(pages)
	return &h.wr, r.pages(at, pages)
}

// The views of one memory. What follows a header begins in the slot after it.

func (r *Ring) header(at int) *header { return (*header)(unsafe.Pointer(&r.slots[at])) }

func (r *Ring) sges(at, n int) []transport.SGE {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*transport.SGE)(unsafe.Pointer(&r.slots[at+1])), n)
}

func (r *Ring) pages(at, n int) []uint64 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&r.slots[at+1])), n)
}

// Reset empties the ring.
func (r *Ring) Reset() {
	clear(r.slots)
	r.head, r.passed = 0, 0
}

// Taken is how many slots were taken since Reset, with those left out where the ring
// ends.
func (r *Ring) Taken() uint64 { return r.passed + uint64(r.head) }
