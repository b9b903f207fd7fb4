package rw

import (
	"context"

	"rdmarw/transport"
)

// overrunCQ has lost completions.
type overrunCQ struct{ transport.CQ }

func (overrunCQ) Poll([]transport.Completion) (int, error) { return 0, transport.ErrCQOverrun }

// LoseCompletions has a poller's completion queue overrun.
func LoseCompletions(p *Poller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cq = overrunCQ{p.cq}
}

// BreakWait has the next waits for completions fail.
func BreakWait(p *Poller, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cq = brokenCQ{p.cq, err}
}

type brokenCQ struct {
	transport.CQ
	err error
}

func (c brokenCQ) Wait(context.Context) error { return c.err }

// DeviceCQ is the device's own queue.
func DeviceCQ(cq transport.CQ) transport.CQ {
	if c, broken := cq.(brokenCQ); broken {
		return c.CQ
	}
	return cq
}
