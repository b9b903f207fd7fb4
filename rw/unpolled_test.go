package rw_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// unpolled is an endpoint whose poller nobody polls, beside the pair's own, and memory of
// its peer's.
func unpolled(t *testing.T, p *pair, cfg rw.EndpointConfig) (*rw.Poller, *rw.Endpoint, []transport.Remote) {
	poller, err := rw.NewPoller(p.a.dev, 1024, rw.PollerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, poller.Close()) })
	own := *p.a
	own.poller = poller
	ep, peer := (&pair{a: &own, b: p.b, listen: p.listen}).dial(t, cfg, rw.EndpointConfig{})
	far := p.b.expose(peer, new(rw.Exposure), []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.ReadSource|mrpool.WriteSink)
	return poller, ep, far
}

// soon is enough for what takes some hundred milliseconds, on a machine that others use.
const soon = 10 * time.Second

var impatient = rw.EndpointConfig{CancelGrace: 200 * time.Millisecond, DrainTimeout: 100 * time.Millisecond}

// Calls that wait for others to poll end when their time is over even if nobody does, and
// say so. What the device had carried out meanwhile costs the endpoint nothing.
func TestCallsEndThoughNobodyPolls(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel", "mlx5-kernel", "fmr"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			poller, ep, far := unpolled(t, p, impatient)
			local := scattered(p.a.region, 4, 1024, 0)
			begun := time.Now()
			for _, call := range []func(context.Context, []transport.Piece, ...transport.Remote) error{ep.Read, ep.Write} {
				err := call(within(t, 10*time.Millisecond), local, far...)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, rw.ErrNotPolled)
			}
			require.NoError(t, ep.Err())
			require.Less(t, time.Since(begun), soon)

			ctx, cancel := context.WithCancel(context.Background())
			stopped := make(chan error)
			go func() { stopped <- poller.Run(ctx, nil) }()
			require.NoError(t, ep.Read(within(t, time.Minute), local, far...))
			cancel()
			require.ErrorIs(t, <-stopped, context.Canceled)

			var message rw.Context // its flush is what nobody polls for
			require.NoError(t, ep.PrepareRecv(&message, []transport.Piece{p.a.region.Piece(0, 64)}))
			require.NoError(t, ep.PostRecv(&message))
			begun = time.Now()
			require.ErrorIs(t, ep.Close(), rw.ErrNotPolled)
			require.NoError(t, ep.Close(), "it is closed all the same")
			require.Less(t, time.Since(begun), soon)
			p.holdsNothing(t, ep, p.a.pool)
		})
	}
}

// Nor do they wait for a device that never answers.
func TestCallsEndThoughNobodyPollsAndNothingComes(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel", "mlx5-kernel"} {
		t.Run(profile, func(t *testing.T) {
			late := func(_ *sim.QP, _ uint64, wr *transport.WR) time.Duration {
				if wr.Op.IsRead() {
					return time.Hour
				}
				return 0
			}
			p := connect(t, faultyBed(profile, sim.Faults{Delay: late}), rw.EndpointConfig{})
			_, ep, far := unpolled(t, p, impatient)
			recvs := make([]rw.Context, 2)
			for i := range recvs {
				require.NoError(t, ep.PrepareRecv(&recvs[i], []transport.Piece{p.a.region.Piece(0, 64)}))
			}
			require.NoError(t, ep.PostRecv(&recvs[0], &recvs[1]))
			begun := time.Now()
			err := ep.Read(within(t, 50*time.Millisecond), scattered(p.a.region, 1, 4096, 0), far[0])
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, rw.ErrNotPolled)
			require.ErrorIs(t, ep.Err(), rw.ErrCanceled)
			require.NoError(t, ep.Close(), "its queue pair is gone already")
			require.Less(t, time.Since(begun), soon)
			p.holdsNothing(t, ep, p.a.pool)
		})
	}
}

// Contexts that no call waits for, and what was left for the goroutine that polls, stay for
// whoever polls at last, in their order.
func TestWhatNobodyWaitsForStaysForThePoll(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	poller, ep, far := unpolled(t, p, impatient)
	local := scattered(p.a.region, 1, 4096, 0)
	cs := make([]rw.Context, 4)
	for i := range cs {
		require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: local, Remote: far}))
		if i == 2 {
			require.ErrorIs(t, ep.Do(within(t, time.Millisecond), &cs[i]), rw.ErrNotPolled)
			continue
		}
		require.NoError(t, ep.Submit(&cs[i]))
	}
	var message rw.Context
	called := false
	poller.Call(func() { called = true })
	cs[3].OnDone = func(*rw.Context) { require.Fail(t, "given to its OnDone by Close") }
	require.NoError(t, ep.PrepareRecv(&message, local))
	require.NoError(t, ep.PostRecv(&message))
	require.ErrorIs(t, ep.Close(), rw.ErrNotPolled)
	require.False(t, called)
	cs[3].OnDone = nil
	var done [8]*rw.Context
	n, err := poller.Poll(done[:])
	require.NoError(t, err)
	require.Equal(t, []*rw.Context{&cs[0], &cs[1], &cs[3], &message}, done[:n])
	require.True(t, called)
}

// What waits for credits leaves, and harms nobody.
func TestACallThatNobodyPollsForLeavesTheQueue(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	cfg := impatient
	cfg.MaxSendWR = 2
	poller, ep, far := unpolled(t, p, cfg)
	free, _ := ep.Credits()
	cs := make([]rw.Context, free) // they hold their credits until somebody polls
	for i := range cs {
		require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 1, 4096, 0), Remote: far}))
		require.NoError(t, ep.Submit(&cs[i]))
	}
	err := ep.Write(within(t, time.Millisecond), scattered(p.a.region, 1, 4096, 0), far...)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, rw.ErrNotPolled)
	require.NoError(t, ep.Err())
	done := make([]*rw.Context, len(cs))
	n, err := poller.Poll(done)
	require.NoError(t, err)
	require.Equal(t, len(cs), n)
	for i := range cs {
		require.Same(t, &cs[i], done[i])
		require.NoError(t, cs[i].Err())
	}
	require.NoError(t, ep.Close(), "nothing was under way")
}

// In one goroutine nobody else polls: calls that would wait are refused, and have done
// nothing.
func TestCallsThatWaitAreRefusedInStepped(t *testing.T) {
	fabric := sim.New(sim.Config{Stepped: true})
	defer fabric.Close()
	cfg := rw.PollerConfig{Workers: -1, Now: fabric.Clock()}
	a, b := newExampleSide(fabric, "rxe", "a", cfg), newExampleSide(fabric, "rxe", "b", cfg)
	listener, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	defer listener.Close()
	conn, err := a.dev.Resolve(t.Context(), "b:1")
	require.NoError(t, err)
	ep := a.endpoint(conn)
	_, err = ep.Connect(t.Context(), transport.ConnParams{})
	require.ErrorIs(t, err, transport.ErrTimeout, "nobody accepts")

	err = ep.Write(t.Context(), []transport.Piece{a.region.Piece(0, 8)}, transport.Remote{Len: 8})
	require.ErrorIs(t, err, transport.ErrDeadlock)
	require.ErrorIs(t, ep.Close(), transport.ErrDeadlock)
	poll := func() error {
		_, err := a.poller.Poll(nil)
		return err
	}
	require.NoError(t, fabric.RunUntil(func() bool { return ep.Close() == nil }, poll))
	require.NoError(t, a.poller.Close())
}
