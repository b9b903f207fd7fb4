package host

import (
	"context"
	"errors"

	"rdmarw/rw"
	"rdmarw/transport"
)

// errStopped: what was waited for can't happen any more.
var errStopped = errors.New("stopped")

// await waits for a value (or the end) of ch. step, if not nil, makes things happen
// meanwhile.
func await[T any](ctx context.Context, step func() error, ch <-chan T, stop <-chan struct{}) (v T, err error) {
	for {
		select {
		case v = <-ch: // what has happened counts before any reason to stop
			return v, nil
		default:
		}
		if step == nil {
			select {
			case v = <-ch:
				return v, nil
			case <-stop:
				return v, errStopped
			case <-ctx.Done():
				return v, ctx.Err()
			}
		}
		select {
		case <-stop:
			return v, errStopped
		case <-ctx.Done():
			return v, ctx.Err()
		default:
		}
		if err := step(); err != nil {
			return v, err
		}
	}
}

// step returns what moves things on where nothing moves by itself, or nil.
func (a *association) step() func() error { return a.stepping }

func (a *association) stepOnce() error {
	if err := a.poll(); err != nil {
		return err
	}
	a.tick(a.c.cfg.Now())
	return a.c.cfg.Step()
}

// poll takes in what has happened.
func (a *association) poll() error {
	var none [8]*rw.Context
	n, err := a.poller.Poll(none[:])
	for n == len(none) && err == nil { // contexts that nobody waits for
		n, err = a.poller.Poll(none[:])
	}
	return err
}

// established waits until a connection is up.
func (a *association) established(ctx context.Context, ep *rw.Endpoint) (transport.ConnInfo, error) {
	step := a.step()
	if step == nil {
		return ep.Established(ctx)
	}
	at, cancel := context.WithCancel(ctx)
	cancel()
	for {
		info, err := ep.Established(at) // doesn't wait
		if !errors.Is(err, context.Canceled) {
			return info, err
		}
		if err := step(); err != nil {
			return info, err
		}
		if err := ctx.Err(); err != nil {
			return info, err
		}
	}
}
