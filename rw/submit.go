package rw

import (
	"errors"
	"fmt"
	"slices"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// Submit hands over prepared contexts as one chain: posted in order by one
// doorbell as soon as there are credits for all of them, and completed by one
// signaled request. A SEND in a chain can't overtake the WRITEs before it.
//
// It never blocks. On error nothing was taken and the contexts are still
// prepared. Errors match [ErrNotPrepared] ([ErrInUse], too, for a context that is under
// way), [ErrTooLarge] if the chain can never
// fit, [ErrChain] if something is chained behind a context that isn't over when
// its requests are (a READ that is registered by calls or staged, such a
// revocation), or what the endpoint failed of. Revocations are taken even then.
//
// Nothing but revocations goes together on any device: what can't be one chain is carried
// out in parts, and each ends by itself. A READ, which some devices register by calls, is to be
// submitted alone by whoever wants to run on all of them.
func (ep *Endpoint) Submit(contexts ...*Context) error { return ep.submitFor(nil, contexts) }

// submitFor is Submit with a function to call for each context in place of its
// OnDone.
func (ep *Endpoint) submitFor(waiter func(*Context), contexts []*Context) error {
	p := ep.poller
	var err error
	p.mu.Lock()
	if len(contexts) != 1 || !ep.submitAtOnce(contexts[0], waiter) {
		err = ep.submit(waiter, contexts)
	}
	p.mu.Unlock()
	if err == nil && p.waiting.Load() {
		p.cq.Wake() // what completed locally is to be seen
	}
	return err
}

// submitAtOnce is submit for what is most common: one context, direct or with fast
// registrations, when there is all that it takes and nobody waits. It does nothing, and
// returns false, otherwise.
func (ep *Endpoint) submitAtOnce(c *Context, waiter func(*Context)) bool {
	if c == nil || c.ep != ep || c.state != prepared || ep.state != ready || !ep.queue.empty() || !c.plain && !c.registersByWR() {
		return false
	}
	wrs, reads := c.plan.Cost.WRs, c.plan.Cost.Reads
	if c.plan.lazy {
		wrs += c.plan.Cost.Registrations // each may have to be invalidated first
	}
	if wrs > ep.sqFree || reads > ep.readsFree {
		return false
	}
	ch, err := ep.poller.slots.take(ep, sendChain)
	if err != nil {
		return false
	}
	if !c.plain && !ep.takeRegistrations(c) {
		ep.poller.slots.give(ch)
		return false
	}
	ch.head, ch.tail = c, c
	ch.wrs, ch.posted, ch.reads = wrs, wrs, reads
	c.next, c.waiter = nil, waiter
	ep.sqFree -= wrs
	ep.readsFree -= reads
	if c.plain {
		c.first, c.end = 0, wrs
		ep.send(ch, c.plan.wrs, c.plan.sges)
	} else {
		ep.post(ch)
	}
	return true
}

// takeRegistrations takes the fast registrations of a context, if there are enough.
func (ep *Endpoint) takeRegistrations(c *Context) bool {
	n := c.plan.Cost.Registrations
	if cap(c.mrs) < n {
		c.mrs = slices.Grow(c.mrs[:0], n)
	}
	c.mrs = c.mrs[:n]
	if ep.pool.TakeFrom(ep.reserved[transport.FastMR], transport.FastMR, c.mrs, ep.owner) != nil {
		c.mrs = c.mrs[:0]
		return false
	}
	return true
}

func (ep *Endpoint) submit(waiter func(*Context), contexts []*Context) error {
	var need needs
	if err := ep.checkChain(contexts, &need); err != nil {
		return err
	}
	if ep.revokesApart(contexts) {
		return ep.submitApart(waiter, contexts)
	}
	ch, err := ep.poller.slots.take(ep, sendChain)
	if err != nil {
		return err
	}
	ep.enqueue(ch, need, waiter, contexts)
	return nil
}

// revokesApart reports whether contexts are revocations that need no order, of which one at
// least isn't over when its requests are, and so can't be in a chain.
func (ep *Endpoint) revokesApart(contexts []*Context) bool {
	return len(contexts) > 1 && onlyRevokes(contexts) && (ep.state >= failed || slices.ContainsFunc(contexts, (*Context).finishesLater))
}

func onlyRevokes(contexts []*Context) bool {
	return !slices.ContainsFunc(contexts, func(c *Context) bool { return c == nil || c.op != Revoke })
}

// submitApart submits contexts as a chain each: all or none.
func (ep *Endpoint) submitApart(waiter func(*Context), contexts []*Context) error {
	slots := &ep.poller.slots
	chains := make([]*chain, len(contexts))
	for i := range chains {
		ch, err := slots.take(ep, sendChain)
		if err != nil {
			for _, ch := range chains[:i] {
				slots.give(ch)
			}
			return err
		}
		chains[i] = ch
	}
	for i, ch := range chains {
		var need needs
		need.add(contexts[i], true)
		ep.enqueue(ch, need, waiter, contexts[i:i+1])
	}
	return nil
}

// enqueue makes a chain of contexts, and posts it as soon as there is what it takes.
func (ep *Endpoint) enqueue(ch *chain, need needs, waiter func(*Context), contexts []*Context) {
	ch.wrs, ch.reads = need.wrs, need.reads
	for _, c := range contexts {
		c.state, c.next, c.waiter = queued, nil, waiter
		if x := c.exposure; c.op == Revoke && x.Grant.state == prepared {
			x.Grant.state = idle // what is revoked can't be granted any more
		}
		if ch.head == nil {
			ch.head = c
		} else {
			ch.tail.next = c
		}
		ch.tail = c
	}
	if c := contexts[0]; c.op == Revoke && c.exposure.grantUnderWay() && (!c.exposure.invalidatesByWR() || ep.state >= failed) {
		c.exposure.heldRevoke = ch
		return
	}
	if need.wrs == 0 && need.fast+need.sync == 0 || ep.state >= failed {
		ep.complete(ch) // nothing to post
		return
	}
	ep.queue.push(ch)
	ep.pump()
}

// needs is what a chain takes at most.
type needs struct{ wrs, reads, fast, sync int }

func (n *needs) add(c *Context, alone bool) {
	cost := &c.plan.Cost
	n.reads += cost.Reads
	switch {
	case alone && c.plan.feeds(&c.ep.limits):
		n.wrs += min(cost.WRs, c.ep.limits.SendWR)
	case c.plan.lazy:
		n.wrs += cost.WRs + cost.Registrations // each may have to be invalidated first
	default:
		n.wrs += cost.WRs
	}
	if c.moves() {
		switch c.plan.Strategy {
		case FastReg:
			n.fast += cost.Registrations
		case SyncReg:
			n.sync += cost.Registrations
		}
	}
}

// checkChain refuses what can't be a chain, and what could never be posted. It adds
// up what the chain needs.
func (ep *Endpoint) checkChain(contexts []*Context, n *needs) error {
	if len(contexts) == 0 {
		return fmt.Errorf("no context is given: %w", ErrNotPrepared)
	}
	revokes := onlyRevokes(contexts)
	for i, c := range contexts {
		if c == nil || c.ep != ep || c.op == Recv || c.state != prepared || slices.Contains(contexts[:i], c) {
			return notPrepared(c, c != nil && c.ep == ep, false)
		}
		if c.op == Grant && (c.exposure.Revoke.state != prepared || slices.Contains(contexts[:i], &c.exposure.Revoke)) {
			return fmt.Errorf("grant behind its own revocation: %w", ErrNotPrepared)
		}
		if len(contexts) > 1 && !revokes && c.finishesLater() {
			return fmt.Errorf("%v by %v is not over when its requests are, so it needs a chain of its own: %w", c.op, c.plan.Strategy, ErrChain)
		}
		n.add(c, len(contexts) == 1)
	}
	if ep.revokesApart(contexts) {
		return nil // each by itself, and each of them fits: Expose saw to it
	}
	lim := &ep.limits
	switch {
	case ep.state >= failed && contexts[0].op != Revoke:
		return ep.refusal("not posted")
	case n.wrs > lim.SendWR:
		return fmt.Errorf("chain of %d contexts takes %d work requests, the send queue holds %d: %w", len(contexts), n.wrs, lim.SendWR, ErrTooLarge)
	case n.fast > lim.FastMRs || n.sync > lim.SyncMRs:
		return fmt.Errorf("chain of %d contexts takes %d fast and %d synchronous registrations, the pool has %d and %d: %w",
			len(contexts), n.fast, n.sync, lim.FastMRs, lim.SyncMRs, ErrTooLarge)
	case ep.state == ready && n.reads > 0 && ep.depth == 0:
		return refuse("READ", transport.ErrReadDepth, "")
	}
	return nil
}

// pump posts from the head of the queue for as long as there are credits.
func (ep *Endpoint) pump() {
	for ep.state == ready && !ep.queue.empty() {
		ch := ep.queue.head
		reads := min(ch.reads, ep.depth)
		if ch.reads > 0 && ep.depth == 0 {
			ch.cause = refuse("READ", transport.ErrReadDepth, "")
			ep.complete(ep.queue.pop())
			continue
		}
		if ch.wrs > ep.sqFree || reads > ep.readsFree {
			return
		}
		switch ep.takeMemory(ch) {
		case takeWait:
			return
		case takeAgain:
			continue
		}
		ep.queue.pop()
		ch.posted, ch.reads = ch.wrs, reads
		ep.sqFree -= ch.wrs
		ep.readsFree -= reads
		if ch.tail.registersFirst() { // alone in its chain
			ep.startRegister(ch)
			continue
		}
		ep.post(ch)
	}
}

// taken is the outcome of taking what a chain needs beside queue slots.
type taken uint8

const (
	takeDone  taken = iota
	takeWait        // there isn't enough; the endpoint is pumped when there may be
	takeAgain       // the chain was planned again, or ended
)

// takeMemory takes the registrations and staging slots that a chain needs, or
// nothing.
func (ep *Endpoint) takeMemory(ch *chain) taken {
	if c := ch.head; c.plan.Cost.Slots > 0 { // alone in its chain
		return ep.takeSlots(ch, c)
	}
	kind, n := transport.FastMR, 0
	var optional *Context
	for c := ch.head; c != nil; c = c.next {
		if !c.moves() || c.plan.Cost.Registrations == 0 {
			continue
		}
		n += c.plan.Cost.Registrations
		if c.plan.optional {
			optional = c // the last one does without, if there isn't enough for all
		}
		if c.plan.Strategy == SyncReg { // alone in its chain, too
			kind = transport.SyncMR
		}
	}
	if n == 0 {
		return takeDone
	}
	// All in one step: what is taken and given back again would wake those who wait,
	// this endpoint among them.
	ep.mrs = slices.Grow(ep.mrs[:0], n)[:n]
	err := ep.pool.TakeFrom(ep.reserved[kind], kind, ep.mrs, ep.owner)
	if errors.Is(err, mrpool.ErrEmpty) && optional == nil {
		ep.waitFor(&ep.waitsOnPool, ep.pool.AfterPut)
		err = ep.pool.TakeFrom(ep.reserved[kind], kind, ep.mrs, ep.owner) // what came back before we were waiting
	}
	switch {
	case err == nil:
		mrs := ep.mrs
		for c := ch.head; c != nil; c = c.next {
			if k := c.plan.Cost.Registrations; c.moves() && k > 0 {
				c.mrs = append(c.mrs[:0], mrs[:k]...)
				mrs = mrs[k:]
			}
		}
		clear(ep.mrs)
		return takeDone
	case !errors.Is(err, mrpool.ErrEmpty): // the device can't make what the pool may have
		ch.cause = err
		ep.complete(ep.queue.pop())
		return takeAgain
	case optional != nil:
		ep.planAgain(ch, optional)
		return takeAgain
	}
	switch s, size := ep.pool.Stats(kind), ep.pool.SizeFor(ep.reserved[kind], kind); {
	case n > size: // the others are taken for good, or set aside for others
		ch.cause = fmt.Errorf("chain takes %d registrations by %v, the pool has %d left for it: %w", n, kind, size, ErrTooLarge)
	case s.Broken > 0 && ep.unmendable == nil:
		ep.repair()
		return takeWait
	case s.Broken > 0 && s.Out == s.Kept: // nothing will come back
		ch.cause = ep.unmendable
	default:
		return takeWait
	}
	ep.complete(ep.queue.pop())
	return takeAgain
}

// takeSlots takes the staging slots of a READ, or nothing.
func (ep *Endpoint) takeSlots(ch *chain, c *Context) taken {
	n := c.plan.Cost.Slots
	c.staged = slices.Grow(c.staged[:0], n)[:n]
	err := ep.staging.take(c.staged)
	if errors.Is(err, mrpool.ErrEmpty) {
		ep.waitFor(&ep.waitsOnStaging, ep.staging.afterPut)
		err = ep.staging.take(c.staged) // what came back before we were waiting
	}
	if err == nil {
		c.stage()
		return takeDone
	}
	c.staged = c.staged[:0]
	if errors.Is(err, mrpool.ErrEmpty) {
		return takeWait
	}
	ch.cause = err
	ep.complete(ep.queue.pop())
	return takeAgain
}

// planAgain plans a transfer without the registrations that the pool doesn't
// have: where they are an optimisation, an empty pool is no reason to wait
// (rw.c: 00da250c21b0).
func (ep *Endpoint) planAgain(ch *chain, c *Context) {
	regions := ep.regions.View()
	err := c.plan.make(&c.transfer, &ep.direct, regions)
	c.plan.Fallback = true
	n := ch.needs()
	if err == nil && n.wrs > ep.limits.SendWR {
		// Direct, the chain doesn't fit any more: it waits for the registration.
		err = c.plan.make(&c.transfer, &ep.limits, regions)
		c.plan.optional = false
		n = ch.needs()
	}
	if err != nil {
		ch.cause = err // a region was taken away since
		ep.complete(ep.queue.pop())
		return
	}
	ch.wrs, ch.reads = n.wrs, n.reads
}

func (ch *chain) needs() (n needs) {
	for c := ch.head; c != nil; c = c.next {
		n.add(c, ch.head == ch.tail)
	}
	return n
}

// waitFor has the endpoint pumped when something comes back, whoever had it.
func (ep *Endpoint) waitFor(waits *bool, after func(func())) {
	if *waits {
		return
	}
	*waits = true
	after(func() { ep.poller.poolRefilled(ep) })
}

// startRegister has a worker register the memory of the chain's only context.
func (ep *Endpoint) startRegister(ch *chain) {
	c := ch.head
	c.state = registering
	ep.pending++
	var err error
	ep.poller.work(func() { err = c.register() }, func() {
		ep.pending--
		switch {
		case err != nil:
			ch.cause = err
			ep.complete(ch)
			ep.pump() // with its credits
		case ep.state >= failed:
			ep.complete(ch)
		default:
			ep.post(ch)
		}
		ep.destroyIfDrained()
	})
}

// Cancel takes a context back that was not posted yet, with the rest of its
// chain: they are done with [ErrCanceled]. It returns false if the context is
// beyond that, in which case it ends when the device is done with it.
func (ep *Endpoint) Cancel(c *Context) bool {
	p := ep.poller
	p.mu.Lock()
	defer p.wake()
	defer p.mu.Unlock()
	if c.ep != ep || c.state != queued {
		return false
	}
	found := false
	var keep list
	for !ep.queue.empty() {
		ch := ep.queue.pop()
		mine := false
		for x := ch.head; x != nil; x = x.next {
			mine = mine || x == c
		}
		if mine {
			found = true
			ch.cause = ErrCanceled
			ep.complete(ch)
			continue
		}
		keep.push(ch)
	}
	ep.queue = keep
	ep.pump()
	return found
}
