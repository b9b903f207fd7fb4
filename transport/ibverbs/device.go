//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"syscall"

	"rdmarw/transport"
)

var _ transport.Device = (*device)(nil)

type device struct {
	*adapter
	info     Info
	firmware string
	quirk    quirk
	caps     transport.Caps
	// batchOffered: the provider has batch posting for all that is posted. It is used
	// if Caps.AtomicPost says so.
	batchOffered bool
	// odpOffered: on-demand paging is; onDemand: and it is asked for.
	odpOffered, onDemand bool

	cm       *cm
	children children
	ids      transport.RegionIDs

	regionMu sync.Mutex
	regions  map[transport.RegionID]*transport.Region

	eventMu sync.Mutex
	events  chan transport.Event // nil once closed
	eventCh <-chan transport.Event
}

// Open opens an RDMA device by its own name ("mlx5_0"), the name of a network
// device ("eth0"), or a local IP address. The caller must Close it. Errors match
// transport.ErrNoDevice when there is no such device, and tell which there are.
//
// Opening a device again gives an independent one: regions, protection domains
// and queues of one are unknown to the other.
func Open(name string, opts ...Option) (transport.Device, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	infos, err := Devices()
	if err != nil {
		return nil, err
	}
	info, err := find(name, infos)
	if err != nil {
		return nil, err
	}
	a, err := openAdapter(info.Name)
	if err != nil {
		return nil, err
	}
	d := &device{
		adapter: a,
		info:    info,
		quirk:   quirkOf(info.driver, info.Protocol),
		regions: make(map[transport.RegionID]*transport.Region),
		events:  make(chan transport.Event, 64),
	}
	d.eventCh = d.events
	if d.quirk.keyTaken {
		a.coverKey()
	}
	if err := d.queryCaps(); err != nil {
		a.put()
		return nil, err
	}
	if d.onDemand = o.onDemand; d.onDemand && !d.odpOffered {
		a.put()
		return nil, &transport.Error{Op: "open", Device: d.name, WR: -1, Err: transport.ErrUnsupported, Detail: "no on-demand paging for reliable connections"}
	}
	if p, ok := cachedProbe(d.name); ok {
		p.merge(&d.caps, &d.quirk, d.batchOffered)
	}
	for _, edit := range o.caps {
		edit(&d.caps)
	}
	if d.cm, err = newCM(d); err != nil {
		a.put()
		return nil, err
	}
	a.mu.Lock()
	a.devices[d] = struct{}{}
	a.mu.Unlock()
	return d, nil
}

func (d *device) queryCaps() error {
	var r C.struct_rd_caps
	if rc := C.rd_query_caps(d.ctx, &r); rc != 0 {
		return d.fail("query device", rc, transport.ErrNoMemory)
	}
	d.firmware = C.GoString(&r.firmware[0])
	d.odpOffered = r.on_demand != 0
	rep := reported{
		maxSGE: int(r.max_sge), maxSGERead: int(r.max_sge_rd), maxQPWR: int(r.max_qp_wr),
		maxCQE: int(r.max_cqe), maxSRQWR: int(r.max_srq_wr), maxMR: int(r.max_mr), maxWindows: int(r.max_mw),
		respRes: int(r.max_rd_atom), initDepth: int(r.max_init_rd_atom),
		windows: transport.WindowKind(r.windows),
		atomics: r.atomics != 0,
		maxMsg:  uint64(r.max_msg), maxMRSize: uint64(r.max_mr_size),
	}
	switch {
	case r.iwarp != 0:
		rep.protocol = transport.IWARP
	case r.ethernet != 0:
		rep.protocol = transport.RoCE
	}
	if d.quirk.maxInline == 0 {
		rep.inline = int(C.rd_probe_inline(d.ctx))
	}
	d.caps = d.quirk.caps(d.name, rep)
	d.batchOffered = C.rd_probe_batch(d.ctx, C.uint32_t(sendOps(&d.caps))) != 0
	d.caps.AtomicPost = d.batchOffered && !d.quirk.noBatch
	return nil
}

// fail makes an error of an errno.
func (d *device) fail(op string, rc C.int, enomem error) error {
	errno := syscall.Errno(rc)
	return &transport.Error{Op: op, Device: d.name, WR: -1, Errno: errno, Err: errnoSentinel(errno, enomem)}
}

// destroyed makes an error of the result of destroying something. The kernel
// destroys a removed device's objects itself, and answers EIO from then on.
func (d *device) destroyed(op string, rc C.int) error {
	if rc = C.rd_errno(rc); rc == 0 || rc == C.EIO && d.isRemoved() {
		return nil
	}
	return d.fail(op, rc, transport.ErrNoMemory)
}

// destroyID frees an id of the CM.
func (d *device) destroyID(op string, id *C.struct_rdma_cm_id) error {
	err := d.destroyed(op, C.rd_destroy_id(id))
	if err == nil {
		inUse.ids.Add(-1)
	}
	return err
}

// invalid makes an error of a bad argument.
func (d *device) invalid(op, format string, args ...any) error {
	return &transport.Error{Op: op, Device: d.name, WR: -1, Err: transport.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

func (d *device) Caps() *transport.Caps          { return &d.caps }
func (d *device) Events() <-chan transport.Event { return d.eventCh }

func (d *device) event(e transport.Event) {
	d.eventMu.Lock()
	defer d.eventMu.Unlock()
	if d.events == nil {
		return
	}
	select {
	case d.events <- e:
	default:
	}
}

func (d *device) Close() error {
	return d.children.close("device", d.name, func() error {
		d.mu.Lock()
		delete(d.devices, d)
		d.mu.Unlock()
		d.cm.close()
		d.adapter.put()
		d.eventMu.Lock()
		close(d.events)
		d.events = nil
		d.eventMu.Unlock()
		return nil
	})
}

// String describes the device and its capabilities in a few lines.
func (d *device) String() string {
	c := &d.caps
	var b strings.Builder
	fmt.Fprintf(&b, "%v, firmware %q\n", d.info, d.firmware)
	fmt.Fprintf(&b, "  SGEs:     send %d, receive %d, READ %d\n", c.MaxSendSGE, c.MaxRecvSGE, c.MaxSGERead)
	fmt.Fprintf(&b, "  queues:   send %d, receive %d, shared receive %d, CQ %d\n", c.MaxSendWR, c.MaxRecvWR, c.MaxSRQWR, c.MaxCQE)
	fmt.Fprintf(&b, "  sizes:    inline %d, message %d, registration %d\n", c.MaxInline, c.MaxMsg, c.MaxMRSize)
	fmt.Fprintf(&b, "  depths:   initiator %d, responder %d\n", c.InitiatorDepth, c.ResponderResources)
	fmt.Fprintf(&b, "  keys:     %d MRs, %d windows of type %v; invalidation of MR/window: own %v/%v, peer's %v/%v, reported %v\n",
		c.MaxMR, c.MaxWindows, c.Windows,
		c.LocalInv[transport.SyncMR], c.LocalInv[transport.Window], c.RemoteInv[transport.SyncMR], c.RemoteInv[transport.Window],
		c.CompletionReportsInv)
	fmt.Fprintf(&b, "  posts:    SEND_WITH_INV %v, immediate data %v, atomics %v, whole chains or nothing %v; READ sink needs remote write: %v\n",
		c.SendWithInv, c.WriteWithImm, c.Atomics, c.AtomicPost, c.ReadSinkNeedsRemoteWrite)
	fmt.Fprintf(&b, "  memory:   on-demand paging offered: %v; no lkey for all memory: user-space verbs has none", d.odpOffered)
	return b.String()
}
