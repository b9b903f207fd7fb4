package perf

import (
	"context"
	"errors"
	"net"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// connection is one of package rw, of a device with itself.
type connection struct {
	a, b  *end
	sink  transport.Registration // the peer's memory
	stack []func() error
}

type end struct {
	poller *rw.Poller
	ep     *rw.Endpoint
	region *transport.Region
	pool   *mrpool.Pool
	pd     transport.PD
}

func (c *connection) onClose(f func() error) { c.stack = append(c.stack, f) }

func (c *connection) close() error {
	var errs []error
	for i := len(c.stack) - 1; i >= 0; i-- {
		errs = append(errs, c.stack[i]())
	}
	return errors.Join(errs...)
}

// dial connects a device to itself for a case.
func dial(ctx context.Context, dev transport.Device, addr string, cs Case) (*connection, error) {
	c := new(connection)
	if err := c.open(ctx, dev, addr, cs); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *connection) open(ctx context.Context, dev transport.Device, addr string, cs Case) (err error) {
	for _, e := range []**end{&c.a, &c.b} {
		if *e, err = c.newEnd(dev, cs); err != nil {
			return err
		}
	}
	if c.sink, err = c.b.pd.NewRegistration(transport.SyncMR, 0); err != nil {
		return err
	}
	c.onClose(c.sink.Close)
	if _, err := c.sink.Map(transport.Mapping{
		List:   []transport.Piece{c.b.region.Piece(0, uint32(cs.Size))},
		Access: transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite,
	}); err != nil {
		return err
	}
	l, err := dev.Listen(net.JoinHostPort(addr, "0"))
	if err != nil {
		return err
	}
	c.onClose(l.Close)
	active, err := dev.Resolve(ctx, l.Addr())
	if err != nil {
		return err
	}
	queues := transport.QueueCaps{MaxSendWR: 2*cs.Depth + 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	if c.a.ep, err = c.a.poller.NewEndpoint(active, rw.EndpointConfig{Pool: c.a.pool, QueueCaps: queues, Policy: rw.Policy{Sink: cs.Sink}}); err != nil {
		return errors.Join(err, active.Close())
	}
	c.onClose(func() error { return c.a.closeEndpoint(ctx) })
	if err := active.Connect(transport.ConnParams{}); err != nil {
		return err
	}
	passive, err := l.Next(ctx)
	if err != nil {
		return err
	}
	if c.b.ep, err = c.b.poller.NewEndpoint(passive, rw.EndpointConfig{Pool: c.b.pool, QueueCaps: queues}); err != nil {
		return errors.Join(err, passive.Close())
	}
	c.onClose(func() error { return c.b.closeEndpoint(ctx) })
	if err := passive.Accept(transport.ConnParams{}); err != nil {
		return err
	}
	for _, e := range []*end{c.b, c.a} {
		if _, err := e.ep.Established(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) newEnd(dev transport.Device, cs Case) (e *end, err error) {
	e = new(end)
	if e.pd, err = dev.NewPD(); err != nil {
		return nil, err
	}
	c.onClose(e.pd.Close)
	if e.region, err = dev.NewRegion(transport.RegionConfig{Size: cs.Size * cs.Depth, Access: transport.LocalWrite}); err != nil {
		return nil, err
	}
	c.onClose(e.region.Close)
	if err := e.pd.AddRegion(e.region); err != nil {
		return nil, err
	}
	c.onClose(func() error { return e.pd.RemoveRegion(e.region) })
	if e.pool, err = mrpool.New(e.pd, mrpool.Config{SyncMRs: cs.Depth}); err != nil {
		return nil, err
	}
	c.onClose(e.pool.Close)
	if e.poller, err = rw.NewPoller(dev, 8*cs.Depth+64, rw.PollerConfig{}); err != nil {
		return nil, err
	}
	c.onClose(e.poller.Close)
	return e, nil
}

func (e *end) closeEndpoint(ctx context.Context) error {
	e.ep.StartClose()
	for {
		if _, err := e.poller.Poll(nil); err != nil {
			return err
		}
		select {
		case <-e.ep.Closed():
			return e.ep.Close()
		default:
		}
		if err := e.poller.Wait(ctx); err != nil {
			return err
		}
	}
}

// ours runs a case, and returns MiB/s, or the median latency in microseconds.
func (c *connection) ours(ctx context.Context, cs Case) (float64, error) {
	remote := []transport.Remote{{Addr: c.b.region.Addr(), Len: uint32(cs.Size), Key: c.sink.RKey(0)}}
	contexts := make([]rw.Context, cs.Depth)
	lists := make([][]transport.Piece, cs.Depth)
	for i := range lists {
		lists[i] = []transport.Piece{c.a.region.Piece(uint64(i*cs.Size), uint32(cs.Size))}
	}
	submit := func(i int) error {
		if err := c.a.ep.Prepare(&contexts[i], rw.Transfer{Op: cs.Op, Local: lists[i], Remote: remote}); err != nil {
			return err
		}
		return c.a.ep.Submit(&contexts[i])
	}
	index := make(map[*rw.Context]int, cs.Depth)
	for i := range contexts {
		index[&contexts[i]] = i
	}
	var latencies []float64
	done := make([]*rw.Context, cs.Depth)
	started, ended := 0, 0
	start := time.Now()
	for ; started < min(cs.Depth, cs.Messages); started++ {
		if err := submit(started); err != nil {
			return 0, err
		}
	}
	last := start
	for ended < cs.Messages {
		// What was posted just now takes a while; Wait looks before it sleeps.
		if err := c.a.poller.Wait(ctx); err != nil {
			return 0, err
		}
		n, err := c.a.poller.Poll(done)
		if err != nil {
			return 0, err
		}
		if cs.Latency {
			now := time.Now()
			latencies = append(latencies, float64(now.Sub(last).Nanoseconds())/1e3)
		}
		for _, d := range done[:n] {
			if d.Err() != nil {
				return 0, d.Err()
			}
			ended++
			if started < cs.Messages {
				started++
				last = time.Now()
				if err := submit(index[d]); err != nil {
					return 0, err
				}
			}
		}
	}
	if cs.Latency {
		return median(latencies), nil
	}
	return float64(cs.Size) * float64(cs.Messages) / (1 << 20) / time.Since(start).Seconds(), nil
}
