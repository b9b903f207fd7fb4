package rw_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// exclusive is a poller that belongs to the goroutine that runs it: whoever else wants
// something of it calls. Under the race detector, that it takes no lock would show.
type exclusive struct {
	t      *testing.T
	poller *rw.Poller
}

func newExclusive(t *testing.T, dev transport.Device) *exclusive {
	poller, err := rw.NewPoller(dev, 1024, rw.PollerConfig{Exclusive: true})
	require.NoError(t, err)
	x := &exclusive{t, poller}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- poller.Run(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-stopped, context.Canceled)
		require.NoError(t, poller.Close())
	})
	return x
}

// call has f called by the one, and waits for it.
func (x *exclusive) call(f func()) {
	done := make(chan struct{})
	x.poller.Call(func() { defer close(done); f() })
	<-done
}

// await has the one submit a chain, and waits for the last of it.
func (x *exclusive) await(ep *rw.Endpoint, cs ...*rw.Context) error {
	done := make(chan error, 1)
	cs[len(cs)-1].OnDone = func(c *rw.Context) { done <- c.Err() }
	x.call(func() {
		if err := ep.Submit(cs...); err != nil {
			done <- err
		}
	})
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		x.t.Fatal("not done")
		return nil
	}
}

// A connection of an exclusive poller does what others do, workers and all, and what
// would wait for somebody else to poll is refused.
func TestExclusivePoller(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		x := newExclusive(t, p.a.dev)
		ctx := within(t, 20*time.Second)
		accepted := make(chan *rw.Endpoint, 1)
		go func() {
			defer close(accepted)
			conn, err := p.listen.Next(ctx)
			if err != nil {
				t.Errorf("next: %v", err)
				return
			}
			ep, err := p.b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.b.pool})
			if err != nil {
				t.Errorf("endpoint: %v", err)
				return
			}
			if _, err := ep.Accept(ctx, transport.ConnParams{}); err != nil {
				t.Errorf("accept: %v", err)
			}
			accepted <- ep
		}()
		conn, err := p.a.dev.Resolve(ctx, p.listen.Addr())
		require.NoError(t, err)
		var a *rw.Endpoint
		x.call(func() { a, err = x.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool}) })
		require.NoError(t, err)
		_, err = a.Connect(ctx, transport.ConnParams{})
		require.NoError(t, err)
		b := <-accepted
		require.NotNil(t, b)
		defer b.Close()

		fill(p.b.region.Bytes(), 3)
		far := []transport.Piece{p.b.region.Piece(777, 40*1000)}
		var source rw.Exposure
		remote := p.b.expose(b, &source, far, mrpool.ReadSource)
		local := scattered(p.a.region, 40, 1000, 24)
		for range 3 {
			var c rw.Context
			x.call(func() { err = a.Prepare(&c, rw.Transfer{Op: rw.Read, Local: local, Remote: remote}) })
			require.NoError(t, err)
			require.NoError(t, x.await(a, &c))
			require.Equal(t, bytesOf(p.b.region, far), bytesOf(p.a.region, local))
			fill(p.a.region.Bytes(), 4)
		}
		p.b.revoke(b, &source)

		var sink rw.Exposure // workers register it where that blocks, and revoke it
		x.call(func() { err = a.Expose(&sink, []transport.Piece{p.a.region.Piece(4096, 5000)}, mrpool.WriteSink) })
		require.NoError(t, err)
		require.NoError(t, x.await(a, &sink.Grant))
		var remotes []transport.Remote
		x.call(func() { remotes = append(remotes, sink.Remotes()...) })
		require.NoError(t, b.Write(ctx, []transport.Piece{p.b.region.Piece(0, 5000)}, remotes...))
		require.NoError(t, x.await(a, &sink.Revoke))

		require.ErrorIs(t, a.Read(ctx, local, remote...), rw.ErrExclusive)
		x.call(func() { err = a.Close() })
		require.ErrorIs(t, err, rw.ErrExclusive)
		<-a.Closed()
		x.call(func() { err = a.Close() })
		require.NoError(t, err)
	})
}

// What is called comes in order, and is found by a poller that waits.
func TestCallsComeInOrder(t *testing.T) {
	bed := testbeds[0]
	dev, _, _ := bed.open(t)
	x := newExclusive(t, dev)
	var got []int
	for i := range 100 {
		x.poller.Call(func() { got = append(got, i) })
		if i%10 == 0 {
			time.Sleep(time.Millisecond) // it waits by now
		}
	}
	x.call(func() {
		require.Len(t, got, 100)
		require.IsIncreasing(t, got)
	})
}
