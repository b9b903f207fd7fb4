package rw

import (
	"fmt"

	"rdmarw/transport"
)

// SRQ is a shared receive queue: receives that any of its endpoints' messages may use,
// so that a server with many idle connections needs memory for the busy ones only. A
// receive tells by [Context.Endpoint] whose message it got.
//
// The queue has no credits: a peer that sends when it is empty is refused (InfiniBand:
// tries again, for as long as its RNRRetryCount allows; iWARP: the connection ends), so
// there must be one receive for each message that peers may have under way. What is posted
// comes back with its message or with Close: no connection's end brings it back. So that
// an idle connection has ended isn't told by any context, but by Done of [Endpoint.Conn].
//
// Its methods follow the rules of its poller, as those of endpoints do.
type SRQ struct {
	poller  *Poller
	srq     transport.SRQ
	regions *transport.RegionTable
	granted transport.QueueCaps

	// Under the poller's lock.
	free     int
	users    int
	closed   bool
	receives receives
}

// NewSRQ makes a shared receive queue in a protection domain, for at least maxWR receives
// of at most maxSGE pieces (zero: what the device has, at most 16). Endpoints of this
// poller, with pools of this domain, share it: see EndpointConfig.SRQ. The poller's
// completion queue needs room for what is granted, which may be twice maxWR.
func (p *Poller) NewSRQ(pd transport.PD, maxWR, maxSGE int) (*SRQ, error) {
	setDefault(&maxSGE, min(16, pd.Device().Caps().MaxRecvSGE))
	srq, err := pd.NewSRQ(maxWR, maxSGE)
	if err != nil {
		return nil, fmt.Errorf("new SRQ: %w", err)
	}
	s := &SRQ{poller: p, srq: srq, regions: pd.Regions(), granted: srq.Granted()}
	s.free = s.granted.MaxRecvWR
	p.mu.Lock()
	if err = p.takeRoom(0, s.granted.MaxRecvWR); err == nil {
		p.srqs++
	}
	p.mu.Unlock()
	if err != nil {
		srq.Close()
		return nil, err
	}
	return s, nil
}

// PrepareRecv prepares a receive of at most the list's length. Post it with
// [SRQ.PostRecv].
func (s *SRQ) PrepareRecv(c *Context, local []transport.Piece) error {
	if err := c.prepareRecv(nil, local, s.regions, s.granted.MaxRecvSGE); err != nil {
		return err
	}
	c.srq = s
	return nil
}

// Close frees the queue when its endpoints are closed, or fails with transport.ErrBusy.
// The receives that are still posted come back with [ErrClosed].
func (s *SRQ) Close() error {
	p := s.poller
	p.mu.Lock()
	users := s.users
	p.mu.Unlock()
	if users > 0 {
		return fmt.Errorf("close SRQ: %d endpoints use it: %w", users, transport.ErrBusy)
	}
	if err := s.srq.Close(); err != nil {
		return err
	}
	p.mu.Lock()
	for _, ch := range p.slots.table {
		if ch.srq == s {
			ch.head.err = ErrClosed
			p.pushDone(ch.head)
			p.slots.give(ch)
		}
	}
	if !s.closed {
		s.closed = true
		p.reserved -= s.granted.MaxRecvWR
		p.srqs--
	}
	p.mu.Unlock()
	p.wake()
	return nil
}

// join notes that completions with the endpoint's QP number are its own from now on.
func (s *SRQ) join(ep *Endpoint) {
	p, n := s.poller, ep.qp.Num()
	if p.sharing[n] != nil { // a queue pair that was destroyed a moment ago had that number
		p.advance()
	}
	p.sharing[n] = ep
	s.users++
}

// leave forgets an endpoint whose queue pair was destroyed. Everything that it received
// is taken in: the next queue pair may have its number.
func (s *SRQ) leave(ep *Endpoint) {
	p, n := s.poller, ep.qp.Num()
	s.users--
	if p.sharing[n] == ep {
		delete(p.sharing, n)
	}
}

// receivedShared handles the completion of a receive from an SRQ.
func (p *Poller) receivedShared(ch *chain, comp *transport.Completion) {
	s, c := ch.srq, ch.head
	s.free++
	p.slots.give(ch)
	ep := p.sharing[comp.QPN]
	if ep == nil {
		c.err = refuse("RECV", transport.ErrDisconnected, "its queue pair is gone")
		p.pushDone(c)
		return
	}
	c.ep = ep
	ep.receivedBy(c, comp)
}
