package null

import (
	"context"
	"fmt"
	"math/bits"

	"rdmarw/transport"
)

// Device is a device of any capabilities.
type Device struct {
	caps    transport.Caps
	ids     transport.RegionIDs
	address uint64 // of the next region
	ring    *Ring
	events  chan transport.Event
	closed  bool
}

// ringSlots is 32 KiB: the send queue of some 500 small requests, or of a few large
// ones. It stays in the caches of a core, as a busy queue does.
const ringSlots = 512

// New makes a device. caps may be those of any other; but page lists are of pages only
// (Caps.FastReg.Gaps is not offered).
func New(caps transport.Caps) *Device {
	caps.FastReg.Gaps = false
	largest := 1 + max((caps.MaxSendSGE+sgesPerSlot-1)/sgesPerSlot, (caps.FastReg.MaxPages+pagesPerSlot-1)/pagesPerSlot)
	return &Device{
		caps: caps, address: 1 << 30, ring: NewRing(max(ringSlots, largest)),
		events: make(chan transport.Event),
	}
}

// Ring is the one send queue that all queue pairs of the device post to.
func (d *Device) Ring() *Ring { return d.ring }

// Caps describes the device.
func (d *Device) Caps() *transport.Caps { return &d.caps }

// NewPD makes a protection domain.
func (d *Device) NewPD() (transport.PD, error) { return &pd{dev: d}, nil }

// NewCQ makes a completion queue.
func (d *Device) NewCQ(entries int) (transport.CQ, error) {
	if entries < 1 {
		return nil, fmt.Errorf("new CQ of %d entries: %w", entries, transport.ErrInvalid)
	}
	return &cq{ring: make([]transport.Completion, 1<<bits.Len(uint(entries-1))), wake: make(chan struct{}, 1)}, nil
}

// NewRegion makes a region of addresses. There is no memory behind them.
func (d *Device) NewRegion(cfg transport.RegionConfig) (*transport.Region, error) {
	if cfg.Size < 1 {
		return nil, fmt.Errorf("new region of %d bytes: %w", cfg.Size, transport.ErrInvalid)
	}
	const page = 1 << 12
	at := d.address
	d.address += (uint64(cfg.Size)+page-1)/page*page + page
	return d.region(at, cfg.Size, cfg.Access, nil)
}

// WrapRegion makes a region of memory that exists. Nothing touches it.
func (d *Device) WrapRegion(addr uintptr, size int, access transport.Access, owner any) (*transport.Region, error) {
	return d.region(uint64(addr), size, access, owner)
}

func (d *Device) region(addr uint64, size int, access transport.Access, owner any) (*transport.Region, error) {
	id, err := d.ids.Take()
	if err != nil {
		return nil, err
	}
	free := func() error { d.ids.Give(id); return nil }
	return transport.NewRegion(id, addr, uint64(size), access, nil, owner, free), nil
}

// Resolve makes a connection to nobody, whatever the address.
func (d *Device) Resolve(_ context.Context, addr string) (transport.Conn, error) {
	return &conn{dev: d, addr: addr, done: make(chan struct{})}, nil
}

// Listen is refused: there is nobody who could call.
func (d *Device) Listen(string) (transport.Listener, error) {
	return nil, fmt.Errorf("listen: %w", transport.ErrUnsupported)
}

// Events delivers nothing.
func (d *Device) Events() <-chan transport.Event { return d.events }

// Close closes the channel of events.
func (d *Device) Close() error {
	if !d.closed {
		d.closed = true
		close(d.events)
	}
	return nil
}
