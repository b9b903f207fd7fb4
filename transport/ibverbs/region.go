//go:build ibverbs && linux && cgo

package ibverbs

import (
	"fmt"
	"syscall"
	"unsafe"

	"rdmarw/transport"

	"golang.org/x/sys/unix"
)

// hugePage is the size that regions of huge pages are rounded up to: the default
// huge page of x86-64 and of arm64 with 4 KiB pages.
const hugePage = 2 << 20

func (d *device) NewRegion(cfg transport.RegionConfig) (*transport.Region, error) {
	if err := d.checkRegion("new region", uint64(max(cfg.Size, 0)), cfg.Access); err != nil {
		return nil, err
	}
	unit := unix.Getpagesize()
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if cfg.HugePages {
		unit = hugePage
		flags |= unix.MAP_HUGETLB | 21<<unix.MAP_HUGE_SHIFT
	}
	if cfg.Size > int(^uint(0)>>1)-unit {
		return nil, d.invalid("new region", "%d bytes", cfg.Size)
	}
	mem, err := unix.Mmap(-1, 0, (cfg.Size+unit-1)/unit*unit, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		errno, _ := err.(syscall.Errno)
		e := &transport.Error{Op: "new region", Device: d.name, WR: -1, Errno: errno, Err: transport.ErrNoMemory,
			Detail: fmt.Sprintf("mapping %d bytes", cfg.Size)}
		if cfg.HugePages {
			e.Detail += " of 2 MiB pages: see /proc/sys/vm/nr_hugepages"
		}
		return nil, e
	}
	r, err := d.addRegion(uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), mem[:cfg.Size:cfg.Size], cfg.Access, nil,
		func() error { return unix.Munmap(mem) })
	if err != nil {
		unix.Munmap(mem)
	}
	return r, err
}

func (d *device) WrapRegion(addr uintptr, size int, access transport.Access, owner any) (*transport.Region, error) {
	if err := d.checkRegion("wrap region", uint64(max(size, 0)), access); err != nil {
		return nil, err
	}
	if addr == 0 || addr+uintptr(size) < addr {
		return nil, d.invalid("wrap region", "%d bytes at %#x", size, addr)
	}
	return d.addRegion(uint64(addr), external(addr, size), access, owner, nil)
}

func (d *device) checkRegion(op string, size uint64, access transport.Access) error {
	if size == 0 || size > d.caps.MaxMRSize {
		return d.invalid(op, "size must be 1 to %d bytes", d.caps.MaxMRSize)
	}
	if access&^(transport.LocalWrite|transport.BindWindow) != 0 {
		return d.invalid(op, "rights %v: a region has local rights only; expose ranges of it by registrations", access)
	}
	return nil
}

func (d *device) addRegion(addr uint64, mem []byte, access transport.Access, owner any, free func() error) (*transport.Region, error) {
	if err := d.children.add(kindRegion); err != nil {
		return nil, err
	}
	id, err := d.ids.Take()
	if err != nil {
		d.children.drop(kindRegion)
		return nil, err
	}
	r := transport.NewRegion(id, addr, uint64(len(mem)), access, mem, owner, func() error {
		d.regionMu.Lock()
		delete(d.regions, id)
		d.regionMu.Unlock()
		d.ids.Give(id)
		d.children.drop(kindRegion)
		if free != nil {
			return free()
		}
		return nil
	})
	d.regionMu.Lock()
	d.regions[id] = r
	d.regionMu.Unlock()
	return r, nil
}

// owns reports whether a region is this device's: ids are per device.
func (d *device) owns(r *transport.Region) bool {
	d.regionMu.Lock()
	defer d.regionMu.Unlock()
	return r != nil && d.regions[r.ID()] == r
}
