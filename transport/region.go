package transport

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// RegionConfig asks for a region.
type RegionConfig struct {
	// Size is the length in bytes. It is rounded up to whole pages in the
	// mapping, but the region ends after Size bytes.
	Size int
	// Access may hold LocalWrite and BindWindow. Rights for a peer are refused:
	// a region is never remotely reachable, ranges of it are, for one operation
	// at a time.
	Access Access
	// HugePages asks for a mapping of huge pages; refused where there are none.
	HugePages bool
}

// Region is memory of one device: known by its bounds and its rights, and
// given an lkey by each protection domain that it was added to
// ([PD.AddRegion]).
//
// A region owns its memory, which is never on the Go heap (but for the
// simulator under the race detector, which can't see other memory), or it wraps
// memory from elsewhere and keeps that memory's owner alive. Its methods may be
// called from any goroutine.
type Region struct {
	id     RegionID
	addr   uint64
	size   uint64
	access Access
	bytes  []byte
	owner  any

	mu     sync.Mutex
	users  int
	closed bool
	free   func() error
}

// NewRegion describes a region to the rest of the module. It is for transports
// to call; users call [Device.NewRegion] or [Device.WrapRegion].
//
// addr is the device-visible address of bytes[0], or of the first byte of size
// bytes that the CPU can't see if bytes is nil. owner, if any, is kept alive.
// free is called once, when the region is closed.
func NewRegion(id RegionID, addr, size uint64, access Access, bytes []byte, owner any, free func() error) *Region {
	return &Region{id: id, addr: addr, size: size, access: access, bytes: bytes, owner: owner, free: free}
}

// ID returns the region's id on its device.
func (r *Region) ID() RegionID { return r.id }

// Addr returns the device-visible address of the first byte.
func (r *Region) Addr() uint64 { return r.addr }

// Len returns the length in bytes.
func (r *Region) Len() uint64 { return r.size }

// Access returns the region's rights.
func (r *Region) Access() Access { return r.access }

// Bytes returns the memory, or nil if the CPU can't see it. The slice is valid
// until Close. While the device may write to it (from the submission of a READ
// or a receive until its end) its content is not to be looked at.
func (r *Region) Bytes() []byte { return r.bytes }

// Piece returns the range of n bytes that starts at offset. It does not check
// it: every operation checks its pieces, and refuses bad ones with [ErrRange].
func (r *Region) Piece(offset uint64, n uint32) Piece {
	return Piece{Addr: r.addr + offset, Len: n, Region: r.id}
}

// Retain notes a user of the region: a protection domain or a registration.
// It is for transports to call, and fails with [ErrClosed].
func (r *Region) Retain() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.users++
	return nil
}

// Release takes back one Retain.
func (r *Region) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
}

// Close frees the memory. It fails with [ErrBusy], and changes nothing, while a
// protection domain or a registration still uses the region. Closing twice is
// harmless.
func (r *Region) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	if r.users > 0 {
		return fmt.Errorf("close region %#x: %d users left (protection domains it was added to, registrations of parts of it): %w",
			r.id, r.users, ErrBusy)
	}
	r.closed = true
	r.bytes = nil
	r.owner = nil
	if r.free == nil {
		return nil
	}
	return r.free()
}

// The bits of a RegionID.
const (
	regionSlotBits = 20
	regionSlots    = 1 << regionSlotBits
)

func (id RegionID) slot() int { return int(id & (regionSlots - 1)) }

// RegionIDs gives out the region ids of one device. The zero value is ready.
type RegionIDs struct {
	mu   sync.Mutex
	gen  []uint32 // by slot: the last generation that was given out
	free []int
}

// Take returns a new id, or [ErrNoMemory] when 2^20 regions exist.
func (s *RegionIDs) Take() (RegionID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var slot int
	switch n := len(s.free); {
	case n > 0:
		slot = s.free[n-1]
		s.free = s.free[:n-1]
	case len(s.gen) < regionSlots:
		slot = len(s.gen)
		s.gen = append(s.gen, 0)
	default:
		return 0, ErrNoMemory
	}
	s.gen[slot] = s.gen[slot]%(1<<(32-regionSlotBits)-1) + 1 // 1 .. 4095, never 0
	return RegionID(s.gen[slot]<<regionSlotBits | uint32(slot)), nil
}

// Give takes an id back.
func (s *RegionIDs) Give(id RegionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, id.slot())
}

// RegionEntry is what a protection domain knows of a region.
type RegionEntry struct {
	ID     RegionID
	LKey   LKey
	Access Access
	Addr   uint64
	Len    uint64
	Region *Region
}

// Contains reports whether the range lies in the region.
func (e *RegionEntry) Contains(addr uint64, n uint32) bool {
	offset := addr - e.Addr // wraps to a huge number below the region
	return offset <= e.Len && uint64(n) <= e.Len-offset
}

// RegionTable is a protection domain's table of regions. Looking up takes no
// lock; the zero value is ready.
type RegionTable struct {
	mu   sync.Mutex
	view atomic.Pointer[RegionView]
}

// RegionView is a snapshot of a [RegionTable], indexed by slot.
type RegionView []RegionEntry

// View returns the current snapshot. Nil is an empty table.
func (t *RegionTable) View() RegionView {
	if v := t.view.Load(); v != nil {
		return *v
	}
	return nil
}

// Current reports whether a snapshot is still what the table holds: no region was
// added or removed since it was taken.
func (t *RegionTable) Current(v RegionView) bool {
	now := t.View()
	return len(now) == len(v) && (len(v) == 0 || &now[0] == &v[0])
}

// Lookup returns the entry of a region, or nil if the protection domain
// doesn't have it (any more).
func (v RegionView) Lookup(id RegionID) *RegionEntry {
	slot := id.slot()
	if slot >= len(v) || v[slot].ID != id || id == 0 {
		return nil
	}
	return &v[slot]
}

// Check finds the region of a piece and checks the piece against its bounds and
// rights. Errors match [ErrRegion], [ErrRange] or [ErrAccess].
func (v RegionView) Check(p Piece, need Access) (*RegionEntry, error) {
	e := v.Lookup(p.Region)
	switch {
	case e == nil:
		return nil, fmt.Errorf("piece %v: region %#x: %w", p, p.Region, ErrRegion)
	case !e.Contains(p.Addr, p.Len):
		return nil, fmt.Errorf("piece %v: region is [%#x,+%d): %w", p, e.Addr, e.Len, ErrRange)
	case !e.Access.Has(need):
		return nil, fmt.Errorf("piece %v: region grants %v, needs %v: %w", p, e.Access, need, ErrAccess)
	}
	return e, nil
}

// CheckList checks, of a list from a position on, the pieces that n bytes lie in
// (zero: all), and returns how many bytes that are: fewer than n if the list is
// shorter. See [RegionView.Check]. Empty pieces can't be wrong.
func (v RegionView) CheckList(list []Piece, from Cursor, n uint64, need Access) (uint64, error) {
	skip := uint64(from.Offset)
	most := n + skip
	if n == 0 || most < n {
		most = ^uint64(0)
	}
	left := most
	e := new(RegionEntry) // of the piece before; nothing lies in this one
	for i := from.Piece; i < len(list) && left > 0; i++ {
		var pieces int
		pieces, left = e.run(list[i:], left)
		if i += pieces; i == len(list) {
			break
		}
		if list[i].Len > 0 {
			var err error
			if e, err = v.Check(list[i], need); err != nil {
				return 0, err
			}
		}
		left -= min(uint64(list[i].Len), left)
	}
	return most - left - min(skip, most-left), nil
}

// CheckPages checks a list whose pieces are whole pages of 2^shift bytes in one region,
// one page each, and reports whether it is such a list and nothing is wrong with it.
// It tells no more: ask [RegionView.CheckList] about other lists.
func (v RegionView) CheckPages(list []Piece, shift uint8, need Access) bool {
	if len(list) == 0 || shift > 31 {
		return false
	}
	e := v.Lookup(list[0].Region)
	return e != nil && e.Access.Has(need) && e.holdsPages(list, 1<<shift)
}

// run counts the pieces from the start of a list that lie in the region, for as long
// as more than they have is left, and returns what is. Neighbours in a list are in
// the same region mostly, and the loop is short enough for what it compares to stay in
// registers.
func (e *RegionEntry) run(list []Piece, left uint64) (int, uint64) {
	id, start, size := e.ID, e.Addr, e.Len
	spare := left - min(left, size)
	left -= spare // so that no piece below is longer than the region
	for i := range list {
		p := &list[i]
		n := uint64(p.Len)
		if n >= left || p.Addr-start > size-n || p.Region != id { // before the region: huge
			return i, left + spare
		}
		left -= n
	}
	return len(list), left + spare
}

// Add enters a region. It fails with [ErrBusy] if the region is there already.
func (t *RegionTable) Add(r *Region, key LKey) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.View()
	if old.Lookup(r.id) != nil {
		return ErrBusy
	}
	v := slices.Clone(old)
	for len(v) <= r.id.slot() {
		v = append(v, RegionEntry{})
	}
	v[r.id.slot()] = RegionEntry{ID: r.id, LKey: key, Access: r.access, Addr: r.addr, Len: r.size, Region: r}
	t.view.Store(&v)
	return nil
}

// Remove takes a region out and reports whether it was there.
func (t *RegionTable) Remove(id RegionID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.View()
	if old.Lookup(id) == nil {
		return false
	}
	v := slices.Clone(old)
	v[id.slot()] = RegionEntry{}
	t.view.Store(&v)
	return true
}
