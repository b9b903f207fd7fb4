package rping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// Client sends pings.
type Client struct {
	// Device is the device to send from.
	Device transport.Device
	// Size is the size of a ping in bytes, at most [MaxSize]. Zero: 64. C's rping
	// takes 23 to 65,535, and must have been told as much by its own option -S.
	Size int
	// Count is how many pings to send. Zero: until ctx ends.
	Count int
	// Verify compares what comes back with what was sent, byte for byte.
	Verify bool
	// Log gets pings at level Debug. Nil: nothing is logged.
	Log *slog.Logger
}

// Ping connects to the server at addr ("host:port"), sends Count pings one after
// the other, and disconnects. It returns how many were answered. With Count zero
// the error is ctx's.
func (c *Client) Ping(ctx context.Context, addr string) (pings int, err error) {
	log := logger(c.Log)
	size, err := sizeOr(c.Size, 64)
	if err != nil {
		return 0, err
	}
	poller, stop, err := startPoller(c.Device, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	conn, err := c.Device.Resolve(ctx, addr)
	if err != nil {
		return 0, err
	}
	// The sink begins on a page of its own.
	sinkAt := (size + 4095) &^ 4095
	l, err := newLink(c.Device, poller, conn, sinkAt+size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := establish(ctx, l.ep.Connect); err != nil {
		return 0, fmt.Errorf("connect to %s: %w", addr, err)
	}
	log.Info("connected", "server", addr, "device", c.Device.Caps().Device)
	source := l.region.Piece(0, uint32(size))
	sink := l.region.Piece(uint64(sinkAt), uint32(size))
	sent, got := l.region.Bytes()[:size], l.region.Bytes()[sinkAt:sinkAt+size]
	var x rw.Exposure
	for ; c.Count == 0 || pings < c.Count; pings++ {
		fill(sent, pings)
		spoil(got, sent)
		err := offer(ctx, l, &x, source, mrpool.ReadSource)
		if err == nil {
			err = offer(ctx, l, &x, sink, mrpool.WriteSink)
		}
		if err == nil && c.Verify {
			err = compare(got, sent)
		}
		if err != nil {
			return pings, fmt.Errorf("ping %d: %w", pings, err)
		}
		log.Debug("answered", "ping", pings, "data", shown(got))
	}
	return pings, nil
}

// offer lets the server do one operation on p: until it says that it is through.
func offer(ctx context.Context, l *link, x *rw.Exposure, p transport.Piece, ops mrpool.RemoteOps) error {
	if err := l.ep.Expose(x, []transport.Piece{p}, ops); err != nil {
		return err
	}
	// If anything fails from here on, closing the endpoint revokes what is exposed.
	if n := len(x.Remotes()); n != 1 {
		return fmt.Errorf("%w: needs %d keys, a message has room for one", ErrSize, n)
	}
	if err := l.postReceive(); err != nil {
		return err
	}
	// One chain: the server can't hear of the key before it is valid.
	if err := l.tell(ctx, x.Remotes()[0], &x.Grant); err != nil {
		return err
	}
	if _, err := l.receive(ctx); err != nil {
		return err
	}
	// Only now is the memory ours alone: whatever the server kept, the key is dead.
	return l.ep.Do(ctx, &x.Revoke)
}
