package rw_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// endsWith submits READs, in turn on several endpoints, and wants all of them to end
// with an error.
func endsWith(t *testing.T, want error, n int, tr rw.Transfer, eps ...*rw.Endpoint) {
	t.Helper()
	done := make(chan error, n)
	cs := make([]rw.Context, n)
	for i := range cs {
		ep := eps[i%len(eps)]
		cs[i].OnDone = func(c *rw.Context) { done <- c.Err() }
		require.NoError(t, ep.Prepare(&cs[i], tr))
		require.NoError(t, ep.Submit(&cs[i]))
	}
	for range cs {
		select {
		case err := <-done:
			require.ErrorIs(t, err, want)
		case <-time.After(20 * time.Second):
			t.Fatal("it waits for what never comes")
		}
	}
}

// The only registration was lost and can't be replaced: nothing will be put back that
// could be waited for, so READs that need it fail, on all endpoints of the pool, and the
// endpoints are well when the device is.
func TestReadsDontWaitForWhatCantBeMended(t *testing.T) {
	var failing atomic.Bool
	p := connect(t, faultyBed("siw-kernel", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if what == sim.AllocRegistration && failing.Load() {
			return transport.ErrNoMemory
		}
		return nil
	}}), rw.EndpointConfig{})
	pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	remote := p.source(t, 64, mrpool.ReadSource)
	list := scattered(p.a.region, 1, 64, 0)
	lost, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	one, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	two, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	failing.Store(true)
	require.Error(t, lost.Read(within(t, time.Minute), list, transport.Remote{Addr: 1, Len: 64, Key: 99}))
	endsWith(t, transport.ErrNoMemory, 5, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}, one, two)
	failing.Store(false)
	for _, ep := range []*rw.Endpoint{one, two} {
		// An attempt that began before that may still be under way, and ends what waits for
		// it like the others.
		require.Eventually(t, func() bool {
			err := ep.Read(within(t, time.Minute), list, remote...)
			if err != nil {
				assert.ErrorIs(t, err, transport.ErrNoMemory)
			}
			return err == nil
		}, 20*time.Second, time.Millisecond)
	}
}

// A pool that had enough when an endpoint was made may have given some away for good
// since: what needs more than is left is told so, whether it waits already or not.
func TestPoolThatHasLessThanItHad(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{})
	pool, err := mrpool.New(p.a.pd, mrpool.Config{SyncMRs: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	ep, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	remote := p.source(t, 128, mrpool.ReadSource)
	two := rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 2, 64, 0), Remote: remote}

	var mrs [1]*mrpool.MR
	require.NoError(t, pool.Take(transport.SyncMR, mrs[:], "test"))
	var waits rw.Context
	ended := make(chan error, 1)
	waits.OnDone = func(c *rw.Context) { ended <- c.Err() }
	require.NoError(t, ep.Prepare(&waits, two))
	require.NoError(t, ep.Submit(&waits))
	require.Empty(t, ended)
	mrs[0].Keep()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, rw.ErrTooLarge)
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for what never comes")
	}
	endsWith(t, rw.ErrTooLarge, 1, two, ep)
	require.NoError(t, ep.Read(within(t, time.Minute), two.Local[:1], remote...))
	mrs[0].Put()
	require.NoError(t, ep.Read(within(t, time.Minute), two.Local, remote...))
}
