package rw_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// The queue pair is in the error state before anybody here knows: on siw what is posted
// from then on never completes, and there is no use in waiting for a marker. Everything
// comes back by count, or when the queue pair is destroyed at the deadline.
// kernel-rdma-rw.md 4.7; list 3.6 "drain when the QP is already in ERR"; X722:
// pitfalls 70, 78.
func TestDrainOfAQueuePairThatIsInErrorAlready(t *testing.T) {
	for _, profile := range []string{"siw", "cxgb4", "rxe", "mlx5"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{DrainTimeout: 100 * time.Millisecond})
			got := p.a.postRecv(p.a.ep)
			require.NoError(t, p.a.ep.Conn().QP().Fail())
			cs := make([]rw.Context, 3)
			ended := make(chan error, len(cs))
			for i := range cs {
				cs[i].OnDone = func(c *rw.Context) { ended <- c.Err() }
				err := p.a.ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 40, 8, 0), Remote: []transport.Remote{{Len: 1 << 20}}})
				require.NoError(t, err)
				if err = p.a.ep.Submit(&cs[i]); err != nil {
					ended <- err
				}
			}
			require.NoError(t, p.a.ep.Close())
			for range cs {
				require.Error(t, <-ended)
			}
			require.ErrorIs(t, receive(t, got).Err(), transport.StatusFlushed)
			p.holdsNothing(t, p.a.ep, p.a.pool)
		})
	}
}

// Requests that flush complete though they are unsignaled; a poller's completion queue
// has room for all of them, of all its endpoints, or takes no more endpoints. list 3.6
// "flush of unsignaled WRs into a small CQ"; afcae7d7b8a2.
func TestFlushesFitTheCompletionQueue(t *testing.T) {
	devA, devB, addr := simBed("mlx5").open(t)
	p := &pair{a: newSide(t, devA), b: newSide(t, devB)}
	var err error
	p.listen, err = devB.Listen(addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.listen.Close()) })
	poller, err := rw.NewPoller(devA, 2*(32+4), rw.PollerConfig{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	ended := make(chan *rw.Context, 16)
	go func() { stopped <- poller.Run(ctx, func(c *rw.Context) { ended <- c }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-stopped, context.Canceled, "no overrun")
		require.NoError(t, poller.Close())
	})
	small := rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 32, MaxRecvWR: 4}, Pool: p.a.pool}
	eps := make([]*rw.Endpoint, 2)
	own := *p.a
	own.poller = poller
	for i := range eps {
		eps[i], _ = (&pair{a: &own, b: p.b, listen: p.listen}).dial(t, small, rw.EndpointConfig{})
	}
	conn, err := devA.Resolve(within(t, 20*time.Second), p.listen.Addr())
	require.NoError(t, err)
	_, err = poller.NewEndpoint(conn, small)
	require.ErrorIs(t, err, rw.ErrCQTooSmall)
	require.ErrorContains(t, err, "NewPoller needs at least")
	ep, err := p.a.poller.NewEndpoint(conn, small)
	require.NoError(t, err, "the connection is as good as before")
	require.NoError(t, ep.Close())

	var list []transport.Piece
	for i := range uint64(31 * 16) {
		list = append(list, p.a.region.Piece(16*i, 8))
	}
	recvs, cs := make([]rw.Context, 8), make([]rw.Context, 2)
	for i, ep := range eps {
		for j := range 4 {
			require.NoError(t, ep.PrepareRecv(&recvs[4*i+j], nil))
			require.NoError(t, ep.PostRecv(&recvs[4*i+j]))
		}
		// 31 requests with no completion of their own but the last; their key is refused,
		// so that all behind the first flush.
		require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: list, Remote: []transport.Remote{{Len: 1 << 20, Key: 99}}}))
		require.Equal(t, 31, cs[i].Plan().Cost.WRs)
		require.NoError(t, ep.Submit(&cs[i]))
	}
	for range len(recvs) + len(cs) {
		require.Error(t, (<-ended).Err())
	}
	for i := range cs {
		require.ErrorIs(t, cs[i].Err(), transport.StatusRemoteAccess)
	}
}

// A request that is lost and never accounted for costs the queue pair at the deadline,
// and no sooner; receives come back with it. pitfalls 78.
func TestDeadlineOfADrain(t *testing.T) {
	for _, profile := range []string{"rxe", "siw-kernel"} {
		t.Run(profile, func(t *testing.T) {
			const timeout = 100 * time.Millisecond
			p, _ := stuck(t, profile, rw.EndpointConfig{DrainTimeout: timeout})
			var c rw.Context
			ended := make(chan error, 1)
			c.OnDone = func(c *rw.Context) { ended <- c.Err() }
			require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 1, 8, 0), Remote: []transport.Remote{{Len: 8}}}))
			require.NoError(t, p.a.ep.Submit(&c))
			begun := time.Now()
			cause := fmt.Errorf("for the test")
			p.a.ep.Fail(cause)
			p.a.ep.Fail(rw.ErrCanceled)
			require.ErrorIs(t, <-ended, cause)
			require.ErrorIs(t, p.a.ep.Err(), cause, "the first cause stays")
			require.Less(t, time.Since(begun), 20*time.Second)
			require.NoError(t, p.a.ep.Close())
			p.holdsNothing(t, p.a.ep, p.a.pool)
		})
	}
}

// The device goes away under everything: all of it comes back, and says why.
func TestDeviceIsRemovedUnderAnEndpoint(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{DrainTimeout: 100 * time.Millisecond})
			remote := p.source(t, 4096, mrpool.ReadSource)
			got := p.a.postRecv(p.a.ep)
			p.a.dev.(*sim.Device).Remove()
			require.ErrorIs(t, receive(t, got).Err(), transport.StatusFlushed)
			var c rw.Context
			require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 1, 8, 0), Remote: remote}))
			require.ErrorIs(t, await(t, p.a.ep, &c), transport.ErrDeviceRemoved)
			require.ErrorIs(t, p.a.ep.Err(), transport.ErrDeviceRemoved)
		})
	}
}

// An endpoint that can't be made leaves its connection with the caller and nothing in
// pool and poller. kernel-rdma-rw.md 7, 11.
func TestEndpointThatCantBeMade(t *testing.T) {
	full := false
	p := connect(t, faultyBed("siw", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if full && what == sim.AllocQueue {
			return transport.ErrNoMemory
		}
		return nil
	}}), rw.EndpointConfig{})
	conn, err := p.a.dev.Resolve(within(t, time.Second), p.listen.Addr())
	require.NoError(t, err)
	full = true
	_, err = p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool, Reserve: 3})
	require.ErrorIs(t, err, transport.ErrNoMemory)
	full = false
	_, err = p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool, QueueCaps: transport.QueueCaps{MaxSendWR: 1}})
	require.ErrorIs(t, err, transport.ErrInvalid, "no room beside the slot kept for draining")
	require.Zero(t, p.a.pool.Stats(transport.SyncMR).Reserved)
	ep, err := p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool})
	require.NoError(t, err, "the connection is still good")
	require.NoError(t, ep.Close())
}
