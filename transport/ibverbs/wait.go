//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"sync/atomic"

	"rdmarw/transport"
)

// dozeTime is in milliseconds.
const dozeTime = 1

// dozing counts all CQs that doze.
var dozing atomic.Int32

// Wait dozes first: it sleeps in a system call of its own, as a thread in C would. The runtime's
// poller is slow beside that: it takes more system calls and another thread; and as all processors
// are idle then, the runtime's monitor falls asleep, and is woken by the next call into C to look
// around every 20 us for a while, on CPUs that a software device needs for its work. But a system
// call keeps a processor from other goroutines. So it is a short one, one processor at least is
// left to them, and the rest of the wait is the runtime's. To measure: bench perftest -program
// ib_read_lat, with -procs 1, where nothing dozes, and 2.
func (c *cq) Wait(ctx context.Context) error {
	c.waits.Lock()
	defer c.waits.Unlock()
	if c.closing.Load() {
		return transport.ErrClosed
	}
	c.watch(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	err := c.doze()
	if err == nil && !c.ended() {
		err = c.park()
	}
	c.events = false
	c.alarm.hush()
	switch {
	case c.closing.Load():
		return transport.ErrClosed
	case err != nil: // the kernel has no memory for it
		return &transport.Error{Op: "wait", Device: c.dev.name, WR: -1, Err: err}
	}
	return ctx.Err()
}

// openWait makes what Wait needs.
func (c *cq) openWait() error {
	if err := c.alarm.open(); err != nil {
		return err
	}
	c.lookFunc = c.look
	if err := c.parking.open(c.dev.name+" completions", int(c.channel.fd), c.alarm.fd); err != nil {
		c.alarm.close()
		return err
	}
	return nil
}

// ended tells whether a Wait is over.
func (c *cq) ended() bool { return c.events || c.alarm.rung.Load() }

// doze is over after dozeTime, or at once where it may not.
func (c *cq) doze() error {
	defer dozing.Add(-1)
	if int(dozing.Add(1)) >= runtime.GOMAXPROCS(0) {
		return nil
	}
	if err := c.parking.leave(); err != nil {
		return err
	}
	c.mu.Lock()
	due := max(c.arms, 1)
	c.mu.Unlock()
	n := int(C.rd_doze(c.channel, C.int(c.alarm.fd), C.int(due), dozeTime))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took(n)
	return nil
}

// park is over when ended says so.
func (c *cq) park() error { return c.parking.wait(c.lookFunc) }

// look takes what events there are, without waiting.
func (c *cq) look(uintptr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took(int(C.rd_cq_events(c.channel, C.int(max(c.arms, 1)))))
	return c.ended()
}

// took notes that all events were taken off the channel. Acknowledging takes a lock that polling
// providers take too, so it is done in batches; it must be done before the CQ is destroyed,
// which waits for it. mu is held.
func (c *cq) took(events int) {
	if events == 0 {
		return
	}
	c.events, c.arms = true, 0
	if c.unacked += events; c.unacked >= 1<<10 {
		c.ack()
	}
}

// ack acknowledges the events that were taken. mu is held.
func (c *cq) ack() {
	if c.unacked > 0 {
		C.ibv_ack_cq_events(c.c.cq, C.uint(c.unacked))
		c.unacked = 0
	}
}

// Wake works on a closed CQ, too: it does nothing.
func (c *cq) Wake() { c.alarm.ring() }

// watched is the context whose end ends a Wait.
type watched struct {
	done <-chan struct{}
	stop func() bool // has it end no Wait any more
}

// watch has the end of a context end a Wait. The context is mostly that of the last time, so the
// registration is kept until there is another: it costs more than the rest of a Wait. waits is held.
func (c *cq) watch(ctx context.Context) {
	w := &c.watched
	if done := ctx.Done(); done != w.done {
		if w.stop != nil {
			w.stop()
			w.stop = nil
		}
		if w.done = done; done != nil {
			w.stop = context.AfterFunc(ctx, c.Wake)
		}
	}
}
