//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"net/netip"
	"sync"

	"rdmarw/transport"
)

var _ transport.Listener = (*listener)(nil)

// backlog is how many requests may wait for Next. More are rejected.
const backlog = 128

type listener struct {
	dev    *device
	number uint64
	id     *C.struct_rdma_cm_id
	addr   string
	queue  chan *conn
	done   chan struct{}

	closing sync.Mutex // of one Close at a time
	gone    bool       // Close has done its work

	mu     sync.Mutex
	closed bool
	err    error // what Next returns once done is closed
}

// Listen waits for connections. With an empty host it listens on all addresses
// and takes only what comes in through this device; on siw it doesn't hear clients of
// the same machine then: they are rejected with ECONNRESET. An address of another
// device is transport.ErrInvalid.
func (d *device) Listen(addr string) (transport.Listener, error) {
	list, err := lookup(context.Background(), addr)
	if err != nil {
		return nil, d.invalid("listen", "%v", err)
	}
	if a := list[0]; !a.Addr().IsValid() {
		list = []netip.AddrPort{
			netip.AddrPortFrom(netip.IPv6Unspecified(), a.Port()), // takes IPv4 as well
			netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port()),
		}
	}
	var last error
	for _, a := range list {
		l, err := d.listen(a)
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, last
}

func (d *device) listen(addr netip.AddrPort) (*listener, error) {
	if err := d.children.add(kindListener); err != nil {
		return nil, err
	}
	l := &listener{
		dev:   d,
		queue: make(chan *conn, backlog),
		done:  make(chan struct{}),
	}
	l.number = d.cm.add(l)
	undo := func() {
		d.cm.forget(l.number)
		d.children.drop(kindListener)
	}
	if rc := C.rd_create_id(d.cm.channel, C.uint64_t(l.number), &l.id); rc != 0 {
		undo()
		return nil, d.fail("listen", rc, transport.ErrNoMemory)
	}
	inUse.ids.Add(1)
	a := toC(addr)
	if rc := C.rd_listen(l.id, &a, backlog); rc != 0 {
		d.destroyID("listen", l.id)
		undo()
		return nil, d.fail("listen on "+addr.String(), rc, transport.ErrNoMemory)
	}
	if other := l.id.verbs; other != nil && other != d.ctx {
		name := deviceName(other) // before the id is gone, and librdmacm lets go of that device
		d.destroyID("listen", l.id)
		undo()
		return nil, d.invalid("listen", "%v is an address of another device, %s", addr, name)
	}
	C.rd_local_addr(l.id, &a)
	l.addr = fromC(&a).String()
	return l, nil
}

// request takes in a connection request, and reports false if it is to be
// rejected. It is called by the CM's goroutine, so nobody else knows the id yet.
func (l *listener) request(ev *cmEvent, number uint64) bool {
	if ev.id.verbs != l.dev.ctx {
		return false // it came in through another device
	}
	c, err := l.dev.newConn(true)
	if err != nil {
		return false
	}
	c.id = ev.id
	inUse.ids.Add(1)
	c.number = number
	c.request = transport.ConnInfo{
		PrivateData:        eventData(ev),
		InitiatorDepth:     int(ev.initiator_depth),
		ResponderResources: int(ev.responder_resources),
	}
	c.addresses()
	l.dev.cm.adopt(number, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		select {
		case l.queue <- c:
			return true
		default:
		}
	}
	inUse.ids.Add(-1) // the caller destroys it
	l.dev.cm.forget(number)
	l.dev.children.drop(kindConn)
	return false
}

// handle has nothing to do: requests go another way.
func (l *listener) handle(*cmEvent) {}

func (l *listener) removed() { l.end(transport.ErrDeviceRemoved) }

// end makes Next fail, once, for the given reason.
func (l *listener) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.done)
	}
}

func (l *listener) Next(ctx context.Context) (transport.Conn, error) {
	select {
	case <-l.done:
		return nil, l.err
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Close() error {
	l.closing.Lock()
	defer l.closing.Unlock()
	if l.gone {
		return nil
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end(transport.ErrClosed)
	if l.id != nil {
		if err := l.dev.destroyID("close listener", l.id); err != nil {
			return err
		}
		l.id = nil
		l.dev.cm.forget(l.number)
	}
	// What nobody took is rejected. A request that comes in now finds closed set.
	for len(l.queue) > 0 {
		select {
		case c := <-l.queue:
			if err := c.Close(); err != nil {
				l.queue <- c // as there is room, and nobody else puts anything in
				return err
			}
		default:
		}
	}
	l.dev.children.drop(kindListener)
	l.gone = true
	return nil
}
