package target

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// counting is a device that counts the regions that are made.
type counting struct {
	transport.Device
	regions int
}

func (c *counting) NewRegion(cfg transport.RegionConfig) (*transport.Region, error) {
	c.regions++
	return c.Device.NewRegion(cfg)
}

// What a queue had is the next one's, if that is alike; for a while; and it is freed at the end.
func TestArenasAreUsedAgain(t *testing.T) {
	r := newRig(t, "siw", Config{})
	dev := &counting{Device: r.dev}
	p, err := newPort(r.Target, dev)
	require.NoError(t, err)
	take := func(kind arenaKind) *arena {
		a, err := p.newArena(kind, 1<<16, mrpool.Config{SyncMRs: 2})
		require.NoError(t, err)
		return a
	}
	io32, io64, admin := arenaKind{entries: 32}, arenaKind{entries: 64}, arenaKind{admin: true, entries: 32}

	a := take(io32)
	require.NoError(t, p.retire(a, true))
	b, c := take(io64), take(admin)
	require.Same(t, a, take(io32))
	other := take(io32)
	require.NotSame(t, a, other)
	require.NoError(t, other.close())
	require.Equal(t, 4, dev.regions)

	// One of which something is in use is no spare, and Close says what.
	var mr [1]*mrpool.MR
	require.NoError(t, b.pool.Take(transport.SyncMR, mr[:], "somebody"))
	var leak *mrpool.LeakError
	require.ErrorAs(t, p.retire(b, true), &leak)
	require.Empty(t, p.spares)

	require.NoError(t, p.retire(a, true))
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.spares) == 0
	}, 20*time.Second, 10*time.Millisecond, "it stays a spare")

	require.NoError(t, p.retire(take(io64), false))
	require.Empty(t, p.spares, "of a queue that has failed")

	require.NoError(t, p.retire(c, true))
	p.freeSpares()
	require.Empty(t, p.spares)
	d := take(io32)
	require.NoError(t, p.retire(d, true))
	require.Empty(t, p.spares, "kept by a port that has closed")
}

// A queue that lingers hands its arena on. It is freed when neither of its queue pairs is left,
// in whatever order they go, and whoever wanted it freed.
func TestArenasThatAreHandedOn(t *testing.T) {
	r := newRig(t, "rxe", Config{})
	p, err := newPort(r.Target, r.dev)
	require.NoError(t, err)
	kind := arenaKind{entries: 32}
	take := func() *arena {
		a, err := p.newArena(kind, 1<<16, mrpool.Config{SyncMRs: 2})
		require.NoError(t, err)
		return a
	}
	freed := func(a *arena) bool {
		var mr [1]*mrpool.MR
		err := a.pool.Take(transport.SyncMR, mr[:], "test")
		if err == nil {
			mr[0].Put()
		}
		return errors.Is(err, mrpool.ErrClosed)
	}

	// The next queue fails while the last one's queue pair is still there.
	a := take()
	require.True(t, p.offer(a))
	require.Same(t, a, take())
	require.NoError(t, p.retire(a, false))
	require.False(t, freed(a))
	require.NoError(t, p.drop(a, false))
	require.True(t, freed(a))

	// The last one's goes first, as it mostly does.
	a = take()
	require.True(t, p.offer(a))
	require.Same(t, a, take())
	require.NoError(t, p.drop(a, false))
	require.False(t, freed(a))
	require.NoError(t, p.retire(a, true))
	require.Same(t, a, take(), "it is a spare again")

	// Nobody wants it, and its time as a spare is over before the queue pair's.
	require.True(t, p.offer(a))
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return a.doomed
	}, 20*time.Second, 10*time.Millisecond)
	require.False(t, freed(a))
	require.NoError(t, p.drop(a, false))
	require.True(t, freed(a))

	// The port ends.
	a = take()
	require.True(t, p.offer(a))
	p.freeSpares()
	require.False(t, freed(a))
	require.False(t, p.offer(a), "by a port that has closed")
	require.NoError(t, p.drop(a, false))
	require.True(t, freed(a))
}

// A host that comes back gets what it had, and its data is right.
func TestHostsThatComeBack(t *testing.T) {
	for _, profile := range append(profiles, realDevices()...) {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{})
			for i := range 5 {
				h := r.host()
				s := h.session(1, dialConfig{})
				exercise(t, s.io[0], uint64(i)*64, 64, 1, 9, 20)
				s.io[0].close()
				s.admin.close()
				require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)
			}
			assert.Equal(t, uint64(0), r.Stats().Rejected)
		})
	}
}
