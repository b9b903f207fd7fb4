package transport

import "fmt"

// RegionID names a [Region] of one device: a slot and a generation, so that
// the id of a closed region is recognised rather than taken for its successor.
// Zero is never valid.
type RegionID uint32

// Piece is one contiguous range of local memory inside one region: 16 bytes,
// no pointers. A local list is a []Piece. Make pieces with [Region.Piece].
type Piece struct {
	// Addr is the device-visible address of the first byte.
	Addr uint64
	// Len is the length in bytes. Zero is allowed; such a piece is skipped.
	Len uint32
	// Region is the region that Addr lies in.
	Region RegionID
}

// End returns the address after the last byte. The caller has checked the
// piece against its region, so the sum can't overflow.
func (p Piece) End() uint64 { return p.Addr + uint64(p.Len) }

// String formats the piece as a half-open address range.
func (p Piece) String() string { return fmt.Sprintf("[%#x,+%d)", p.Addr, p.Len) }

// Remote is one contiguous range of the peer's memory, as a protocol's
// descriptor tells it.
type Remote struct {
	// Addr is the address in the peer's terms.
	Addr uint64
	// Len is the length in bytes.
	Len uint32
	// Key is the peer's key for the range.
	Key RKey
}

// String formats the range and its key.
func (r Remote) String() string { return fmt.Sprintf("[%#x,+%d) %v", r.Addr, r.Len, r.Key) }

// Cursor is a position in a list of pieces: an index and an offset inside that
// piece. The zero value is the start.
type Cursor struct {
	Piece  int
	Offset uint32
}
