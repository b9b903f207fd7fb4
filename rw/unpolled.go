package rw

import (
	"fmt"
	"math"
	"time"

	"rdmarw/transport"
)

// Calls that wait for others to poll keep their word when nobody does: once their time is
// over they take in themselves what happened, now and then.

// ownPoll is how long such a call sleeps between two looks.
const ownPoll = 2 * time.Millisecond

// mayWait refuses calls that would wait for others to poll where there are none.
func (p *Poller) mayWait() error {
	switch {
	case p.mu.off:
		return ErrExclusive
	case p.stepped:
		return fmt.Errorf("one goroutine polls and steps the fabric (Fabric.RunUntil): %w", transport.ErrDeadlock)
	}
	return nil
}

// forever is longer than anybody waits.
const forever = time.Duration(math.MaxInt64)

// lookout is for one who waits: it finds out whether anybody polls meanwhile.
type lookout struct {
	p     *Poller
	polls uint64 // when it began
	vain  bool   // nobody did
}

func (p *Poller) lookOut() lookout {
	p.mu.Lock()
	defer p.mu.Unlock()
	return lookout{p: p, polls: p.polls}
}

// sawNobody reports that nobody has polled, and that nobody sleeps until there is
// something to poll for.
func (l *lookout) sawNobody() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return l.p.polls == l.polls && !l.p.waiting.Load()
}

// wait waits until over, for at most d, and reports whether it is. When half of that time
// has gone by without a sign of anybody who polls, it polls itself.
func (l *lookout) wait(over <-chan struct{}, d time.Duration) bool {
	half := time.NewTimer(d / 2)
	defer half.Stop()
	select {
	case <-over:
		return true
	case <-half.C:
	}
	if l.vain = l.sawNobody(); l.vain {
		return l.p.pollUntil(over, d/2)
	}
	half.Reset(d / 2)
	select {
	case <-over:
		return true
	case <-half.C:
		return false
	}
}

// verdict adds to an error, or to success, that nobody polled.
func (l *lookout) verdict(err error) error {
	switch {
	case !l.vain:
		return err
	case err == nil:
		return ErrNotPolled
	}
	return fmt.Errorf("%w: %w", err, ErrNotPolled)
}

// pollUntil polls until over, for at most d, and reports whether it is.
func (p *Poller) pollUntil(over <-chan struct{}, d time.Duration) bool {
	tick := time.NewTicker(ownPoll)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < d; {
		select {
		case <-over:
			return true
		case <-tick.C:
			p.pollForWaiters()
		}
	}
	return false
}

// pollForWaiters is Poll for one who has no use for contexts: those that a call waits for
// are given to it. All others, and what was left by [Poller.Call], stay for the next Poll,
// in their order: they are for the goroutine that polls.
func (p *Poller) pollForWaiters() {
	p.mu.Lock()
	p.advance() // if it fails, the next Poll tells
	if p.workers.queuedHere() {
		p.mu.Unlock()
		p.runJobsHere()
		p.mu.Lock()
	}
	awaited := p.takeAwaited()
	left := p.doneHead != nil || len(p.calls) > 0
	p.mu.Unlock()
	if left {
		p.wake()
	}
	for _, c := range awaited {
		f := c.waiter
		c.next, c.state, c.waiter = nil, idle, nil
		f(c)
	}
}

// takeAwaited takes the contexts that a call waits for out of those that are over.
func (p *Poller) takeAwaited() (awaited []*Context) {
	c := p.doneHead
	p.doneHead, p.doneTail = nil, nil
	for c != nil {
		next := c.next
		if c.waiter != nil {
			awaited = append(awaited, c)
		} else {
			p.pushDone(c)
		}
		c = next
	}
	return awaited
}
