package sim

import (
	"bytes"
	"fmt"
	"time"

	"rdmarw/transport"
)

// Limits of the CM (rdma_connect(3), rdma_accept(3), rdma_reject(3)) for RDMA_PS_TCP.
const (
	maxRequestData = 56
	maxAcceptData  = 196
	maxRejectData  = 148
)

// connectTimeout is how long a connection request waits for its answer, all
// retries included. The kernel's cma tries 15 times with a CM timeout of 4 s or
// so; nobody wants to wait that long in a simulation.
const connectTimeout = 10 * time.Second

// defaultAckTimeout is the CM's usual 4.096 us << 14.
const defaultAckTimeout = 67 * time.Millisecond

// CM reject reasons (InfiniBand Architecture 12.6.7.2).
const (
	rejNoResources = 3 // no resources available
	rejInvalidSID  = 8 // nobody listens
	rejConsumer    = 28
)

// depths are a side's initiator depth and responder resources.
func (c *Conn) depths(p *transport.ConnParams) (initiator, responder int) {
	return depth(p.InitiatorDepth, c.dev.caps.InitiatorDepth), depth(p.ResponderResources, c.dev.caps.ResponderResources)
}

func depth(asked, most int) int {
	switch {
	case asked < 0:
		return 0
	case asked == 0:
		return most
	}
	return min(asked, most)
}

// retries is a retry count as ConnParams means it.
func retries(asked int) int {
	switch {
	case asked < 0:
		return 0
	case asked == 0:
		return 7
	}
	return min(asked, 7)
}

// arrived is private data as the receiver sees it: InfiniBand's CM messages
// have room of a fixed size, which is padded.
func (c *Conn) arrived(data []byte, room int) []byte {
	if c.dev.iwarp {
		return bytes.Clone(data)
	}
	padded := make([]byte, room)
	copy(padded, data)
	return padded
}

// ready checks what Connect and Accept have in common, and sets the queue pair
// up.
func (c *Conn) ready(op string, p *transport.ConnParams, room int) error {
	d := c.dev
	switch {
	case c.closed:
		return d.errorf(op, transport.ErrClosed, "")
	case c.qp == nil:
		return d.errorf(op, transport.ErrBadState, "there is no queue pair yet")
	case c.rejected || c.state != connNew && c.state != connEnded:
		return d.errorf(op, transport.ErrBadState, "called twice")
	case c.state == connEnded:
		return d.errorf(op, c.err, "")
	case len(p.PrivateData) > room:
		return d.errorf(op, transport.ErrInvalid, "%d bytes of private data; %d are possible", len(p.PrivateData), room)
	}
	q := c.qp
	q.ackTimeout = p.AckTimeout
	if q.ackTimeout <= 0 {
		q.ackTimeout = defaultAckTimeout
	}
	return nil
}

// Connect sends the request.
func (c *Conn) Connect(p transport.ConnParams) error {
	const op = "connect"
	f := c.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	if !c.active {
		return c.dev.errorf(op, transport.ErrBadState, "this is the passive side")
	}
	if err := c.ready(op, &p, maxRequestData); err != nil {
		return err
	}
	p.PrivateData = bytes.Clone(p.PrivateData)
	c.asked = p
	c.state = connAsked
	if c.dev.profile.ConnectsInCall && f.listeners[c.remote] == nil && f.faults.Connect == nil {
		err := c.refusal(rejInvalidSID)
		c.end(err, false)
		return err
	}
	fault := ConnectOK
	if f.faults.Connect != nil {
		fault = f.faults.Connect(c.local, c.remote)
	}
	c.timeout = f.after(connectTimeout, func() {
		c.timeout = timer{}
		c.end(c.dev.errorf(op, transport.ErrTimeout, "%s did not answer", c.remote), true)
	})
	if f.log != nil {
		f.tracef(c.dev, "cm %s -> %s request", c.local, c.remote)
	}
	if fault != ConnectLost {
		f.deliver(c.dev.profile.Cost.Latency, func() { c.requested(fault) })
	}
	return nil
}

// refusal is the error of a request that no program has refused.
func (c *Conn) refusal(reason int) error {
	rejected := &transport.RejectedError{Reason: reason}
	if reason == rejInvalidSID {
		return c.dev.errorf("connect", fmt.Errorf("%w (%w)", transport.ErrUnreachable, rejected), "nobody listens at %q", c.remote)
	}
	return c.dev.errorf("connect", rejected, "%q takes no more requests", c.remote)
}

// requested is the request's arrival at the other side.
func (c *Conn) requested(fault ConnectFault) {
	f := c.dev.fabric
	if c.state != connAsked || c.dev.dead || c.killed {
		return
	}
	host, _, _ := splitAddr(c.remote)
	to := f.device(host)
	if to == nil || to.down != nil {
		return // nobody answers
	}
	refuse := func(reason int) {
		f.deliver(to.profile.Cost.Latency, func() { c.end(c.refusal(reason), false) })
	}
	l := f.listeners[c.remote]
	switch {
	case fault == ConnectRejected:
		refuse(rejNoResources)
		return
	case l == nil:
		refuse(rejInvalidSID)
		return
	}
	s := to.newConn(false, l.addr, c.local)
	initiator, responder := c.depths(&c.asked)
	s.request = transport.ConnInfo{
		PrivateData:        s.arrived(c.asked.PrivateData, maxRequestData),
		InitiatorDepth:     min(responder, to.caps.InitiatorDepth),
		ResponderResources: min(initiator, to.caps.ResponderResources),
	}
	s.peer, c.peer = c, s
	if f.log != nil {
		f.tracef(to, "cm %s <- %s request", s.local, s.remote)
	}
	select {
	case l.backlog <- s:
	default:
		delete(to.conns, s)
		s.closed, c.peer = true, nil
		refuse(rejNoResources)
	}
}

// Accept answers the request. The queue pair takes messages from now on; its
// own go out when the peer has confirmed.
func (c *Conn) Accept(p transport.ConnParams) error {
	const op = "accept"
	f := c.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	if c.active {
		return c.dev.errorf(op, transport.ErrBadState, "this is the active side")
	}
	if err := c.ready(op, &p, maxAcceptData); err != nil {
		return err
	}
	if c.qp.state == transport.QPError {
		err := c.dev.errorf(op, transport.ErrInvalid, "the queue pair is in the error state, which nothing leads out of")
		c.cantBe(err)
		return err
	}
	initiator, responder := c.depths(&p)
	c.info = transport.ConnInfo{
		PrivateData:        c.request.PrivateData,
		InitiatorDepth:     min(initiator, c.request.InitiatorDepth),
		ResponderResources: min(responder, c.request.ResponderResources),
	}
	data := bytes.Clone(p.PrivateData)
	c.state = connAnswered
	// Retries are agreed on crosswise (ib_cm: cm_req_handler, cm_rep_handler): how often
	// one side tries again when the other has no receive, the other one says; how often a
	// packet is sent again, the active side says for both.
	c.qp.retry, c.qp.rnrRetry = retries(c.peer.asked.RetryCount), retries(c.peer.asked.RNRRetryCount)
	c.qp.state, c.qp.ord = transport.QPReady, c.info.InitiatorDepth
	c.qp.peer = c.peer.qp
	if f.log != nil {
		f.tracef(c.dev, "cm %s -> %s accept", c.local, c.remote)
	}
	f.deliver(c.dev.profile.Cost.Latency, func() { c.peer.accepted(data, retries(p.RNRRetryCount)) })
	return nil
}

// accepted is the answer's arrival at the active side.
func (c *Conn) accepted(data []byte, rnrRetry int) {
	s := c.peer
	if c.state != connAsked || c.dev.dead || c.killed {
		return
	}
	if c.qp.state == transport.QPError {
		err := c.dev.errorf("connect", transport.ErrUnreachable, "the queue pair is in the error state, which nothing leads out of")
		if !c.dev.iwarp {
			c.cantBe(err)
			return
		}
		c.end(err, false)
		c.dev.fabric.deliver(c.dev.profile.Cost.Latency, func() {
			s.confirmed() // on siw the peer is up by having answered, and then sees the end
			s.end(transport.ErrDisconnected, false)
		})
		return
	}
	c.state = connUp
	c.timeout.stop()
	c.info = transport.ConnInfo{
		PrivateData:        c.arrived(data, maxAcceptData),
		InitiatorDepth:     s.info.ResponderResources,
		ResponderResources: s.info.InitiatorDepth,
	}
	if c.dev.profile.RelaxedIRD {
		c.info.InitiatorDepth = s.request.ResponderResources
	}
	q := c.qp
	q.retry, q.rnrRetry = retries(c.asked.RetryCount), rnrRetry
	q.state, q.ord = transport.QPReady, c.info.InitiatorDepth
	q.peer, q.up = s.qp, true
	close(c.answered)
	if c.dev.fabric.log != nil {
		c.dev.fabric.tracef(c.dev, "cm %s -- %s established, depth %d", c.local, c.remote, q.ord)
	}
	q.kickRequester()
	c.dev.fabric.deliver(c.dev.profile.Cost.Latency, s.confirmed)
}

// cantBe ends a connection that can't come to be, since this side's queue pair has failed.
// The kernel's CM and siw tell the peer at once; user space tells nobody before it closes
// (librdmacm, ucma_process_conn_resp and rdma_accept).
func (c *Conn) cantBe(err error) {
	c.rejected = true
	c.end(err, false)
	if c.dev.iwarp || c.dev.profile.Kernel {
		c.sendReject(nil)
	} else {
		c.owesAnswer = true
	}
}

// confirmed is the last message's arrival at the passive side.
func (c *Conn) confirmed() {
	if c.state != connAnswered || c.dev.dead || c.killed {
		return
	}
	c.state = connUp
	c.qp.up = true
	close(c.answered)
	if c.dev.fabric.log != nil {
		c.dev.fabric.tracef(c.dev, "cm %s -- %s established, depth %d", c.local, c.remote, c.qp.ord)
	}
	c.qp.kickRequester()
}

// Reject refuses the request.
func (c *Conn) Reject(privateData []byte) error {
	const op = "reject"
	f := c.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	switch {
	case c.closed:
		return c.dev.errorf(op, transport.ErrClosed, "")
	case c.active || c.state != connNew:
		return c.dev.errorf(op, transport.ErrBadState, "there is no request to reject")
	case len(privateData) > maxRejectData:
		return c.dev.errorf(op, transport.ErrInvalid, "%d bytes of private data; %d are possible", len(privateData), maxRejectData)
	}
	c.rejected = true
	c.end(transport.ErrRejected, false)
	c.sendReject(privateData)
	return nil
}

func (c *Conn) sendReject(privateData []byte) {
	f := c.dev.fabric
	peer := c.peer
	rej := &transport.RejectedError{Reason: rejConsumer, PrivateData: peer.arrived(privateData, maxRejectData)}
	if f.log != nil {
		f.tracef(c.dev, "cm %s -> %s reject", c.local, c.remote)
	}
	f.deliver(c.dev.profile.Cost.Latency, func() { peer.end(peer.dev.errorf("connect", rej, ""), false) })
}
