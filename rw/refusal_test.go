package rw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// What the random work found, each by itself: a device refuses something in the
// middle, and what is around it must not suffer.

func steppedOn(t *testing.T, profile string, change func(cfg *steppedConfig)) *stepped {
	p, ok := sim.LookupProfile(profile)
	require.True(t, ok)
	cfg := steppedConfig{profile: p, seed: 1, memory: 64 << 10, pool: mrpool.Config{SyncMRs: 16}, queues: transport.QueueCaps{MaxSendWR: 32}}
	if p.Caps.FastReg.MaxPages > 0 {
		cfg.pool.FastMRs = 2
	}
	if p.Caps.Windows != transport.NoWindows {
		cfg.pool.Windows = 4
	}
	change(&cfg)
	return newStepped(t, cfg)
}

// exposeAll makes all memory of B reachable.
func (s *stepped) exposeAll(x *rw.Exposure, ops mrpool.RemoteOps) []transport.Remote {
	b := s.ends[1]
	require.NoError(s.t, b.ep.Expose(x, []transport.Piece{b.region.Piece(0, uint32(b.region.Len()))}, ops))
	require.NoError(s.t, b.ep.Submit(&x.Grant))
	require.True(s.t, s.until(func() bool { return len(b.done) > 0 }))
	require.NoError(s.t, x.Grant.Err())
	b.done = nil
	return x.Remotes()
}

// A chain of which the device takes only the first part: its READs are flushed, and
// a READ that was flushed hasn't read anything, though it stands before the request
// that was refused.
func TestFlushedBeforeARefusedRequestIsNoSuccess(t *testing.T) {
	for _, dies := range []bool{false, true} { // then nothing completes at all
		armed := false
		s := steppedOn(t, "mlx4", func(cfg *steppedConfig) {
			cfg.faults.Post = func(_ *sim.QP, _ uint64, wr *transport.WR) error {
				if armed && wr.Op == transport.OpSend {
					return transport.ErrNoMemory
				}
				return nil
			}
		})
		a, b := s.ends[0], s.ends[1]
		fill(b.region.Bytes(), 1)
		var x rw.Exposure
		remote := s.exposeAll(&x, mrpool.ReadSource)
		var read, send rw.Context
		require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 4096)}, Remote: remote}))
		require.NoError(t, a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{a.region.Piece(8192, 8)}}))
		armed = true
		require.NoError(t, a.ep.Submit(&read, &send))
		if dies {
			a.sim.Kill()
		}
		a.ep.StartClose()
		require.True(t, s.until(func() bool { return len(a.done) == 2 }))
		if read.Err() == nil {
			require.Equal(t, b.region.Bytes()[:4096], a.region.Bytes()[:4096], "what is said to have been read was")
		}
		require.ErrorIs(t, send.Err(), transport.ErrNoMemory)
		s.closeEndpoints()
		s.close()
	}
}

// A device that can't make one more registration costs the READ that needs it, not
// the endpoint, and not those behind it.
func TestRegistrationThatCantBeMade(t *testing.T) {
	for _, what := range []sim.Allocation{sim.AllocRegistration, sim.AllocMap} {
		armed := false
		s := steppedOn(t, "siw", func(cfg *steppedConfig) {
			cfg.depth = 1 // so that the second READ waits for the first
			cfg.faults.Allocate = func(_ *sim.Device, a sim.Allocation) error {
				if armed && a == what {
					armed = false
					return transport.ErrNoMemory
				}
				return nil
			}
		})
		a, b := s.ends[0], s.ends[1]
		fill(b.region.Bytes(), 1)
		var x rw.Exposure
		remote := s.exposeAll(&x, mrpool.ReadSource)
		before := a.charged()
		var reads [2]rw.Context
		for i := range reads {
			require.NoError(t, a.ep.Prepare(&reads[i], rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(uint64(i)*4096, 4096)}, Remote: remote}))
		}
		armed = true
		require.NoError(t, a.ep.Submit(&reads[0]))
		require.NoError(t, a.ep.Submit(&reads[1]))
		require.True(t, s.until(func() bool { return len(a.done) == 2 }), "both end")
		require.ErrorIs(t, reads[0].Err(), transport.ErrNoMemory)
		require.NoError(t, reads[1].Err())
		require.Equal(t, b.region.Bytes()[:4096], a.region.Bytes()[4096:8192])
		require.NoError(t, a.ep.Err())
		require.Equal(t, before, a.charged())
		s.closeEndpoints()
		s.close()
	}
}

// A chain that waits for the pool gives back what it took for its transfers. What
// an exposure in the same chain holds it was given before, and is still to be
// granted.
func TestChainThatWaitsKeepsItsExposure(t *testing.T) {
	s := steppedOn(t, "siw-kernel", func(*steppedConfig) {})
	a, b := s.ends[0], s.ends[1]
	fill(b.region.Bytes(), 1)
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.ReadSource)
	var offered rw.Exposure
	require.NoError(t, a.ep.Expose(&offered, []transport.Piece{a.region.Piece(8192, 100)}, mrpool.WriteSink))
	var held [1]*mrpool.MR
	require.NoError(t, a.pool.Take(transport.FastMR, held[:], "test")) // the last
	var read rw.Context
	require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 4096)}, Remote: remote}))
	require.NoError(t, a.ep.Submit(&offered.Grant, &read))
	s.until(func() bool { return false })
	require.Empty(t, a.dev.posts, "it waits for the pool")
	require.Len(t, offered.Remotes(), 1)
	held[0].Put()
	require.True(t, s.until(func() bool { return len(a.done) == 2 }))
	require.NoError(t, read.Err())

	// The key that the peer was told works.
	var write rw.Context
	require.Len(t, offered.Remotes(), 1)
	require.NoError(t, b.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: []transport.Piece{b.region.Piece(0, 100)}, Remote: offered.Remotes()}))
	require.NoError(t, b.ep.Submit(&write))
	require.True(t, s.until(func() bool { return len(b.done) == 1 }))
	s.until(func() bool { return false }) // until it has arrived
	require.NoError(t, a.ep.Err())
	require.Equal(t, b.region.Bytes()[:100], a.region.Bytes()[8192:8292])
	s.closeEndpoints()
	s.close()
}

// A transport that maps less than it said it would is found out: what it covers isn't
// READ into, and no registration is lost for it.
func TestTransportThatCoversLessThanItSays(t *testing.T) {
	for _, profile := range []string{"siw", "siw-kernel"} {
		s := steppedOn(t, profile, func(*steppedConfig) {})
		a := s.ends[0]
		var x rw.Exposure
		remote := s.exposeAll(&x, mrpool.ReadSource)
		var read rw.Context
		require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 4096)}, Remote: remote}))
		a.dev.short = 1
		require.NoError(t, a.ep.Submit(&read))
		require.True(t, s.until(func() bool { return len(a.done) == 1 }))
		require.ErrorIs(t, read.Err(), transport.ErrUnsupported)
		require.ErrorContains(t, read.Err(), "a defect of the transport")
		require.Empty(t, a.dev.posts)
		a.dev.short = 0
		for kind := range transport.NumRegistrationKinds {
			require.Zero(t, a.pool.Stats(kind).Out+a.pool.Stats(kind).Broken)
		}
		s.closeEndpoints()
		s.close()
	}
}

// When the poller's table of chains is full what is submitted is refused, and as it was.
func TestMoreChainsThanCanBe(t *testing.T) {
	s := steppedOn(t, "siw-kernel", func(*steppedConfig) {})
	a := s.ends[0]
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.ReadSource|mrpool.WriteSink)
	var read, write, recv rw.Context
	require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 4096)}, Remote: remote}))
	require.NoError(t, a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: []transport.Piece{a.region.Piece(0, 4096)}, Remote: remote}))
	require.NoError(t, a.ep.PrepareRecv(&recv, nil))
	before := a.charged()
	restore := rw.FillChains(a.poller)
	require.ErrorContains(t, a.ep.Submit(&write), "operations are under way")
	require.ErrorContains(t, a.ep.Submit(&read), "operations are under way")
	require.ErrorContains(t, a.ep.Submit(&read, &write), "operations are under way")
	require.ErrorContains(t, a.ep.PostRecv(&recv), "operations are under way")
	require.Equal(t, before, a.charged())
	restore()
	require.NoError(t, a.ep.Submit(&read))
	require.NoError(t, a.ep.Submit(&write))
	require.True(t, s.until(func() bool { return len(a.done) == 2 }))
	require.NoError(t, read.Err())
	require.NoError(t, write.Err())
	s.closeEndpoints()
	s.close()
}
