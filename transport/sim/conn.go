package sim

import (
	"context"

	"rdmarw/transport"
)

// Conn is a simulated connection. See [transport.Conn].
type Conn struct {
	dev           *Device
	active        bool
	local, remote string
	answered      chan struct{} // closed when the connection is up, or will never be
	done          chan struct{}

	// Guarded by fabric.mu.
	state    connState
	peer     *Conn
	qp       *QP
	request  transport.ConnInfo // passive: what the peer asked for
	asked    transport.ConnParams
	info     transport.ConnInfo // once established
	err      error
	wasUp    bool
	rejected bool // by Reject, or by an Accept that couldn't be
	timeout  timer
	// owesAnswer: the peer waits for an answer that it gets no sooner than this is closed.
	owesAnswer bool
	killed     bool
	closed     bool
	serial     uint64 // order of creation
	after      func() // see AfterDone
}

var _ transport.Conn = (*Conn)(nil)

type connState uint8

const (
	connNew      connState = iota // resolved, or requested by the peer
	connAsked                     // active: the request is out
	connAnswered                  // passive: accepted, or rejected
	connUp
	connEnded
)

func (d *Device) newConn(active bool, local, remote string) *Conn {
	d.serial++
	c := &Conn{
		dev: d, active: active, local: local, remote: remote, serial: d.serial,
		answered: make(chan struct{}), done: make(chan struct{}),
	}
	d.conns[c] = struct{}{}
	return c
}

// Resolve starts an outgoing connection to "name:port", where name is a device's.
func (d *Device) Resolve(ctx context.Context, addr string) (transport.Conn, error) {
	const op = "resolve"
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	host, _, err := splitAddr(addr)
	if err != nil {
		return nil, d.errorf(op, transport.ErrInvalid, "%q: %v", addr, err)
	}
	f := d.fabric
	f.mu.Lock()
	defer f.unlock()
	if err := d.usable(op); err != nil {
		return nil, err
	}
	to := f.device(host)
	if to == nil {
		return nil, d.errorf(op, transport.ErrUnreachable, "%q: no device of that name", addr)
	}
	if to.caps.Protocol != d.caps.Protocol {
		return nil, d.errorf(op, transport.ErrUnreachable, "%q is a device for %v, not %v", addr, to.caps.Protocol, d.caps.Protocol)
	}
	return d.newConn(true, joinAddr(d.name, d.port()), addr), nil
}

// CreateQP makes the connection's queue pair.
func (c *Conn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	const op = "create queue pair"
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	switch {
	case c.closed:
		return nil, c.dev.errorf(op, transport.ErrClosed, "")
	case c.state == connEnded:
		return nil, c.dev.errorf(op, c.err, "")
	case c.state != connNew:
		return nil, c.dev.errorf(op, transport.ErrBadState, "a queue pair is made before Connect or Accept")
	case c.qp != nil:
		return nil, c.dev.errorf(op, transport.ErrBadState, "the connection has one already")
	}
	q, err := newQP(c, &cfg)
	if err != nil {
		return nil, err
	}
	c.qp = q
	if f := c.dev.fabric; f.log != nil {
		f.tracef(c.dev, "qp %d created", q.num)
	}
	return q, nil
}

// QP returns the queue pair, or nil.
func (c *Conn) QP() transport.QP {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	if c.qp == nil {
		return nil
	}
	return c.qp
}

// Request is what the peer asked for.
func (c *Conn) Request() transport.ConnInfo { return c.request }

// LocalAddr returns "name:port".
func (c *Conn) LocalAddr() string { return c.local }

// RemoteAddr returns "name:port".
func (c *Conn) RemoteAddr() string { return c.remote }

// Established waits until the connection is up.
func (c *Conn) Established(ctx context.Context) (transport.ConnInfo, error) {
	f := c.dev.fabric
	if _, err := await(ctx, f, c.answered, nil); err != nil {
		return transport.ConnInfo{}, err
	}
	f.mu.Lock()
	defer f.unlock()
	if c.err != nil && !c.wasUp {
		return transport.ConnInfo{}, c.err
	}
	return c.info, nil
}

// Done is closed when the connection has ended. In stepped mode that takes
// steps, as everything.
func (c *Conn) Done() <-chan struct{} { return c.done }

// AfterDone arranges for fn to be called when the connection has ended: by the
// fabric, in an event of its own, so that whoever ends the connection may hold
// locks that fn takes.
func (c *Conn) AfterDone(fn func()) {
	f := c.dev.fabric
	f.mu.Lock()
	c.after = fn
	ended := c.state == connEnded
	if ended {
		c.after = nil // fn is called below
	}
	f.unlock()
	if ended && fn != nil {
		fn()
	}
}

// Err tells why it ended.
func (c *Conn) Err() error {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	return c.err
}

// end ends the connection on this side, and tells the other.
func (c *Conn) end(err error, tell bool) {
	if c.state == connEnded || c.dev.dead || c.killed {
		return
	}
	was := c.state
	c.ended(err)
	if c.qp != nil {
		c.qp.enterError()
	}
	switch peer := c.peer; {
	case !tell || peer == nil:
	case !c.active && was == connNew:
		c.sendReject(nil) // a request that is dropped is refused
	case c.dev.iwarp && was == connUp:
		// The end of the stream comes after what was sent before it. That is
		// complete here, so it has to arrive.
		c.qp.send(request{op: endOfStream})
	default:
		c.dev.fabric.deliver(c.dev.profile.Cost.Latency, func() { peer.end(transport.ErrDisconnected, false) })
	}
}

// ended tells whoever waits.
func (c *Conn) ended(err error) {
	f := c.dev.fabric
	was := c.state
	c.state, c.err = connEnded, err
	c.wasUp = was == connUp
	c.timeout.stop()
	if was != connUp {
		close(c.answered)
	}
	close(c.done)
	if c.after != nil {
		f.deliver(0, func() {
			if c.after != nil {
				f.notices = append(f.notices, c.after)
				c.after = nil
			}
		})
	}
	if f.log != nil {
		f.tracef(c.dev, "cm %s -- %s ended: %v", c.local, c.remote, err)
	}
}

// Disconnect ends the connection.
func (c *Conn) Disconnect() error {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	c.end(transport.ErrDisconnected, true)
	return nil
}

// Close disconnects and destroys the queue pair.
func (c *Conn) Close() error {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	c.close()
	return nil
}

func (c *Conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.end(transport.ErrDisconnected, true)
	if c.owesAnswer && !c.dev.dead && !c.killed {
		c.sendReject(nil)
	}
	if c.state != connEnded {
		c.ended(transport.ErrDisconnected) // dead: nobody else is told
	}
	if c.qp != nil {
		c.qp.destroy()
	}
	delete(c.dev.conns, c)
}

// Kill is the sudden death of this side of one connection, as [Device.Kill] is
// of a device: nothing of it moves any more, and the peer isn't told.
func (c *Conn) Kill() {
	c.dev.fabric.mu.Lock()
	defer c.dev.fabric.unlock()
	c.kill()
}

func (c *Conn) kill() {
	if c.killed {
		return
	}
	c.killed = true
	c.timeout.stop()
	if f := c.dev.fabric; f.log != nil {
		f.tracef(c.dev, "cm %s -- %s killed", c.local, c.remote)
	}
	if c.qp != nil {
		c.qp.stopTimers()
		c.qp.dropInbound()
	}
}
