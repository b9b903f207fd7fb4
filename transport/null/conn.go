package null

import (
	"context"

	"rdmarw/transport"
)

// conn is a connection to nobody, which is up when it is asked for.
type conn struct {
	dev  *Device
	addr string
	qp   *QP
	info transport.ConnInfo
	done chan struct{}
	end  func()
	err  error
}

func (c *conn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	if c.qp != nil {
		return nil, refuse(c.dev, "new QP", -1, transport.ErrBadState)
	}
	qp, err := newQP(c.dev, cfg)
	if err != nil {
		return nil, err
	}
	c.qp = qp
	return qp, nil
}

func (c *conn) QP() transport.QP {
	if c.qp == nil {
		return nil
	}
	return c.qp
}

func (c *conn) Request() transport.ConnInfo { return transport.ConnInfo{} }

func (c *conn) Connect(p transport.ConnParams) error {
	if c.qp == nil || c.err != nil {
		return refuse(c.dev, "connect", -1, transport.ErrBadState)
	}
	c.qp.state = transport.QPReady
	c.info = transport.ConnInfo{
		InitiatorDepth:     depth(p.InitiatorDepth, c.dev.caps.InitiatorDepth),
		ResponderResources: depth(p.ResponderResources, c.dev.caps.ResponderResources),
	}
	return nil
}

// depth is what is granted of what was asked for.
func depth(asked, most int) int {
	if asked == 0 {
		return most
	}
	return max(0, min(asked, most))
}

func (c *conn) Accept(transport.ConnParams) error {
	return refuse(c.dev, "accept", -1, transport.ErrUnsupported)
}

func (c *conn) Reject([]byte) error { return refuse(c.dev, "reject", -1, transport.ErrUnsupported) }

func (c *conn) Established(context.Context) (transport.ConnInfo, error) { return c.info, c.err }

func (c *conn) Done() <-chan struct{} { return c.done }

func (c *conn) AfterDone(f func()) {
	c.end = f
	if c.err != nil {
		f()
	}
}

func (c *conn) Err() error { return c.err }

func (c *conn) Disconnect() error {
	if c.err != nil {
		return nil
	}
	c.err = transport.ErrDisconnected
	close(c.done)
	var err error
	if c.qp != nil {
		err = c.qp.Fail()
	}
	if c.end != nil {
		c.end()
	}
	return err
}

func (c *conn) Close() error       { return c.Disconnect() }
func (c *conn) LocalAddr() string  { return "null:0" }
func (c *conn) RemoteAddr() string { return c.addr }
