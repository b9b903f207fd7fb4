package rw_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// kindOf is the kind of registration that a profile's READs take.
var kindOf = map[string]transport.RegistrationKind{"siw": transport.SyncMR, "siw-kernel": transport.FastMR}

func smallPool(t *testing.T, pd transport.PD, kind transport.RegistrationKind, n int) *mrpool.Pool {
	cfg := mrpool.Config{SyncMRs: n}
	if kind == transport.FastMR {
		cfg = mrpool.Config{FastMRs: n}
	}
	pool, err := mrpool.New(pd, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close(), "no registration is out") })
	return pool
}

// An endpoint with a reservation goes on when others have taken the rest of the
// pool, one without waits; both get on when something comes back.
func TestReservedRegistrationsAreThereWhenThePoolIsEmpty(t *testing.T) {
	for profile, kind := range kindOf {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			fill(p.b.region.Bytes(), 1)
			remote := p.source(t, 8192, mrpool.ReadSource)
			pool := smallPool(t, p.a.pd, kind, 3)
			reserving, _ := p.dial(t, rw.EndpointConfig{Pool: pool, Reserve: 2}, rw.EndpointConfig{})
			common, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
			require.Equal(t, 2, pool.Stats(kind).Reserved)
			var hog [1]*mrpool.MR
			require.NoError(t, pool.Take(kind, hog[:], "hog"))
			require.ErrorIs(t, pool.Take(kind, make([]*mrpool.MR, 1), "hog"), mrpool.ErrEmpty)

			var waits, c rw.Context
			ended := make(chan error, 1)
			waits.OnDone = func(c *rw.Context) { ended <- c.Err() }
			require.NoError(t, common.Prepare(&waits, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 1, 64, 0), Remote: remote}))
			require.NoError(t, common.Submit(&waits))
			for range 5 {
				p.read(t, reserving, &c, scattered(p.a.region, 2, 1000, 50), remote)
			}
			require.Empty(t, ended, "nothing free for everybody came back")
			hog[0].Put()
			require.NoError(t, <-ended)

			conn, err := p.a.dev.Resolve(within(t, 1e9), p.listen.Addr())
			require.NoError(t, err)
			_, err = p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: pool, Reserve: 2})
			require.ErrorIs(t, err, mrpool.ErrEmpty, "1 is not reserved")
			require.NoError(t, conn.Close())
			require.Equal(t, 2, pool.Stats(kind).Reserved)
			require.NoError(t, reserving.Close())
			require.Zero(t, pool.Stats(kind).Reserved, "given up with the endpoint")
		})
	}
}

// A reservation is of each kind that the pool has, or of none.
func TestReservationIsOfAllKindsOrNone(t *testing.T) {
	p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
	pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: 2, SyncMRs: 8})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	conn, err := p.a.dev.Resolve(within(t, 1e9), p.listen.Addr())
	require.NoError(t, err)
	_, err = p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: pool, Reserve: 4})
	require.ErrorIs(t, err, mrpool.ErrEmpty)
	require.NoError(t, conn.Close())
	for kind := range transport.NumRegistrationKinds {
		require.Zero(t, pool.Stats(kind).Reserved)
	}
	ep, _ := p.dial(t, rw.EndpointConfig{Pool: pool, Reserve: 2}, rw.EndpointConfig{})
	require.Equal(t, 2, pool.Stats(transport.FastMR).Reserved)
	require.Equal(t, 2, pool.Stats(transport.SyncMR).Reserved)
	require.NoError(t, ep.Close())
}

// A peer with a domain of its own can't use a sibling's keys, though these are of
// registrations that answer to a whole domain.
func TestIsolatedPeersCantUseEachOthersKeys(t *testing.T) {
	for _, profile := range []string{"siw", "siw-kernel", "mlx5-kernel", "bnxt_re"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			cfg := mrpool.Config{SyncMRs: 4}
			if p.b.dev.Caps().FastReg.MaxPages > 0 {
				cfg.FastMRs = 4
			}
			pool, err := mrpool.NewIsolated(p.b.dev, cfg, p.b.region)
			require.NoError(t, err)
			require.True(t, pool.Isolated())
			require.False(t, p.b.pool.Isolated())
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			mine, minesPeer := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{Pool: pool})
			require.True(t, minesPeer.Limits().Isolated)

			fill(p.a.region.Bytes(), 1)
			fill(p.b.region.Bytes(), 2)
			before := append([]byte(nil), p.b.region.Bytes()...)
			far := []transport.Piece{p.b.region.Piece(8192, 4096)}
			var x rw.Exposure
			given := p.b.expose(minesPeer, &x, far, mrpool.WriteSink|mrpool.ReadSource)
			local := []transport.Piece{p.a.region.Piece(0, 4096)}
			err = p.a.ep.Write(within(t, 5e9), local, given...) // the sibling
			if p.a.dev.Caps().Protocol != transport.IWARP {
				require.ErrorIs(t, err, transport.StatusRemoteAccess)
			}
			settle(t, p.a.ep, p.b.ep)
			requireUntouched(t, p.b.region, before, nil)
			require.NoError(t, mine.Write(within(t, 20e9), local, given...))
			require.Equal(t, bytesOf(p.a.region, local), bytesOf(p.b.region, far))
			p.b.revoke(minesPeer, &x)
		})
	}
}

// A key that a living peer was told is never valid again for it: not after 256 uses
// either, when the byte of the key that changes has gone round. mlx4: a key reused
// too soon let a late packet in, bbdc2821db04; list 3.6 "256 reuses (key wrap)";
// pitfalls 26.
func TestKeysThatAPeerWasToldAreNeverReused(t *testing.T) {
	for _, profile := range []string{"siw-kernel", "mlx5-kernel", "mlx5", "irdma-roce"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			cfg := mrpool.Config{Windows: 2}
			kind := transport.Window
			if p.b.dev.Caps().FastReg.MaxPages > 0 {
				cfg = mrpool.Config{FastMRs: 2}
				kind = transport.FastMR
			}
			pool, err := mrpool.New(p.b.pd, cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			_, ep := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{Pool: pool})
			told := make(map[transport.RKey]int)
			var x rw.Exposure
			for use := range 1200 {
				for _, r := range p.b.expose(ep, &x, []transport.Piece{p.b.region.Piece(0, 64)}, mrpool.ReadSource) {
					before, again := told[r.Key]
					require.False(t, again, "key %v of use %d again in use %d", r.Key, before, use)
					told[r.Key] = use
				}
				p.b.revoke(ep, &x)
			}
			s := pool.Stats(kind)
			require.GreaterOrEqual(t, s.Repairs, uint64(3), "each 256 uses of one it is replaced")
			require.NoError(t, ep.Close())
			s = pool.Stats(kind)
			require.Equal(t, 2, s.Free+s.Broken, fmt.Sprintf("with the peer gone its registrations are of use again: %+v", s))
		})
	}
}
