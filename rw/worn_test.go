package rw_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// The peer is told a key with each READ on iWARP, and a registration has 256 of them. When
// they are used up the READ after that is on its way like any other, though it needs all
// registrations that there are, and the peer is still there.
func TestPoolOfAnySizeRunsOnWhenKeysComeRound(t *testing.T) {
	const pieces, most = 4, 600
	for _, size := range []int{pieces, 2 * pieces, 16 * pieces} {
		p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
		pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: size})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
		a, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
		list := scattered(p.a.region, pieces, 64, 100) // gaps: a registration each
		remote := p.source(t, pieces*64, mrpool.ReadSource)
		for i := range most {
			require.NoError(t, a.Read(within(t, 20*time.Second), list, remote...),
				"READ %d: pool %+v", i, pool.Stats(transport.FastMR))
		}
	}
}

// The pool that Size computes for a workload is enough for it, for good.
func TestSizedPoolIsEnoughWhenKeysComeRound(t *testing.T) {
	p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
	sizes, err := rw.Size(rw.Workload{Reads: 1, Bytes: 256, Pieces: 4}, p.a.dev.Caps(), rw.Policy{}, 1)
	require.NoError(t, err)
	pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: sizes.FastMRs})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	a, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	list := scattered(p.a.region, 4, 64, 100)
	remote := p.source(t, 256, mrpool.ReadSource)
	for i := range 600 {
		require.NoError(t, a.Read(within(t, 20*time.Second), list, remote...), "READ %d: sizes %+v, pool %+v", i, sizes, pool.Stats(transport.FastMR))
	}
}

// So it is for exposures: none is refused for the lack of a registration.
func TestSizedPoolHoldsItsExposuresWhenKeysComeRound(t *testing.T) {
	for _, profile := range []string{"mlx5", "mlx5-kernel"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			const n = 4
			sizes, err := rw.Size(rw.Workload{Exposures: n, Bytes: 4096, Aligned: true}, p.a.dev.Caps(), rw.Policy{}, 1)
			require.NoError(t, err)
			pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: sizes.FastMRs, Windows: sizes.Windows, SyncMRs: sizes.SyncMRs})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			a, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
			var xs [n]rw.Exposure
			for round := range 600 {
				for i := range xs {
					err := a.Expose(&xs[i], []transport.Piece{p.a.region.Piece(uint64(i)*8192, 4096)}, mrpool.ReadSource)
					require.NoError(t, err, "round %d, exposure %d of %d; sizes %+v", round, i, n, sizes)
					require.NoError(t, await(t, a, &xs[i].Grant))
				}
				for i := range xs {
					require.NoError(t, await(t, a, &xs[i].Revoke))
				}
			}
		})
	}
}

// What others have reserved is theirs for as long as they live, and isn't waited for: what
// needs more than is left fails, also if it was waiting when they came, and what is behind it
// goes on.
func TestWhatOthersReservedIsNotWaitedFor(t *testing.T) {
	p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
	pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: 4})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	a, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	all, one := scattered(p.a.region, 4, 64, 100), scattered(p.a.region, 1, 64, 0)
	remote, little := p.source(t, 256, mrpool.ReadSource), p.source(t, 64, mrpool.ReadSource)

	mrs := make([]*mrpool.MR, 1)
	require.NoError(t, pool.Take(transport.FastMR, mrs, "somebody"))
	var large, small rw.Context
	require.NoError(t, a.Prepare(&large, rw.Transfer{Op: rw.Read, Local: all, Remote: remote}))
	require.NoError(t, a.Prepare(&small, rw.Transfer{Op: rw.Read, Local: one, Remote: little}))
	ended := make(chan *rw.Context, 2)
	large.OnDone = func(c *rw.Context) { ended <- c }
	small.OnDone = large.OnDone
	require.NoError(t, a.Submit(&large))
	require.NoError(t, a.Submit(&small))
	require.Empty(t, ended, "it waits for what somebody has")

	other, _ := p.dial(t, rw.EndpointConfig{Pool: pool, Reserve: 2}, rw.EndpointConfig{})
	require.Same(t, &large, <-ended)
	require.ErrorIs(t, large.Err(), rw.ErrTooLarge)
	require.Same(t, &small, <-ended)
	require.NoError(t, small.Err())
	mrs[0].Put()
	require.ErrorIs(t, a.Read(within(t, 20*time.Second), all, remote...), rw.ErrTooLarge)
	require.NoError(t, other.Read(within(t, 20*time.Second), all, remote...), "its own share it can have")

	require.NoError(t, other.Close())
	require.NoError(t, a.Read(within(t, 20*time.Second), all, remote...), "nobody has reserved any more")
}
