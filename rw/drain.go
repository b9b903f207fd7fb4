package rw

import (
	"errors"

	"rdmarw/transport"
)

// postMarker posts the request behind which nothing is outstanding any more: a
// signaled WRITE of nothing, in the slot that is kept for it. It must come while
// the queue pair is still ready: what is posted in the error state never
// completes on siw. It is needed only after a partial post; every whole chain ends
// with a signaled request of its own.
func (ep *Endpoint) postMarker() {
	slots := &ep.poller.slots
	ch, err := slots.take(ep, drainChain)
	if err != nil {
		return // the deadline will do
	}
	wr := [1]transport.WR{{Op: transport.OpWrite, Flags: transport.Signaled, Cookie: ch.cookie}}
	if n, _ := ep.qp.PostSend(wr[:], nil); n == 0 {
		slots.give(ch)
		return
	}
	ep.marker = true
}

// fail moves the endpoint to the failed state, once. The first cause stays.
func (ep *Endpoint) fail(cause error) {
	if ep.cause == nil {
		ep.cause = cause
	}
	if ep.state >= failed {
		return
	}
	ep.state = failed
	if err := ep.qp.Fail(); err != nil {
		ep.draining = true // destroying it is what is left
	}
	for !ep.queue.empty() {
		ep.complete(ep.queue.pop())
	}
	ep.deadline = ep.poller.now().Add(ep.drainTimeout)
	ep.poller.draining = append(ep.poller.draining, ep)
}

// destroyIfDrained goes on with a Close once the device owes nothing, and ends it
// once no worker has anything of the endpoint any more.
func (ep *Endpoint) destroyIfDrained() {
	switch {
	case ep.state == gone && ep.pending == 0:
		ep.finishClose()
	case ep.state != gone && ep.draining && ep.idleNow():
		ep.destroy()
	}
}

// finishClose lets go of what the endpoint shares with others.
func (ep *Endpoint) finishClose() {
	select {
	case <-ep.closed:
		return
	default:
	}
	ep.poller.detach(ep)
	ep.release()
	ep.peer.Close()
	close(ep.closed)
}

// destroy takes everything of the endpoint away from the device: exposures first
// (windows must go before their queue pair), then the queue pair. After that the
// device can't touch any memory, and what is still posted comes back by software.
func (ep *Endpoint) destroy() {
	if ep.destroying || ep.state == gone {
		return
	}
	ep.destroying = true
	p := ep.poller
	var exposed []*Exposure
	for x := ep.exposures; x != nil; x = x.next {
		if !x.killing {
			x.killing = true
			exposed = append(exposed, x)
		}
	}
	var errs []error
	p.work(func() {
		for _, x := range exposed {
			for _, m := range x.mrs {
				errs = append(errs, revoke(m)) // what fails is set aside by Put
			}
		}
		errs = append(errs, ep.conn.Close())
	}, func() {
		// What a destroyed queue pair has completed stays in the completion queue on some
		// devices: its room there is free, and its number another's, only when that is
		// taken in. If it fails, the next Poll tells.
		p.advance()
		if ep.srq != nil {
			ep.srq.leave(ep)
		}
		ep.destroying = false
		ep.state = gone
		ep.marker = false
		ep.closeErr = errors.Join(errs...)
		for _, x := range exposed {
			x.putBack()
			ep.dropExposure(x)
			ep.killed(x)
		}
		ep.landPosted(false)
		p.flushReceives(ep)
		ep.destroyIfDrained()
	})
}

// flushReceives ends the receives of a queue pair that was destroyed, and
// forgets its marker.
func (p *Poller) flushReceives(ep *Endpoint) {
	for _, ch := range p.slots.table {
		if ch.ep != ep {
			continue
		}
		switch ch.kind {
		case recvChain:
			c := ch.head
			c.err = ep.flushedRecv()
			p.pushDone(c)
			ep.recvs--
			p.slots.give(ch)
		case drainChain:
			p.slots.give(ch)
		}
	}
}
