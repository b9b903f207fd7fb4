package mrpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// useLocally makes one use of a registration with local rights, which stays valid after it.
func useLocally(t *testing.T, m *MR, list ...transport.Piece) {
	t.Helper()
	_, err := m.MapLocal(list, start, 0, ReadSink)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	require.False(t, m.Put())
}

func another(t *testing.T, pd transport.PD) *transport.Region {
	t.Helper()
	r, err := pd.Device().NewRegion(transport.RegionConfig{Size: 1 << 16, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(r))
	t.Cleanup(func() { require.NoError(t, pd.RemoveRegion(r)); require.NoError(t, r.Close()) })
	return r
}

// What is free and valid, and covers some of the region, is replaced; what covers others, or
// nothing any more, is left as it is.
func TestForgetReplacesWhatIsValidForTheRegion(t *testing.T) {
	pd, r := newPD(t, "mlx5-kernel", sim.Faults{})
	other, third := another(t, pd), another(t, pd)
	p := newPool(t, pd, Config{FastMRs: 5})
	mrs := make([]*MR, 5)
	require.NoError(t, p.Take(transport.FastMR, mrs, "test"))
	useLocally(t, mrs[0], r.Piece(0, 4096))
	useLocally(t, mrs[1], other.Piece(0, 4096))
	useLocally(t, mrs[2], other.Piece(0, 4096), r.Piece(0, 4096))
	_, err := mrs[3].MapLocal([]transport.Piece{r.Piece(0, 4096)}, start, 0, ReadSink)
	require.NoError(t, err)
	mrs[3].Put() // it was never posted
	mrs[4].Put()

	require.NoError(t, p.Forget(third))
	require.EqualValues(t, 1, p.Stats(transport.FastMR).Repairs, "that of several regions might be")
	require.NoError(t, p.Forget(r))
	require.EqualValues(t, 2, p.Stats(transport.FastMR).Repairs)
	require.Equal(t, 5, p.Stats(transport.FastMR).Free)
	require.NoError(t, p.Forget(other))
	require.NoError(t, p.Forget(other))
	require.EqualValues(t, 3, p.Stats(transport.FastMR).Repairs)
}

// A registration that was mapped anew, and put back without being posted, still covers what
// it did before.
func TestForgetKnowsWhatWasPosted(t *testing.T) {
	pd, r := newPD(t, "mlx5-kernel", sim.Faults{})
	other := another(t, pd)
	p := newPool(t, pd, Config{FastMRs: 1})
	useLocally(t, take(t, p, transport.FastMR), r.Piece(0, 4096))
	m := take(t, p, transport.FastMR)
	_, err := m.MapLocal([]transport.Piece{other.Piece(0, 4096)}, start, 0, ReadSink)
	require.NoError(t, err)
	require.NoError(t, p.Forget(r))
	require.Zero(t, p.Stats(transport.FastMR).Repairs, "it is out: nothing is done")
	m.Put()
	require.NoError(t, p.Forget(other))
	require.Zero(t, p.Stats(transport.FastMR).Repairs, "nothing of that was posted")
	require.NoError(t, p.Forget(r))
	require.EqualValues(t, 1, p.Stats(transport.FastMR).Repairs)
}

// What can't be replaced is set aside.
func TestForgetWhereNothingCanBeMade(t *testing.T) {
	failing := false
	pd, r := newPD(t, "mlx5-kernel", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if failing && what == sim.AllocRegistration {
			return transport.ErrNoMemory
		}
		return nil
	}})
	p := newPool(t, pd, Config{FastMRs: 1})
	useLocally(t, take(t, p, transport.FastMR), r.Piece(0, 4096))
	failing = true
	err := p.Forget(r)
	require.ErrorIs(t, err, ErrNotReplaced)
	require.ErrorIs(t, err, transport.ErrNoMemory)
	require.Equal(t, 1, p.Stats(transport.FastMR).Broken)
	failing = false
	require.NoError(t, p.Repair())
	require.Equal(t, 1, p.Stats(transport.FastMR).Free)
}
