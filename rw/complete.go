package rw

import (
	"fmt"

	"rdmarw/transport"
)

// dispatch handles one completion.
func (p *Poller) dispatch(comp *transport.Completion) {
	ch, position := p.slots.lookup(comp.Cookie)
	if ch == nil {
		return // of a use that is over: a queue pair that was destroyed
	}
	ep := ch.ep
	switch ch.kind {
	case recvChain:
		if ch.srq != nil {
			p.receivedShared(ch, comp)
			return
		}
		ep.received(ch, comp)
	case drainChain:
		ep.marker = false
		ep.sqFree++ // cosmetic: nothing is posted any more
		p.slots.give(ch)
		ep.landPosted(true)
	case sendChain:
		if comp.Status != transport.StatusOK {
			ep.requestFailed(ch, position, comp)
		}
		if position == ch.last {
			if ch.head.end > position+1 && ep.feedOn(ch) {
				break
			}
			for !ep.posted.empty() {
				head := ep.posted.pop()
				ep.land(head)
				if head == ch {
					break
				}
			}
			if !ep.queue.empty() {
				ep.pump()
			}
		}
	}
	if ep.state >= failed {
		ep.destroyIfDrained()
	}
}

// requestFailed notes a request's bad status. The first that isn't a flush is why
// the endpoint failed.
func (ep *Endpoint) requestFailed(ch *chain, position int, comp *transport.Completion) {
	first := ch.cause == nil && !ch.flushed
	if first || position < ch.position { // the latter if the tail was refused at the post
		ch.position = position
	}
	if comp.Status == transport.StatusFlushed {
		ch.flushed = true
		ep.fail(ep.connectionCause())
		return
	}
	err := &transport.Error{
		Op: opAt(ch, position).String(), Device: ep.limits.Caps.Device,
		WR: position, Status: comp.Status, Vendor: comp.Vendor,
	}
	if first {
		ch.cause = err
	}
	ep.fail(err)
}

// connectionCause is what a flush without a failed request comes from.
func (ep *Endpoint) connectionCause() error {
	if err := ep.conn.Err(); err != nil {
		return err
	}
	return qpFailed{}
}

// connectionOver fails the endpoint. It may have failed before, by flushes that came ahead of the
// news: a device that is removed flushes first.
func (ep *Endpoint) connectionOver() {
	if err := ep.conn.Err(); err != nil && ep.cause == error(qpFailed{}) {
		ep.cause, ep.flushed = fmt.Errorf("%w; since then: %w", ep.cause, err), nil
	}
	ep.fail(ep.connectionCause())
}

// opAt is what the context at a position does.
func opAt(ch *chain, position int) Op {
	for c := ch.head; c != nil; c = c.next {
		if position < c.end {
			return c.op
		}
	}
	return ch.tail.op
}

// land takes back the credits of a chain that the device is done with.
func (ep *Endpoint) land(ch *chain) {
	ep.sqFree += ch.posted
	ep.readsFree += ch.reads
	ep.endChain(ch)
}

// landPosted ends everything posted: the marker behind it completed, or the queue
// pair was destroyed. Only in the first case is everything accounted for: a request
// of a chain that was accepted in part may have completed without a sign, but none
// was flushed without one.
func (ep *Endpoint) landPosted(accounted bool) {
	for !ep.posted.empty() {
		ch := ep.posted.pop()
		switch {
		case ch.cause == nil && !ch.flushed && ep.state >= failed:
			ch.flushed, ch.position = true, 0
		case !accounted && ch.position > ch.last: // accepted in part
			ch.position = 0
		}
		ep.land(ch)
	}
}

// complete ends a chain: posted and landed, or never posted at all.
func (ep *Endpoint) complete(ch *chain) {
	ep.sqFree += ch.posted // held, but never posted
	ep.readsFree += held(ch)
	ep.endChain(ch)
}

func (ep *Endpoint) endChain(ch *chain) {
	for c := ch.head; c != nil; {
		next := c.next
		switch {
		case c.state != posted || ch.cause != nil || ch.flushed:
			ep.end(c, ch)
		case c.plain:
			ep.poller.pushDone(c)
		case c.plan.lazy: // its registrations are valid, with local rights, until their next use
			c.mrs = ep.putAll(c.mrs)
			ep.poller.pushDone(c)
		default:
			ep.end(c, ch)
		}
		c = next
	}
	ep.poller.slots.give(ch)
}

// held is the READ depth that a chain still holds.
func held(ch *chain) int {
	if ch.posted == 0 {
		return 0
	}
	return ch.reads
}

// end gives a context its result, and sees to its keys.
func (ep *Endpoint) end(c *Context, ch *chain) {
	wasPosted := c.state == posted
	failed := ch.cause != nil || ch.flushed || (ep.state >= failed && !wasPosted)
	if wasPosted && failed && c.end <= ch.position {
		failed = false // over before the failure: completions come in order
	}
	if failed && c.op != Revoke { // a revocation has other ways
		switch {
		case ch.cause == nil && ch.flushed:
			c.err = &transport.Error{Op: c.op.String(), Device: ep.limits.Caps.Device, WR: ch.position,
				Status: transport.StatusFlushed, Err: ep.failure()}
		case ch.cause == nil:
			c.err = ep.failure()
		default:
			c.err = ch.cause
		}
	}
	x := c.exposure
	if x != nil && x.killing {
		ep.done(c) // its keys die with the endpoint
		return
	}
	if failed && !wasPosted && c.putsBackUnposted() {
		c.putBack()
		ep.done(c)
		return
	}
	if !c.landed(!failed) {
		ep.done(c)
		return
	}
	c.state = finishing
	if x != nil {
		x.killing = true
	}
	ep.pending++
	var err error
	ep.poller.work(func() { err = c.finish() }, func() {
		ep.pending--
		c.putBack()
		if c.err == nil {
			c.err = err
		}
		if x != nil {
			ep.killed(x)
		}
		ep.done(c)
		ep.destroyIfDrained()
	})
}

// killed notes that a worker is through with an exposure's keys, and ends what has
// waited for it.
func (ep *Endpoint) killed(x *Exposure) {
	x.killing = false
	var others *Context
	for c := ep.afterKill; c != nil; {
		next := c.next
		if c.exposure == x {
			ep.done(c)
		} else {
			c.next, others = others, c
		}
		c = next
	}
	ep.afterKill = others
}

// putsBackUnposted reports whether what the context holds was only mapped: no key
// became valid, so that nothing has to be killed.
func (c *Context) putsBackUnposted() bool {
	switch c.op {
	case Revoke:
		return false
	case Grant:
		return !c.exposure.mapBlocks()
	}
	return !c.registersFirst()
}

// done puts a context on the list of those to be returned.
func (ep *Endpoint) done(c *Context) {
	if x := c.exposure; x != nil {
		if x.killing {
			// Its keys are dead when the worker says so.
			c.next = ep.afterKill
			ep.afterKill = c
			return
		}
		if c.op == Revoke || c.err != nil {
			ep.dropExposure(x)
			x.remotes = x.remotes[:0]
		}
	}
	ep.poller.pushDone(c)
	if x := c.exposure; x != nil && c.op == Grant && x.heldRevoke != nil {
		ch := x.heldRevoke
		x.heldRevoke = nil
		ep.complete(ch)
	}
}

// received handles the completion of a receive.
func (ep *Endpoint) received(ch *chain, comp *transport.Completion) {
	c := ch.head
	ep.poller.slots.give(ch)
	ep.recvs--
	ep.recvFree++
	ep.receivedBy(c, comp)
}

// receivedBy gives a receive its result.
func (ep *Endpoint) receivedBy(c *Context, comp *transport.Completion) {
	switch {
	case comp.Status == transport.StatusFlushed:
		if ep.state < failed {
			ep.fail(ep.connectionCause())
		}
		c.err = ep.flushedRecv()
	case comp.Status != transport.StatusOK:
		c.err = &transport.Error{Op: "RECV", Device: ep.limits.Caps.Device, WR: -1, Status: comp.Status, Vendor: comp.Vendor}
		ep.fail(c.err)
	default:
		c.received.Len = int(comp.ByteLen)
		if comp.Flags&transport.WithImm != 0 {
			c.received.HasImm, c.received.Imm = true, comp.Imm
		}
		if comp.Flags&transport.WithInv != 0 {
			ep.invalidatedByPeer(c, comp.InvKey)
		}
	}
	ep.poller.pushDone(c)
}

// flushedRecv is the error of receives that are flushed: one for all, since there are many
// and whoever takes a connection down waits for them.
func (ep *Endpoint) flushedRecv() error {
	if ep.flushed == nil {
		ep.flushed = &transport.Error{Op: "RECV", Device: ep.limits.Caps.Device, WR: -1, Status: transport.StatusFlushed, Err: ep.failure()}
	}
	return ep.flushed
}

// invalidatedByPeer ends the exposure whose key the peer invalidated.
func (ep *Endpoint) invalidatedByPeer(c *Context, key transport.RKey) {
	x := ep.matchInvalidated(key)
	if x == nil {
		c.err = &transport.Error{Op: "RECV", Device: ep.limits.Caps.Device, WR: -1, Err: ErrInvalidation, Detail: key.String()}
		ep.fail(c.err)
		return
	}
	c.received.Invalidated = x
	if x.killing || !x.mrs[0].Valid() {
		return // an own revocation is under way, and will end it
	}
	x.mrs[0].Invalidated()
	if !x.mapBlocks() { // else Revoke has a worker undo the mapping
		x.putBack()
	}
}
