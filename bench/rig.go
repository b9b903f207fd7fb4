package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"rdmarw/rw"
	"rdmarw/transport"
)

// rig is a connection between two sides, all of it driven by one goroutine:
// nothing runs in the background that could be measured along or missed.
//
// Side a is the one that is measured, side b its peer.
type rig struct {
	a, b    side
	variant variant // of side a
	ctx     context.Context

	// clock is what CPU ns are counted by. While it can't tell waiting from work,
	// waiting is left out of the measurement.
	clock            func() int64
	clockSkipsIdling bool
	// virtual is the simulator's time; nil on real devices.
	virtual func() time.Duration
	// counted reads what side a's device counted; nil where it doesn't.
	counted func() counts
	// misuse tells what should never have been done to the devices; may be nil.
	misuse func() error

	closers []func() error
}

// counts are those of a row.
type counts struct{ wrs, registrations, invalidations int }

// setupError is a failure to get hold of the device at all.
type setupError struct{ error }

func (e *setupError) Unwrap() error { return e.error }

// rowTimeout bounds the time of one row, so that a lost completion ends the run.
const rowTimeout = 60 * time.Second

// openRig connects two sides over a device, with room for a shape.
func openRig(o options, w work, v variant) (*rig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rowTimeout)
	r := &rig{ctx: ctx, variant: v}
	r.onClose(func() error { cancel(); return nil })
	open := r.simulated
	if o.transport == verbs {
		open = r.real
	}
	addr, err := open(w.device, o.seed)
	if err == nil {
		err = r.connect(w.shape, addr)
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

func (r *rig) onClose(f func() error) { r.closers = append(r.closers, f) }

// close frees everything, latest first, and reports what went wrong.
func (r *rig) close() error {
	var errs []error
	for _, f := range slices.Backward(r.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// connect makes both ends, and connects a to b.
func (r *rig) connect(s shape, addr string) error {
	for _, one := range []*side{&r.a, &r.b} {
		if err := one.open(r, s); err != nil {
			return err
		}
	}
	listener, err := r.b.dev.Listen(addr)
	if err != nil {
		return err
	}
	r.onClose(listener.Close)
	active, err := r.a.dev.Resolve(r.ctx, listener.Addr())
	if err != nil {
		return err
	}
	if r.variant.sink {
		if err := r.a.pool.AddSink(r.a.scattered.region); err != nil {
			return err
		}
	}
	if err := r.attach(&r.a, active, r.variant.policy, s); err != nil {
		return err
	}
	if err := active.Connect(transport.ConnParams{}); err != nil {
		return err
	}
	passive, err := listener.Next(r.ctx)
	if err != nil {
		return err
	}
	if err := r.attach(&r.b, passive, rw.Policy{}, s); err != nil {
		return err
	}
	if err := passive.Accept(transport.ConnParams{}); err != nil {
		return err
	}
	for _, one := range []*side{&r.b, &r.a} {
		info, err := one.ep.Established(r.ctx)
		if err != nil {
			return err
		}
		one.depth = info.InitiatorDepth
	}
	return nil
}

// attach makes a side's endpoint.
func (r *rig) attach(one *side, conn transport.Conn, policy rw.Policy, s shape) error {
	ep, err := one.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: one.pool, QueueCaps: one.queues(s), Policy: policy, Owner: "bench"})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	one.ep = ep
	r.onClose(func() error { return r.closeEndpoint(one) })
	return nil
}

func (r *rig) closeEndpoint(one *side) error {
	one.ep.StartClose()
	for {
		if _, err := one.poller.Poll(nil); err != nil {
			return err
		}
		select {
		case <-one.ep.Closed():
			return one.ep.Close() // returns what it came to
		default:
		}
		if err := one.poller.Wait(r.ctx); err != nil {
			return fmt.Errorf("close endpoint: %w", err)
		}
	}
}

// do submits a context and polls until it is done. What is work of this side
// counts for the meter, which must be running; nil: nobody counts.
func (r *rig) do(one *side, c *rw.Context, m *meter) error {
	if err := one.ep.Submit(c); err != nil {
		return err
	}
	return r.finish(one, c, m)
}

// finish polls until a context is done, the only one under way on its side.
func (r *rig) finish(one *side, c *rw.Context, m *meter) error {
	var done [1]*rw.Context
	for {
		n, err := one.poller.Poll(done[:])
		switch {
		case err != nil:
			return err
		case n > 0 && done[0] != c:
			return fmt.Errorf("a %v came back that is not under way: %w", done[0].Op(), done[0].Err())
		case n > 0:
			return c.Err()
		}
		if m != nil && !r.clockSkipsIdling {
			m.pause()
		}
		err = one.poller.Wait(r.ctx)
		if m != nil && !r.clockSkipsIdling {
			m.resume()
		}
		if err != nil {
			return err
		}
	}
}
