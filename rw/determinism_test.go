package rw_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport/sim"
)

// eventLog is what the fabric writes down of one workload: the work is always the
// same, the seed is that of the schedule.
func eventLog(t *testing.T, profile sim.Profile, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(7, 7))
	c := choose(func(n int, _ string) int { return rng.IntN(n) })
	cfg := randomConfig(c, profile)
	cfg.seed = seed
	var log bytes.Buffer
	cfg.log = &log
	w := newWorkload(t, c, cfg)
	for range 3 {
		w.round()
	}
	w.finish()
	require.NotZero(t, w.done)
	return log.Bytes()
}

// Two runs with one seed are the same, byte for byte, endpoints, pollers and pools
// and all; another seed is another run.
func TestSeedDeterminesTheRun(t *testing.T) {
	for _, profile := range planProfiles() {
		t.Run(profile.Name, func(t *testing.T) {
			first := eventLog(t, profile, 1)
			require.True(t, bytes.Equal(first, eventLog(t, profile, 1)), "the same again")
			require.False(t, bytes.Equal(first, eventLog(t, profile, 2)), "another seed, another run")
		})
	}
}
