package mrpool_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// Each registration of a list answers for the pieces that it covers, and for no
// others: checking the rest each time made long lists quadratic.
func TestPiecesAreCheckedByTheRegistrationThatCoversThem(t *testing.T) {
	fabric := sim.New(sim.Config{Stepped: true})
	profile, _ := sim.LookupProfile("siw-kernel")
	dev, err := fabric.NewDevice(profile, "siw-kernel")
	require.NoError(t, err)
	pd, err := dev.NewPD()
	require.NoError(t, err)
	writable, err := dev.NewRegion(transport.RegionConfig{Size: 1 << 16, Access: transport.LocalWrite})
	require.NoError(t, err)
	readOnly, err := dev.NewRegion(transport.RegionConfig{Size: 1 << 16})
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(writable))
	require.NoError(t, pd.AddRegion(readOnly))
	pool, err := mrpool.New(pd, mrpool.Config{FastMRs: 1, SyncMRs: 1})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, pool.Close())
		for _, r := range []*transport.Region{writable, readOnly} {
			require.NoError(t, pd.RemoveRegion(r))
			require.NoError(t, r.Close())
		}
		require.NoError(t, pd.Close())
		require.NoError(t, dev.Close())
		require.NoError(t, fabric.Close())
	}()
	list := []transport.Piece{writable.Piece(0, 4096), writable.Piece(8192, 4096), readOnly.Piece(0, 4096)}

	for _, tt := range []struct {
		kind transport.RegistrationKind
		from transport.Cursor
		n    uint64
		want error
	}{
		{transport.SyncMR, transport.Cursor{}, 0, nil},
		{transport.SyncMR, transport.Cursor{Piece: 1, Offset: 100}, 0, nil},
		{transport.SyncMR, transport.Cursor{Piece: 2}, 0, transport.ErrAccess},
		{transport.FastMR, transport.Cursor{}, 8192, nil},
		{transport.FastMR, transport.Cursor{Piece: 0, Offset: 1}, 8191, nil},
		{transport.FastMR, transport.Cursor{}, 8193, transport.ErrAccess},
		{transport.FastMR, transport.Cursor{}, 0, transport.ErrAccess},
	} {
		var one [1]*mrpool.MR
		require.NoError(t, pool.Take(tt.kind, one[:], "test"))
		_, err := one[0].MapRemote(list, tt.from, tt.n, mrpool.WriteSink)
		if tt.want == nil {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, tt.want, "%v from %+v", tt.kind, tt.from)
		}
		if tt.kind == transport.SyncMR {
			require.NoError(t, one[0].Revoke())
		}
		require.False(t, one[0].Put())
	}
}
