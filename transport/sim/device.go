package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rdmarw/transport"
)

// Device is a simulated device. See [transport.Device].
type Device struct {
	fabric  *Fabric
	name    string
	index   int // in the fabric
	profile Profile
	caps    transport.Caps
	iwarp   bool

	regionIDs transport.RegionIDs
	events    chan transport.Event

	// Guarded by fabric.mu.
	down      error // why the device can't be used any more
	dead      bool  // it does not even answer
	closed    bool
	nextAddr  uint64
	spans     []span
	mrs       keyTable[*mr]
	windows   keyTable[*window]
	regs      []registration // by slot of the id
	regGen    []uint32
	freeRegs  ring[uint32]
	regions   int
	pds       int
	cqs       int
	conns     map[*Conn]struct{}
	serial    uint64 // of the newest connection
	listeners int
	nextPort  int
	txFree    int64  // virtual time at which the send engine is free
	flushed   int64  // virtual time of the last flush,
	flushRan  uint64 // and the events that had run by then
	stats     Stats
}

var _ transport.Stepped = (*Device)(nil)

func newDevice(f *Fabric, p Profile, name string, index int) *Device {
	d := &Device{
		fabric:   f,
		name:     name,
		index:    index,
		profile:  p,
		caps:     p.Caps,
		iwarp:    p.Caps.Protocol == transport.IWARP,
		events:   make(chan transport.Event, 64),
		nextAddr: addressBase + uint64(index)<<addressShift,
		mrs:      newKeyTable[*mr](p.Caps.MaxMR),
		windows:  newKeyTable[*window](p.Caps.MaxWindows),
		conns:    make(map[*Conn]struct{}),
		nextPort: 49152, // the first dynamic port
	}
	d.caps.Device = name
	d.caps.MapBlocks[transport.SyncMR] = true
	d.caps.MapBlocks[transport.Window] = p.WindowsReachRegion
	d.caps.RemoteReadUnchecked = p.UncheckedReads
	return d
}

// Caps returns the profile's capabilities under the device's name.
func (d *Device) Caps() *transport.Caps { return &d.caps }

// Profile returns the device's profile.
func (d *Device) Profile() Profile { return d.profile }

// Stepped reports whether the fabric moves only when it is told to. See [transport.Stepped].
func (d *Device) Stepped() bool { return d.fabric.stepped }

// Events delivers what happens outside of any completion.
func (d *Device) Events() <-chan transport.Event { return d.events }

// Close closes the device, or fails with ErrBusy.
func (d *Device) Close() error {
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if d.closed {
		return nil
	}
	if d.pds+d.cqs+d.regions+len(d.conns)+d.listeners > 0 {
		return d.errorf("close device", transport.ErrBusy, "%d protection domains, %d CQs, %d regions, %d connections and %d listeners are open",
			d.pds, d.cqs, d.regions, len(d.conns), d.listeners)
	}
	d.closed = true
	if d.down == nil {
		d.down = transport.ErrClosed
	}
	close(d.events)
	return nil
}

// Kill is sudden death: the device stops in the middle of whatever it does, and
// nobody is told. Its own requests never complete, and what peers send it is
// lost, until their retries are exceeded.
func (d *Device) Kill() {
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	d.die("killed", transport.ErrDeviceRemoved)
}

// crash is what the operating system does when its driver fails.
func (d *Device) crash(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	d.fabric.report(d, "the machine has crashed: %s", what)
	d.die("crashed: "+what, transport.ErrDeviceRemoved)
}

func (d *Device) die(why string, err error) {
	if d.down != nil {
		return
	}
	d.down, d.dead = err, true
	d.event(transport.EventOther, 0, why)
	if d.fabric.log != nil {
		d.fabric.tracef(d, "device dead: %s", why)
	}
	for _, q := range d.fabric.qps {
		if q != nil && q.dev == d {
			q.dropInbound()
		}
	}
}

// Remove is orderly removal (hot unplug): all connections end on both sides,
// everything outstanding flushes, and the device can only be closed.
func (d *Device) Remove() {
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if d.down != nil {
		return
	}
	d.down = transport.ErrDeviceRemoved
	d.event(transport.EventDeviceRemoved, 0, "removed")
	if d.fabric.log != nil {
		d.fabric.tracef(d, "device removed")
	}
	inOrder := slices.SortedFunc(maps.Keys(d.conns), func(a, b *Conn) int { return cmp.Compare(a.serial, b.serial) })
	for _, c := range inOrder {
		c.end(transport.ErrDeviceRemoved, true)
	}
}

// event delivers an asynchronous event, or drops it.
func (d *Device) event(kind transport.EventKind, qpn uint32, detail string) {
	if d.closed {
		return
	}
	select {
	case d.events <- transport.Event{Kind: kind, QPN: qpn, Detail: detail}:
	default:
	}
}

// usable tells whether new objects can be made.
func (d *Device) usable(op string) error {
	switch {
	case d.fabric.closed:
		return d.errorf(op, transport.ErrClosed, "the fabric is closed")
	case d.down != nil:
		return d.errorf(op, d.down, "")
	}
	return nil
}

// usableFor locks, and asks the fault plan as well.
func (d *Device) usableFor(op string, what Allocation) error {
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	return d.allocatable(op, what)
}

func (d *Device) allocatable(op string, what Allocation) error {
	if err := d.usable(op); err != nil {
		return err
	}
	if fault := d.fabric.faults.Allocate; fault != nil {
		if err := fault(d, what); err != nil {
			return d.errorf(op, err, "by the fault plan")
		}
	}
	return nil
}

func (d *Device) errorf(op string, err error, format string, args ...any) error {
	return &transport.Error{Op: op, Device: d.name, WR: -1, Err: err, Detail: fmt.Sprintf(format, args...)}
}
