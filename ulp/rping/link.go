package rping

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// queues is what one connection needs: never more is under way than a grant, a
// message, a revocation; and one receive.
var queues = transport.QueueCaps{MaxSendWR: 16, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}

// completions is room for the queues of one connection. Devices grant more than
// they were asked for.
const completions = 128

// establishTimeout is how long a peer has to complete the handshake.
const establishTimeout = 10 * time.Second

// link is one connection and what is its own. That includes the protection
// domain: keys of one are nothing to the peers of others.
type link struct {
	ep     *rw.Endpoint
	region *transport.Region
	inAt   uint64 // offset of the incoming message in the region
	outAt  uint64 // and of the outgoing one

	recv, send, write rw.Context    // used again and again; write is the server's
	arrived           chan struct{} // a token when recv is done

	undo []func() error
}

// newLink makes the queue pair of a connection, and data bytes of memory at the
// start of the link's region. It owns conn from now on, on errors too.
func newLink(dev transport.Device, poller *rw.Poller, conn transport.Conn, data int) (_ *link, err error) {
	l := &link{arrived: make(chan struct{}, 1), inAt: uint64(data), outAt: uint64(data) + messageLen}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close(), l.close())
		}
	}()
	// What the peer may touch is up to exposures. The region itself grants nothing:
	// it only allows windows to be bound over parts of it.
	l.region, err = dev.NewRegion(transport.RegionConfig{
		Size:   data + 2*messageLen,
		Access: transport.LocalWrite | transport.BindWindow,
	})
	if err != nil {
		return nil, err
	}
	l.later(l.region.Close)
	pd, err := dev.NewPD()
	if err != nil {
		return nil, err
	}
	l.later(pd.Close)
	if err := pd.AddRegion(l.region); err != nil {
		return nil, err
	}
	l.later(func() error { return pd.RemoveRegion(l.region) })
	pool, err := mrpool.New(pd, registrations(dev.Caps(), data))
	if err != nil {
		return nil, err
	}
	l.later(pool.Close)
	l.ep, err = poller.NewEndpoint(conn, rw.EndpointConfig{Pool: pool, QueueCaps: queues, Owner: conn.RemoteAddr()})
	if err != nil {
		return nil, err
	}
	l.later(l.ep.Close)
	l.recv.OnDone = func(*rw.Context) { l.arrived <- struct{}{} }
	return l, nil
}

// later has close do f.
func (l *link) later(f func() error) { l.undo = append(l.undo, f) }

// registrations is what one transfer at a time takes: a fast registration or a
// window where the device has them, else (and that costs nothing until it is used)
// a registration by calls.
func registrations(caps *transport.Caps, data int) mrpool.Config {
	cfg := mrpool.Config{SyncMRs: 1}
	switch {
	case caps.FastReg.MaxPages > 0:
		cfg.FastMRs, cfg.FastPages = 1, data/4096+2
	case caps.Windows != transport.NoWindows:
		cfg.Windows = 1
	}
	return cfg
}

// close takes everything down, last made first.
func (l *link) close() error {
	var errs []error
	for i := len(l.undo) - 1; i >= 0; i-- {
		errs = append(errs, l.undo[i]())
	}
	l.undo = nil
	return errors.Join(errs...)
}

// postReceive readies the one receive for the peer's next message. It comes before
// whatever makes the peer send one.
func (l *link) postReceive() error {
	if err := l.ep.PrepareRecv(&l.recv, []transport.Piece{l.region.Piece(l.inAt, messageLen)}); err != nil {
		return err
	}
	return l.ep.PostRecv(&l.recv)
}

// receive waits for the peer's next message.
func (l *link) receive(ctx context.Context) (transport.Remote, error) {
	select {
	case <-l.arrived:
	case <-ctx.Done():
		return transport.Remote{}, ctx.Err()
	}
	if err := l.recv.Err(); err != nil {
		return transport.Remote{}, err
	}
	n := uint64(l.recv.Received().Len)
	return parseMessage(l.region.Bytes()[l.inAt : l.inAt+n])
}

// tell sends a message, behind other contexts in one chain, and waits for its
// completion.
func (l *link) tell(ctx context.Context, r transport.Remote, before ...*rw.Context) error {
	putMessage(l.region.Bytes()[l.outAt:], r)
	if err := l.ep.PrepareSend(&l.send, rw.Message{Local: []transport.Piece{l.region.Piece(l.outAt, messageLen)}}); err != nil {
		return err
	}
	return l.ep.Do(ctx, append(before, &l.send)...)
}

// depths are those that rping asks for: one READ at a time.
var depths = transport.ConnParams{InitiatorDepth: 1, ResponderResources: 1}

// startPoller has a goroutine poll for up to n connections. stop ends it, after
// the connections are closed: closing them needs it.
func startPoller(dev transport.Device, n int) (poller *rw.Poller, stop func() error, err error) {
	poller, err = rw.NewPoller(dev, n*completions, rw.PollerConfig{})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- poller.Run(ctx, nil) }()
	return poller, func() error {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			return errors.Join(fmt.Errorf("poller: %w", err), poller.Close())
		}
		return poller.Close()
	}, nil
}
