package sim

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"rdmarw/transport"
)

// Listener is a simulated listener. See [transport.Listener].
type Listener struct {
	dev     *Device
	addr    string
	backlog chan *Conn
	quit    chan struct{}
	closed  bool // guarded by fabric.mu
}

var _ transport.Listener = (*Listener)(nil)

// backlogSize is how many requests wait for Next; more are rejected.
const backlogSize = 128

// splitAddr splits "name:port".
func splitAddr(addr string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(service)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("port %q", service)
	}
	return host, port, nil
}

func joinAddr(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// port picks a free port.
func (d *Device) port() int {
	for {
		port := d.nextPort
		d.nextPort++
		if d.nextPort > 65535 {
			d.nextPort = 49152
		}
		if d.fabric.listeners[joinAddr(d.name, port)] == nil {
			return port
		}
	}
}

// Listen waits for connections. The host is the device's name, or empty.
func (d *Device) Listen(addr string) (transport.Listener, error) {
	const op = "listen"
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, d.errorf(op, transport.ErrInvalid, "%q: %v", addr, err)
	}
	if host != "" && host != d.name {
		return nil, d.errorf(op, transport.ErrInvalid, "%q: the device's address is %q", addr, d.name)
	}
	f := d.fabric
	f.mu.Lock()
	defer f.unlock()
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if port == 0 {
		port = d.port()
	}
	l := &Listener{dev: d, addr: joinAddr(d.name, port), backlog: make(chan *Conn, backlogSize), quit: make(chan struct{})}
	if f.listeners[l.addr] != nil {
		return nil, d.errorf(op, transport.ErrBusy, "%q is taken", l.addr)
	}
	f.listeners[l.addr] = l
	d.listeners++
	return l, nil
}

// Next waits for a request.
func (l *Listener) Next(ctx context.Context) (transport.Conn, error) {
	c, err := await(ctx, l.dev.fabric, l.backlog, l.quit)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Addr returns "name:port".
func (l *Listener) Addr() string { return l.addr }

// Close stops listening, and rejects the requests that nobody took.
func (l *Listener) Close() error {
	f := l.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	close(l.quit)
	delete(f.listeners, l.addr)
	l.dev.listeners--
	for {
		select {
		case c := <-l.backlog:
			c.close()
		default:
			return nil
		}
	}
}
