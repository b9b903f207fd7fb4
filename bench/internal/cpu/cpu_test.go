package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/rw"
)

func open(t testing.TB, c Case) (*rig, *floor) {
	r, err := newRig(c, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.close()) })
	f, err := newFloor(r)
	require.NoError(t, err)
	return r, f
}

// The floor is one only if it writes what the library writes.
func TestFloorAndLibraryPostTheSame(t *testing.T) {
	for _, c := range Cases {
		t.Run(c.String(), func(t *testing.T) {
			r, f := open(t, c)
			require.NoError(t, r.ours(1)) // from here on there is something to invalidate
			for _, n := range []int{1, 2, 10} {
				byHand, err := r.batch(f.run, n)
				require.NoError(t, err)
				byLibrary, err := r.batch(r.ours, n)
				require.NoError(t, err)
				require.Equal(t, byHand.sum, byLibrary.sum)
				require.Equal(t, byHand.slots, byLibrary.slots)
				require.Equal(t, c.Pool, byHand.slots == 0)
			}
		})
	}
}

func TestPlansAreWhatTheCasesSay(t *testing.T) {
	for _, c := range Cases {
		if c.Pool {
			continue
		}
		r, _ := open(t, c)
		require.NoError(t, r.ours(1))
		cost := r.c.Plan().Cost
		require.Equal(t, c.WRs(), cost.WRs+cost.Registrations, c)
		require.Equal(t, c.FastReg, r.c.Plan().Strategy == rw.FastReg, c)
	}
}

func BenchmarkTransfer(b *testing.B) {
	for _, c := range Cases {
		r, f := open(b, c)
		for _, one := range []struct {
			name string
			run  func(int) error
		}{{"floor", f.run}, {"rw", r.ours}} {
			b.Run(c.String()+"/"+one.name, func(b *testing.B) {
				b.ReportAllocs()
				require.NoError(b, one.run(b.N))
			})
		}
	}
}

// What planning alone takes.
func BenchmarkPrepare(b *testing.B) {
	for _, c := range Cases {
		if c.Pool {
			continue
		}
		r, _ := open(b, c)
		t := rw.Transfer{Op: r.Op, Local: r.pieces, Remote: r.remote}
		b.Run(c.String(), func(b *testing.B) {
			for range b.N {
				r.ep.Prepare(&r.c, t)
			}
		})
	}
}
