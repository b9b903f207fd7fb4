package rw_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
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

// When completions are lost all endpoints end in the order of their making, so that what they
// had comes back in the same order in each run.
func TestLostCompletionsEndEndpointsInOrder(t *testing.T) {
	profile, ok := sim.LookupProfile("mlx5")
	require.True(t, ok)
	fabric := sim.New(sim.Config{Seed: 1, Stepped: true})
	defer fabric.Close()
	dev, err := fabric.NewDevice(profile, "a")
	require.NoError(t, err)
	listener, err := dev.Listen("a:0")
	require.NoError(t, err)
	now := func() time.Time { return time.Unix(0, 0).Add(fabric.Now()) }
	poller, err := rw.NewPoller(dev, 4096, rw.PollerConfig{Workers: -1, Now: now})
	require.NoError(t, err)
	pd, err := dev.NewPD()
	require.NoError(t, err)
	pool, err := mrpool.New(pd, mrpool.Config{})
	require.NoError(t, err)
	r, err := dev.NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(r))
	var ended, want []any
	cs := make([]rw.Context, 16)
	for i := range cs {
		conn, err := dev.Resolve(t.Context(), listener.Addr())
		require.NoError(t, err)
		ep, err := poller.NewEndpoint(conn, rw.EndpointConfig{Pool: pool, QueueCaps: transport.QueueCaps{MaxSendWR: 8, MaxRecvWR: 8}})
		require.NoError(t, err)
		cs[i].Owner = i
		cs[i].OnDone = func(c *rw.Context) { ended = append(ended, c.Owner) }
		require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: []transport.Piece{r.Piece(0, 8)}, Remote: []transport.Remote{{Len: 8}}}))
		require.NoError(t, ep.Submit(&cs[i])) // it waits for the connection
		want = append(want, i)
	}
	rw.LoseCompletions(poller)
	_, err = poller.Poll(nil)
	require.ErrorIs(t, err, transport.ErrCQOverrun)
	require.Equal(t, want, ended)
}
