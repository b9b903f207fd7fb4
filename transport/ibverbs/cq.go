//go:build ibverbs && linux && cgo

package ibverbs

// #include <errno.h>
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"rdmarw/transport"
)

var _ transport.CQ = (*cq)(nil)

type cq struct {
	dev      *device
	owner    uint64
	channel  *C.struct_ibv_comp_channel // of this CQ alone, so all its events are this CQ's
	children children
	overrun  atomic.Bool
	alarm    alarm
	parking  parking
	waits    sync.Mutex // held by who waits for an event
	closing  atomic.Bool
	watched  watched
	lookFunc func(uintptr) bool // look, made once
	events   bool               // were found by the Wait that is under way

	mu      sync.Mutex      // keeps Poll and Arm off a CQ that is being closed
	c       *C.struct_rd_cq // nil: closed
	vain    int             // polls in a row that found nothing, since it was armed
	arms    int             // events that may come: not taken since they were armed
	unacked int             // events that were taken
	orders  orders          // of queue pairs of devices that don't keep it
}

func (d *device) NewCQ(entries int) (transport.CQ, error) {
	if entries < 1 || entries > d.caps.MaxCQE {
		return nil, d.invalid("new CQ", "%d entries, may be 1 to %d", entries, d.caps.MaxCQE)
	}
	if err := d.children.add(kindCQ); err != nil {
		return nil, err
	}
	c, err := d.newCQ(entries)
	if err != nil {
		d.children.drop(kindCQ)
		return nil, err
	}
	return c, nil
}

func (d *device) newCQ(entries int) (*cq, error) {
	c := &cq{dev: d, owner: d.number()}
	rc := C.int(C.ENOMEM)
	if c.c = zeroed[C.struct_rd_cq](1); c.c != nil {
		c.c.inv_flags = C.IBV_WC_WITH_INV | C.uint32_t(d.quirk.invFlag)
		rc = C.rd_create_cq(d.ctx, C.int(entries), C.uint64_t(c.owner), &c.channel, &c.c.cq)
	}
	if rc != 0 {
		C.free(ptr(c.c))
		return nil, d.fail("new CQ", rc, transport.ErrNoMemory)
	}
	if err := c.openWait(); err != nil {
		C.ibv_destroy_cq(c.c.cq)
		C.ibv_destroy_comp_channel(c.channel)
		C.free(ptr(c.c))
		return nil, &transport.Error{Op: "new CQ", Device: d.name, WR: -1, Err: err}
	}
	inUse.cqs.Add(1)
	d.mu.Lock()
	d.cqs[c.owner] = c
	d.mu.Unlock()
	return c, nil
}

func (c *cq) Poll(dst []transport.Completion) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	if c.c == nil {
		c.mu.Unlock()
		return 0, transport.ErrClosed
	}
	var n int
	if c.orders.byQPN == nil {
		n = c.pollDevice(dst)
	} else {
		n = c.orders.poll(dst, c.pollDevice)
	}
	if c.vain++; n != 0 {
		c.vain = 0
	}
	again := c.vain > 1
	c.mu.Unlock()
	if again && c.dev.quirk.onCPUs { // who polled once may have something else to do, or be about to sleep
		syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	}
	if n < 0 || c.overrun.Load() {
		return max(n, 0), &transport.Error{Op: "poll", Device: c.dev.name, WR: -1, Err: transport.ErrCQOverrun}
	}
	return n, nil
}

// pollDevice is a call into C. mu is held.
func (c *cq) pollDevice(dst []transport.Completion) int {
	C.rd_poll(handle(c.c), (*C.struct_rd_completion)(unsafe.Pointer(unsafe.SliceData(dst))), C.uint32_t(min(len(dst), 1<<20)))
	return int(c.c.polled)
}

// keepOrder has the completions of a queue pair told in order.
func (c *cq) keepOrder(qpn uint32, o *order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.orders.byQPN == nil {
		c.orders.byQPN = make(map[uint32]*order)
		c.orders.buf = make([]transport.Completion, 128)
	}
	c.orders.byQPN[qpn] = o
}

func (c *cq) dropOrder(qpn uint32, o *order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.orders.byQPN[qpn] == o { // the number may have a new owner already
		delete(c.orders.byQPN, qpn)
	}
}

func (c *cq) Arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.c == nil {
		return transport.ErrClosed
	}
	c.vain = 0
	rc := C.rd_arm(handle(c.c), c.channel, C.int(c.arms))
	n := int(c.c.events)
	c.unacked += n
	c.arms = min(max(c.arms-n, 0)+1, 2) // arming again what is armed makes no second event; right in between it does
	if rc != 0 {
		return c.dev.fail("arm CQ", rc, transport.ErrNoMemory)
	}
	return nil
}

func (c *cq) Close() error {
	return c.children.close("CQ", c.dev.name, func() error {
		c.closing.Store(true)
		c.Wake()
		c.waits.Lock() // for as long as a Wait uses the channel
		defer c.waits.Unlock()
		c.watch(context.Background())
		c.parking.close()
		c.alarm.close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.c != nil {
			c.ack()
			if err := c.dev.destroyed("close CQ", C.ibv_destroy_cq(c.c.cq)); err != nil {
				return err
			}
			C.free(ptr(c.c))
			c.c = nil
			c.dev.mu.Lock()
			delete(c.dev.cqs, c.owner)
			c.dev.mu.Unlock()
			inUse.cqs.Add(-1)
		}
		if err := c.dev.destroyed("close CQ: its channel", C.ibv_destroy_comp_channel(c.channel)); err != nil {
			return err
		}
		c.dev.children.drop(kindCQ)
		return nil
	})
}
