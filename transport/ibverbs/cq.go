//go:build ibverbs && linux && cgo

package ibverbs

// #include <errno.h>
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"rdmarw/transport"
)

var _ transport.CQ = (*cq)(nil)

type cq struct {
	dev      *device
	owner    uint64
	channel  *C.struct_ibv_comp_channel // of this CQ alone, so all its events are this CQ's
	fd       *os.File                   // a duplicate of the channel's descriptor
	conn     syscall.RawConn
	take     func(uintptr) bool // takeEvents, made once
	children children
	overrun  atomic.Bool
	woken    atomic.Bool
	expired  atomic.Bool // the deadline of reads is past: the next Wait has to reset it
	watched  watched

	mu     sync.Mutex      // keeps Poll and Arm off a CQ that is being closed
	c      *C.struct_rd_cq // nil: closed
	arms   int             // events that may come: not taken since they were armed
	orders orders          // of queue pairs of devices that don't keep it

	unacked atomic.Uint32
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
	var err error
	if c.fd, err = pollable(int(c.channel.fd), d.name+" completions"); err == nil {
		c.conn, err = c.fd.SyscallConn()
	}
	if err != nil {
		C.ibv_destroy_cq(c.c.cq)
		C.ibv_destroy_comp_channel(c.channel)
		C.free(ptr(c.c))
		return nil, &transport.Error{Op: "new CQ", Device: d.name, WR: -1, Err: err}
	}
	c.take = c.takeEvents
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
	c.mu.Unlock()
	if n == 0 && c.dev.quirk.onCPUs {
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
	if c.arms > 0 {
		n := int(C.rd_cq_events(c.channel, 2))
		c.unacked.Add(uint32(n))
		c.arms = max(c.arms-n, 0)
	}
	c.arms = min(c.arms+1, 2) // arming again what is armed makes no second event; right in between it does
	if rc := C.rd_errno(C.ibv_req_notify_cq(c.c.cq, 0)); rc != 0 {
		return c.dev.fail("arm CQ", rc, transport.ErrNoMemory)
	}
	return nil
}

// takeEvents takes what is on the channel. Acknowledging takes a lock that polling
// providers take too, so it is done in batches; it must be done before the CQ is
// destroyed, which waits for it.
func (c *cq) takeEvents(uintptr) bool {
	c.mu.Lock()
	n := uint32(C.rd_cq_events(c.channel, C.int(max(c.arms, 1))))
	if n > 0 {
		c.arms = 0
	}
	c.mu.Unlock()
	if n == 0 {
		return false
	}
	if c.unacked.Add(n) >= 1<<10 {
		c.ack()
	}
	return true
}

func (c *cq) ack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.unacked.Swap(0); n > 0 && c.c != nil {
		C.ibv_ack_cq_events(c.c.cq, C.uint(n))
	}
}

// past is a deadline that makes the poller give up at once.
var past = time.Unix(1, 0)

func (c *cq) Wait(ctx context.Context) error {
	c.watch(ctx)
	// First the deadline: what comes before that is reset is seen by the next two lines, what
	// comes later finds the read below.
	if c.expired.Swap(false) {
		if err := c.fd.SetReadDeadline(time.Time{}); err != nil {
			c.watch(context.Background())
			return transport.ErrClosed
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.woken.Swap(false) {
		return nil
	}
	switch err := c.conn.Read(c.take); {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.expired.Store(true) // by whoever expired it while this was about to reset it
		c.woken.Store(false)
		return ctx.Err()
	default:
		c.watch(context.Background())
		return transport.ErrClosed
	}
}

// watched is the context whose end ends a Wait.
type watched struct {
	mu   sync.Mutex
	done <-chan struct{}
	stop func() bool // has it end no Wait any more
}

// watch has the end of a context end a Wait. The context is mostly that of the last time, so the
// registration is kept until there is another: it costs more than the rest of a Wait.
func (c *cq) watch(ctx context.Context) {
	w := &c.watched
	w.mu.Lock()
	defer w.mu.Unlock()
	if done := ctx.Done(); done != w.done {
		if w.stop != nil {
			w.stop()
			w.stop = nil
		}
		if w.done = done; done != nil {
			w.stop = context.AfterFunc(ctx, c.expire)
		}
	}
}

func (c *cq) Wake() {
	c.woken.Store(true)
	c.expire()
}

// expire ends the read of a Wait.
func (c *cq) expire() {
	c.expired.Store(true)
	c.fd.SetReadDeadline(past)
}

func (c *cq) Close() error {
	return c.children.close("CQ", c.dev.name, func() error {
		c.fd.Close() // ends a Wait, and waits until it is out of takeEvents
		c.watch(context.Background())
		c.ack()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.c != nil {
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
