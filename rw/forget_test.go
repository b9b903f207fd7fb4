package rw_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// A READ by a fast registration leaves it valid until its next use, on devices where no peer
// sees its key. When the pool has forgotten the region it can be taken out of the domain, with
// endpoint and pool in use as before.
func TestRegionCanGoWhenThePoolHasForgottenIt(t *testing.T) {
	for _, profile := range []string{"mlx5-kernel", "irdma-roce-kernel"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{Policy: rw.Policy{RegisterAbove: 1}})
			r, err := p.a.dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.Close()) })
			require.NoError(t, p.a.pd.AddRegion(r))
			remote := p.source(t, 64*4096, mrpool.ReadSource)
			var c rw.Context
			require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(r, 64, 4096, 0), Remote: remote}))
			require.Equal(t, rw.FastReg, c.Plan().Strategy)
			require.NoError(t, await(t, p.a.ep, &c))
			require.ErrorIs(t, p.a.pd.RemoveRegion(r), transport.ErrBusy)
			require.NoError(t, p.a.pool.Forget(r))
			require.NoError(t, p.a.pd.RemoveRegion(r))

			require.NoError(t, p.a.ep.Read(within(t, 20*time.Second), scattered(p.a.region, 64, 4096, 0), remote...))
		})
	}
}
