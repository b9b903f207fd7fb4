package null

import (
	"context"

	"rdmarw/transport"
)

// cq is a completion queue: a ring, a power of two long.
type cq struct {
	ring       []transport.Completion
	head, tail uint32 // taken, put
	overrun    bool
	wake       chan struct{}
}

func (c *cq) push(cookie uint64, status transport.Status) {
	if c.tail-c.head == uint32(len(c.ring)) {
		c.overrun = true
		return
	}
	c.ring[c.tail&uint32(len(c.ring)-1)] = transport.Completion{Cookie: cookie, QPN: 1, Status: status}
	c.tail++
}

func (c *cq) Poll(dst []transport.Completion) (int, error) {
	n := 0
	for n < len(dst) && c.head != c.tail {
		dst[n] = c.ring[c.head&uint32(len(c.ring)-1)]
		c.head++
		n++
	}
	if c.overrun {
		return n, transport.ErrCQOverrun
	}
	return n, nil
}

// Arm does nothing: what completes has completed when its post returns, so that it is
// found by the Poll between Arm and Wait.
func (c *cq) Arm() error { return nil }

func (c *cq) Wait(ctx context.Context) error {
	select {
	case <-c.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cq) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cq) Close() error { return nil }
