package rw

import (
	"errors"

	"rdmarw/transport"
)

// PostRecv posts prepared receives, in order and by one call. On error none was taken, and
// they are still prepared: it matches [ErrNotPrepared], transport.ErrQueueFull if the receive
// queue has no room for all of them, or what the endpoint failed of. Should the device take
// the first of several and refuse the rest, that is the end of the endpoint: all come back.
func (ep *Endpoint) PostRecv(contexts ...*Context) error {
	p := ep.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &ep.receives
	err := r.gather(p, contexts, func(c *Context) bool { return c.ep == ep })
	switch {
	case err != nil:
	case ep.srq != nil:
		err = refuse("RECV", transport.ErrInvalid, "the endpoint's receives come from its SRQ: post it there")
	case ep.state >= failed:
		err = ep.refusal("not posted")
	case ep.recvFree < len(contexts):
		err = refuse("RECV", transport.ErrQueueFull, "")
	}
	if err != nil {
		r.giveBack(p, 0)
		return err
	}
	for _, ch := range r.chains {
		ch.ep = ep
	}
	n, err := ep.qp.PostRecv(r.wrs, r.sges)
	ep.recvFree -= n
	ep.recvs += n
	if n < len(contexts) {
		if errors.Is(err, transport.ErrBadState) {
			// The queue pair went to the error state, and nobody has said why yet: as
			// for what is flushed, the cause is the connection's end.
			ep.fail(ep.connectionCause())
			p.wake() // what was queued is back
			err = ep.failure()
		} else if n > 0 {
			ep.fail(err)
		}
	}
	return r.posted(p, n, err)
}

// PostRecv posts receives that were prepared for this queue, in order and by one call. On
// error none was taken, and they are still prepared: it matches transport.ErrQueueFull if
// there is no room for all of them, [ErrClosed], or [ErrNotPrepared]. Should the device take
// the first of several only, the rest comes back with its error.
func (s *SRQ) PostRecv(contexts ...*Context) error {
	p := s.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &s.receives
	err := r.gather(p, contexts, func(c *Context) bool { return c.ep == nil && c.srq == s })
	switch {
	case err != nil:
	case s.closed:
		err = ErrClosed
	case s.free < len(contexts):
		err = refuse("RECV", transport.ErrQueueFull, "")
	}
	if err != nil {
		r.giveBack(p, 0)
		return err
	}
	for _, ch := range r.chains {
		ch.srq = s
	}
	n, err := s.srq.PostRecv(r.wrs, r.sges)
	s.free -= n
	return r.posted(p, n, err)
}

// receives are receives that are posted together.
type receives struct {
	chains []*chain
	wrs    []transport.RecvWR
	sges   []transport.SGE
}

// gather takes a slot for each of the contexts, and puts their requests together. After an
// error giveBack gives back what it has taken by then.
func (r *receives) gather(p *Poller, contexts []*Context, mine func(*Context) bool) error {
	r.chains, r.wrs, r.sges = r.chains[:0], r.wrs[:0], r.sges[:0]
	for _, c := range contexts {
		if c == nil || !mine(c) || c.op != Recv || c.state != prepared {
			return notPrepared(c, c != nil && mine(c), true)
		}
		ch, err := p.slots.take(nil, recvChain)
		if err != nil {
			return err
		}
		ch.head, ch.tail = c, c
		c.state = posted // so that it can't be there twice
		r.chains = append(r.chains, ch)
		r.wrs = append(r.wrs, transport.RecvWR{Cookie: ch.cookie, FirstSGE: uint32(len(r.sges)), NumSGE: uint16(len(c.plan.sges))})
		r.sges = append(r.sges, c.plan.sges...)
	}
	return nil
}

// giveBack makes prepared contexts of those from n on again.
func (r *receives) giveBack(p *Poller, n int) {
	for _, ch := range r.chains[n:] {
		ch.head.state = prepared
		p.slots.give(ch)
	}
}

// posted deals with what the device didn't take, from n on, and returns what the caller gets
// to see.
func (r *receives) posted(p *Poller, n int, err error) error {
	if n == 0 {
		r.giveBack(p, 0)
		return err
	}
	for _, ch := range r.chains[n:] {
		c := ch.head
		c.err = err
		p.slots.give(ch)
		p.pushDone(c)
	}
	if n < len(r.chains) {
		p.wake()
	}
	return nil
}
