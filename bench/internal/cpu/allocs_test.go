//go:build !race

package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Not under the race detector, which allocates.
func TestNothingIsAllocated(t *testing.T) {
	for _, c := range Cases {
		r, _ := open(t, c)
		require.NoError(t, r.ours(10)) // lists reach their sizes
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := r.ours(1); err != nil {
				t.Error(err)
			}
		}), c)
	}
}
