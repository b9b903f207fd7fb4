package rw

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"rdmarw/transport"
)

// Read fetches from the peer's memory and waits until the data is in local
// memory and no key of it is alive. Somebody must poll ([Poller.Run]). See
// [Endpoint.Do] for what the end of ctx does.
func (ep *Endpoint) Read(ctx context.Context, local []transport.Piece, remote ...transport.Remote) error {
	return ep.transfer(ctx, Transfer{Op: Read, Local: local, Remote: remote})
}

// Write stores local memory into the peer's memory and waits for the completion.
// That doesn't say that the peer's program can see it: a message sent after it
// does. See [Endpoint.Read].
func (ep *Endpoint) Write(ctx context.Context, local []transport.Piece, remote ...transport.Remote) error {
	return ep.transfer(ctx, Transfer{Op: Write, Local: local, Remote: remote})
}

var contexts = sync.Pool{New: func() any { return new(Context) }}

func (ep *Endpoint) transfer(ctx context.Context, t Transfer) error {
	c := contexts.Get().(*Context)
	defer func() {
		c.transfer = Transfer{}
		contexts.Put(c)
	}()
	if err := ep.Prepare(c, t); err != nil {
		return err
	}
	return ep.Do(ctx, c)
}

// waiter waits for the contexts of one Do.
type waiter struct {
	left   atomic.Int32
	signal chan struct{}
	onDone func(*Context)
}

var waiters = sync.Pool{New: func() any {
	w := &waiter{signal: make(chan struct{}, 1)}
	w.onDone = func(*Context) {
		if w.left.Add(-1) == 0 {
			w.signal <- struct{}{}
		}
	}
	return w
}}

// Do submits prepared contexts as one chain and waits until all of them are
// done; their OnDone is not called. It returns the error of the first that has
// one. Somebody must poll.
//
// When ctx ends, what is still queued leaves at once. What is posted can't be
// taken back: Do waits for it for CancelGrace, then fails the endpoint to get it
// back. So when Do returns, the buffers are the caller's again in any case: even if
// nobody polls, which its error says then ([ErrNotPolled], beside ctx's).
//
// With an exclusive poller nobody else polls: [ErrExclusive], and nothing is done. Nor does
// anybody on a stepped simulation: transport.ErrDeadlock.
func (ep *Endpoint) Do(ctx context.Context, cs ...*Context) error {
	if err := ep.poller.mayWait(); err != nil {
		return fmt.Errorf("a call that blocks: use Submit and Poll: %w", err)
	}
	w := waiters.Get().(*waiter)
	w.left.Store(int32(len(cs)))
	defer waiters.Put(w)
	if err := ep.submitFor(w.onDone, cs); err != nil {
		return err
	}
	err := ep.await(ctx, w, cs[0])
	for _, c := range cs {
		if err == nil {
			err = c.err
		}
	}
	return err
}

// await waits for all contexts; it returns ctx's error if that is why they
// ended.
func (ep *Endpoint) await(ctx context.Context, w *waiter, first *Context) error {
	select {
	case <-w.signal:
		return nil
	case <-ctx.Done():
	}
	seen := ep.poller.lookOut()
	canceled := ep.Cancel(first)
	if !seen.wait(w.signal, ep.cancelGrace) {
		if !canceled {
			ep.Fail(ErrCanceled)
		}
		ep.poller.pollUntil(w.signal, forever)
	} else if !canceled && !seen.vain {
		return nil // it made it
	}
	return seen.verdict(ctx.Err())
}
