package rw_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/transport/sim"
)

// drawn has rapid choose.
func drawn(t *rapid.T) choose {
	return func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) }
}

// Any legal work on any device arrives intact, costs what the plans say, and leaves
// credits, pool and keys as it found them.
func TestRandomWorkArrivesIntactAndLeavesNothing(t *testing.T) {
	for _, profiles := range profileGroups() {
		t.Run(profiles[0].Name, func(t *testing.T) {
			done := 0
			rapid.Check(t, func(t *rapid.T) {
				c := drawn(t)
				w := newWorkload(t, c, randomConfig(c, profiles[c(len(profiles), "profile")]))
				for range 1 + c(3, "rounds") {
					w.round()
				}
				w.requireRules()
				w.finish()
				done += w.done
			})
			require.Greater(t, done, 100, "most work is possible")
		})
	}
}

// profileGroups divides the profiles: each group gets as many random runs.
func profileGroups() (groups [][]sim.Profile) {
	all := planProfiles()
	for len(all) > 0 {
		n := min(profilesPerCheck, len(all))
		groups = append(groups, all[:n])
		all = all[n:]
	}
	return groups
}
