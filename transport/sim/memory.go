package sim

import (
	"cmp"
	"slices"

	"rdmarw/transport"
)

// Where simulated addresses start, by device: high enough for a small integer
// never to be an address, and apart so that no address is good on two devices.
const (
	addressBase  = 0x1000_0000_0000
	addressShift = 40
	hugePageSize = 2 << 20
)

// span is the memory of a region in a device's address space.
type span struct {
	addr   uint64
	mem    []byte
	region *transport.Region
}

// newSpan gives memory an address, a given offset from a border of align bytes,
// with an unused page at least before the next, and never one that was in use
// before.
func (d *Device) newSpan(mem []byte, align, offset uint64) uint64 {
	addr := (d.nextAddr+align-1)&^(align-1) + offset
	d.nextAddr = (addr + uint64(len(mem)) + 2*pageSize - 1) &^ (pageSize - 1)
	d.spans = append(d.spans, span{addr: addr, mem: mem})
	return addr
}

func (d *Device) dropSpan(addr uint64) {
	d.spans = slices.DeleteFunc(d.spans, func(s span) bool { return s.addr == addr })
}

// memory is what the CPU sees at an address, or nil where it would fault.
func (d *Device) memory(addr uint64, n uint32) []byte {
	s := d.span(addr)
	if s == nil {
		return nil
	}
	off := addr - s.addr
	if size := uint64(len(s.mem)); off > size || uint64(n) > size-off {
		return nil
	}
	return s.mem[off : off+uint64(n)]
}

// span finds the last region that starts at or below an address.
func (d *Device) span(addr uint64) *span {
	// They are sorted, since addresses only grow.
	i, found := slices.BinarySearchFunc(d.spans, addr, func(s span, addr uint64) int { return cmp.Compare(s.addr, addr) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	return &d.spans[i]
}

// extent is a contiguous part of what a memory region (MR) covers.
type extent struct {
	off uint64 // from the MR's first byte
	mem []byte
}

// translation leads from addresses in terms of a key to memory, as a device's
// page tables do. The device never looks at the list it was made from.
type translation struct {
	iova   uint64
	length uint64
	parts  []extent
}

func (t *translation) reset(iova uint64) {
	t.iova, t.length, t.parts = iova, 0, t.parts[:0]
}

func (t *translation) append(mem []byte) {
	t.parts = append(t.parts, extent{off: t.length, mem: mem})
	t.length += uint64(len(mem))
}

// contains reports whether the range lies in the translation. It does not
// overflow, whatever a peer sends.
func (t *translation) contains(addr uint64, n uint64) bool {
	off := addr - t.iova // wraps to a huge number below the start
	return off <= t.length && n <= t.length-off
}

// read copies from the memory at addr; the range has been checked.
func (t *translation) read(dst []byte, addr uint64) {
	for off := addr - t.iova; len(dst) > 0; {
		n := copy(dst, t.at(off))
		dst, off = dst[n:], off+uint64(n)
	}
}

// write copies to the memory at addr; the range has been checked.
func (t *translation) write(addr uint64, src []byte) {
	for off := addr - t.iova; len(src) > 0; {
		n := copy(t.at(off), src)
		src, off = src[n:], off+uint64(n)
	}
}

// at returns the memory from an offset to the end of its part.
func (t *translation) at(off uint64) []byte {
	lo, hi := 0, len(t.parts)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if t.parts[mid].off <= off {
			lo = mid
		} else {
			hi = mid
		}
	}
	return t.parts[lo].mem[off-t.parts[lo].off:]
}

// NewRegion allocates memory: mapped with mmap, or on the Go heap under the
// race detector. Its address is a simulated one.
func (d *Device) NewRegion(cfg transport.RegionConfig) (*transport.Region, error) {
	const op = "new region"
	if cfg.Size <= 0 || uint64(cfg.Size) > d.caps.MaxMRSize {
		return nil, d.errorf(op, transport.ErrInvalid, "size %d; from 1 to Caps.MaxMRSize = %d bytes are possible", cfg.Size, d.caps.MaxMRSize)
	}
	if err := d.usableFor(op, AllocRegion); err != nil {
		return nil, err
	}
	mem, unmap, err := allocate(cfg.Size, cfg.HugePages)
	if err != nil {
		return nil, d.errorf(op, err, "%d bytes, huge pages: %v", cfg.Size, cfg.HugePages)
	}
	align := uint64(pageSize)
	if cfg.HugePages {
		align = hugePageSize
	}
	r, err := d.enterRegion(op, mem, align, 0, cfg.Access, nil, unmap)
	if err != nil {
		_ = unmap() // the first error says more
	}
	return r, err
}

// WrapRegion makes a region of the memory at addr. As all regions here, it gets
// a simulated address, which keeps logs the same from run to run: make pieces
// with Region.Piece, not of addr.
func (d *Device) WrapRegion(addr uintptr, size int, access transport.Access, owner any) (*transport.Region, error) {
	const op = "wrap region"
	if addr == 0 || size <= 0 || uint64(size) > d.caps.MaxMRSize {
		return nil, d.errorf(op, transport.ErrInvalid, "%d bytes at %#x", size, addr)
	}
	if err := d.usableFor(op, AllocRegion); err != nil {
		return nil, err
	}
	// The offset in the page is kept: page lists depend on it.
	return d.enterRegion(op, bytesAt(addr, size), pageSize, uint64(addr)%pageSize, access, owner, func() error { return nil })
}

func (d *Device) enterRegion(op string, mem []byte, align, offset uint64, access transport.Access, owner any, unmap func() error) (*transport.Region, error) {
	if access&^(transport.LocalWrite|transport.BindWindow) != 0 {
		return nil, d.errorf(op, transport.ErrInvalid, "access %v: a region has no rights for a peer", access)
	}
	id, err := d.regionIDs.Take()
	if err != nil {
		return nil, d.errorf(op, err, "too many regions")
	}
	f := d.fabric
	f.mu.Lock()
	defer f.unlock()
	addr := d.newSpan(mem, align, offset)
	s := &d.spans[len(d.spans)-1]
	s.region = transport.NewRegion(id, addr, uint64(len(mem)), access, mem, owner, func() error {
		f.mu.Lock()
		d.dropSpan(addr)
		d.regions--
		if f.log != nil {
			f.tracef(d, "region %#x closed", uint32(id))
		}
		f.unlock()
		d.regionIDs.Give(id)
		return unmap()
	})
	d.regions++
	if f.log != nil {
		f.tracef(d, "region %#x new [%#x,+%d) %v", uint32(id), addr, len(mem), access)
	}
	return s.region, nil
}
