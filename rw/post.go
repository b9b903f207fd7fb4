package rw

import "rdmarw/transport"

// post builds and posts a chain that holds all its credits.
func (ep *Endpoint) post(ch *chain) {
	c := ch.head
	wrs, sges := c.plan.wrs, c.plan.sges
	if c == ch.tail && c.ready() {
		c.first, c.end = 0, len(wrs)
		if c.plan.feeds(&ep.limits) {
			wrs = wrs[:min(len(wrs), ch.reads, ch.wrs)]
		}
	} else {
		ep.ar.wrs, ep.ar.sges = ep.ar.wrs[:0], ep.ar.sges[:0]
		for c := ch.head; c != nil; c = c.next {
			if err := c.emit(&ep.ar); err != nil {
				ep.refuse(ch, err)
				return
			}
		}
		wrs, sges = ep.ar.wrs, ep.ar.sges
	}
	// Fewer than were set aside, unless all registrations were stale and no
	// exposure was dead.
	ep.sqFree += ch.posted - len(wrs)
	ch.posted = len(wrs)
	if len(wrs) == 0 {
		ep.complete(ch)
		return
	}
	ep.send(ch, wrs, sges)
}

// send posts the requests of a chain that holds all its credits.
func (ep *Endpoint) send(ch *chain, wrs []transport.WR, sges []transport.SGE) {
	stamp(wrs, ch.cookie)
	n, err := ep.qp.PostSend(wrs, sges)
	if n == 0 {
		ep.refuse(ch, err)
		return
	}
	for c := ch.head; c != nil; c = c.next {
		c.state = posted
		if !c.plain && c.first < n {
			c.accepted()
		}
	}
	ch.last = n - 1
	ep.posted.push(ch)
	if err != nil {
		ep.partlyPosted(ch, n, err)
	}
}

// stamp gives requests their cookies, and has the last one signaled.
func stamp(wrs []transport.WR, cookie uint64) {
	for i := range wrs {
		wrs[i].Cookie = cookie + uint64(i)
	}
	wrs[len(wrs)-1].Flags |= transport.Signaled
}

// partlyPosted ends the endpoint: the tail of the chain never ran, or (all was
// accepted, and the doorbell failed) nobody knows what did. What was accepted may end
// without a completion: the marker tells when it is over, or the deadline.
func (ep *Endpoint) partlyPosted(ch *chain, accepted int, err error) {
	ep.sqFree += ch.posted - accepted
	ch.posted = accepted
	ch.cause, ch.position = err, ch.last+1
	ep.postMarker()
	ep.fail(err)
}

// ready reports whether the context's requests are as they will be posted.
func (c *Context) ready() bool {
	return (c.moves() || c.op == Send) && c.plan.Strategy != FastReg
}

// feedOn posts the next part of a chain whose last part is over, and reports
// whether there was one. The chain keeps its READ depth, and the slots of one part.
func (ep *Endpoint) feedOn(ch *chain) bool {
	c := ch.head
	if ch.head != ch.tail || !c.ready() || !c.plan.feeds(&ep.limits) || ch.cause != nil || ch.flushed {
		return false
	}
	next := ch.last + 1
	wrs := c.plan.wrs[next:]
	if len(wrs) == 0 {
		return false
	}
	if ep.state >= failed { // the rest never runs, and nothing else says so
		ch.cause, ch.position = ep.failure(), next
		return false
	}
	if len(wrs) > ch.posted {
		wrs = wrs[:ch.posted]
	}
	ep.sqFree += ch.posted - len(wrs)
	ch.posted = len(wrs)
	stamp(wrs, ch.cookie+uint64(next))
	n, err := ep.qp.PostSend(wrs, c.plan.sges)
	ch.last = next + n - 1
	if n == 0 {
		if end := ep.conn.Err(); end != nil {
			err = end
		}
		ch.cause, ch.position = err, next
		ep.fail(err)
		return false // what was posted is over
	}
	// Now behind chains that were posted after its first part.
	ep.posted.remove(ch)
	ep.posted.push(ch)
	if err != nil {
		ep.partlyPosted(ch, n, err)
	}
	return true
}

// refuse ends a chain of which nothing was posted. The endpoint doesn't survive
// it: either the queue pair is in error, or the credits here are wrong.
func (ep *Endpoint) refuse(ch *chain, err error) {
	if end := ep.conn.Err(); end != nil {
		err = end
	}
	ch.cause = err
	ep.complete(ch)
	ep.fail(err)
}
