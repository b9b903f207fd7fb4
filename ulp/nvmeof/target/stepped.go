package target

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"rdmarw/rw"
	"rdmarw/transport"
)

// now is a context that has ended: for asking what is there, without waiting.
var now = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Attach has Poll look after a listener, until the target is shut down: see Config.Step.
// Device and listener stay the caller's.
func (t *Target) Attach(dev transport.Device, l transport.Listener) error {
	if t.cfg.Step == nil {
		return errors.New("target: it runs by itself: Serve, not Attach")
	}
	if t.closing {
		return ErrClosed
	}
	p, err := newPort(t, dev)
	if err != nil {
		return err
	}
	p.listener = l
	t.ports = append(t.ports, p)
	return nil
}

// Poll does what there is to do, and doesn't wait: see Config.Step. The error is that of a
// listener or a completion queue that can't go on.
func (t *Target) Poll() error {
	for _, p := range t.ports {
		if err := p.poll(); err != nil {
			return err
		}
	}
	t.expire(t.cfg.Now())
	t.pollEnds()
	return nil
}

// poll takes connection requests, and polls.
func (p *port) poll() error {
	for !p.target.closing {
		conn, err := p.listener.Next(now)
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return err
		}
		q := p.admit(conn)
		if q == nil {
			continue
		}
		p.queues.Add(1)
		if err := conn.Accept(q.acceptance()); err != nil {
			q.fail(fmt.Errorf("accept: %w", err))
			continue
		}
		p.settling = append(p.settling, q)
	}
	p.settling = slices.DeleteFunc(p.settling, func(q *queue) bool {
		_, err := q.ep.Established(now)
		switch {
		case errors.Is(err, context.Canceled):
			return false
		case err != nil:
			q.fail(fmt.Errorf("accept: %w", err))
		default:
			p.target.accepted.Add(1)
		}
		return true
	})
	for _, x := range p.pollers {
		var done [16]*rw.Context // WRITEs: their responses tell that they are over
		if _, err := x.Poll(done[:]); err != nil {
			return err
		}
	}
	return nil
}

// pollEnds goes on with queues that have failed.
func (t *Target) pollEnds() {
	t.endMu.Lock()
	ending := t.ending
	t.ending = nil
	t.endMu.Unlock()
	for _, q := range ending {
		if !q.begun {
			q.begun = true
			q.beginEnd()
			q.ep.StartClose()
		}
		if isClosed(q.ep.Closed()) && isClosed(q.home) {
			q.end()
			continue
		}
		t.endMu.Lock()
		t.ending = append(t.ending, q)
		t.endMu.Unlock()
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// detach ends all connections.
func (t *Target) detach() error {
	for _, q := range slices.Clone(t.queues) {
		q.fail(ErrClosed)
	}
	for len(t.queues) > 0 {
		if err := t.cfg.Step(); err != nil {
			return fmt.Errorf("shutdown: %w", err)
		}
	}
	var errs []error
	for _, p := range t.ports {
		errs = append(errs, p.closePollers())
	}
	t.ports = nil
	return errors.Join(errs...)
}
