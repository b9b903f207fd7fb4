package sim

import (
	"context"

	"rdmarw/transport"
)

// CQ is a simulated completion queue. See [transport.CQ].
type CQ struct {
	dev    *Device
	notify chan struct{} // holds one
	quit   chan struct{} // closed by Close

	// Guarded by fabric.mu.
	size    int
	entries ring[cqe]
	armed   bool
	overrun bool
	users   int
	closed  bool
}

var _ transport.CQ = (*CQ)(nil)

// cqe is a completion, and what polling it gives back.
type cqe struct {
	transport.Completion
	slot, gen uint32 // the queue pair
	retire    uint64 // send slots before this sequence number are free again
	srq       *SRQ   // of a receive from an SRQ
	receive   bool
}

// NewCQ makes a completion queue for exactly so many completions.
func (d *Device) NewCQ(entries int) (transport.CQ, error) {
	const op = "new CQ"
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if entries <= 0 || entries > d.caps.MaxCQE {
		return nil, d.errorf(op, transport.ErrInvalid, "%d entries; from 1 to Caps.MaxCQE = %d are possible", entries, d.caps.MaxCQE)
	}
	if err := d.allocatable(op, AllocCQ); err != nil {
		return nil, err
	}
	d.cqs++
	return &CQ{dev: d, size: entries, notify: make(chan struct{}, 1), quit: make(chan struct{})}, nil
}

// push enters a completion. One that finds no room is lost: the CQ is in error
// from then on, and so are its queue pairs.
func (c *CQ) push(e cqe) {
	f := c.dev.fabric
	if f.log != nil {
		f.tracef(c.dev, "cqe qp %d cookie %#x status %d flags %d len %d", e.QPN, e.Cookie, e.Status, e.Flags, e.ByteLen)
	}
	if c.overrun || c.entries.len() == c.size {
		c.overran()
		return
	}
	c.entries.push(e)
	c.dev.stats.Completions++
	if c.armed {
		c.armed = false
		c.signal()
	}
}

func (c *CQ) overran() {
	if c.overrun {
		return
	}
	c.overrun = true
	c.dev.event(transport.EventCQError, 0, "CQ overrun")
	for _, q := range c.dev.fabric.qps {
		if q != nil && (q.sendCQ == c || q.recvCQ == c) {
			q.fatal("CQ overrun")
		}
	}
	c.signal()
}

func (c *CQ) signal() {
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// Poll takes completions out. After an overrun it returns those that had
// arrived before, with the error.
func (c *CQ) Poll(dst []transport.Completion) (int, error) {
	f := c.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	if c.closed {
		return 0, c.dev.errorf("poll", transport.ErrClosed, "")
	}
	n := min(len(dst), c.entries.len())
	for i := range n {
		e := c.entries.front()
		dst[i] = e.Completion
		switch q := f.qps[e.slot]; {
		case e.srq != nil:
			e.srq.taken--
			e.srq = nil
		case q == nil || q.gen != e.gen:
		case e.receive:
			q.rq.taken--
		default:
			q.sq.head = e.retire
		}
		c.entries.head++
	}
	if c.overrun {
		return n, c.dev.errorf("poll", transport.ErrCQOverrun, "it has %d entries", c.size)
	}
	return n, nil
}

// Arm asks for an event upon the next completion.
func (c *CQ) Arm() error {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	if c.closed {
		return c.dev.errorf("arm", transport.ErrClosed, "")
	}
	c.armed = true
	return nil
}

// Wait parks until something has happened. In stepped mode it makes it happen.
func (c *CQ) Wait(ctx context.Context) error {
	_, err := await(ctx, c.dev.fabric, c.notify, c.quit)
	return err
}

// Wake makes a Wait return.
func (c *CQ) Wake() { c.signal() }

// Close closes the CQ, or fails with ErrBusy.
func (c *CQ) Close() error {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	if c.closed {
		return nil
	}
	if c.users > 0 {
		return c.dev.errorf("close CQ", transport.ErrBusy, "%d queues of queue pairs complete here", c.users)
	}
	c.closed = true
	close(c.quit)
	c.dev.cqs--
	return nil
}
