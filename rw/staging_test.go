package rw_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// newStaging gives side A staging memory of its own.
func newStaging(t *testing.T, s *side, size, slot int) *rw.Staging {
	r, err := s.dev.NewRegion(transport.RegionConfig{Size: size, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, s.pd.AddRegion(r))
	staging, err := rw.NewStaging(s.pool, r, slot)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, staging.Close())
		require.NoError(t, staging.Close(), "closing twice is harmless")
		require.NoError(t, s.pd.RemoveRegion(r))
		require.NoError(t, r.Close())
	})
	return staging
}

// stagedOn connects devices with an endpoint that stages.
func stagedOn(t *testing.T, bed testbed, size, slot int) (*pair, *rw.Endpoint, *rw.Staging) {
	p := connect(t, bed, rw.EndpointConfig{})
	s := newStaging(t, p.a, size, slot)
	ep, _ := p.dial(t, rw.EndpointConfig{Policy: rw.Policy{Sink: rw.SinkStaging}, Staging: s}, rw.EndpointConfig{})
	return p, ep, s
}

var iwarp = []string{"siw", "siw-kernel", "cxgb4", "irdma-iwarp-kernel"}

// READs that are staged land where they belong, byte for byte, whatever the pieces
// and the slots; the only key that a peer sees is the staging memory's.
func TestStagedReadsLandWhereTheyBelong(t *testing.T) {
	for _, profile := range iwarp {
		t.Run(profile, func(t *testing.T) {
			p, ep, _ := stagedOn(t, simBed(profile), 10*1000, 1000)
			fill(p.b.region.Bytes(), 5)
			remote := p.source(t, 20000, mrpool.ReadSource)
			var key transport.LKey
			var c rw.Context
			for _, tt := range []struct {
				list           []transport.Piece
				offset, length uint64
				cuts           int
				want           rw.Cost
			}{
				{scattered(p.a.region, 1, 1, 0), 0, 0, 1, rw.Cost{WRs: 1, Reads: 1, Slots: 1, StagedBytes: 1}},
				{scattered(p.a.region, 1, 1000, 7), 0, 0, 1, rw.Cost{WRs: 1, Reads: 1, Slots: 1, StagedBytes: 1000}},
				{scattered(p.a.region, 1, 1001, 7), 0, 0, 1, rw.Cost{WRs: 2, Reads: 2, Slots: 2, StagedBytes: 1001}},
				{scattered(p.a.region, 10, 1000, 0), 0, 0, 1, rw.Cost{WRs: 10, Reads: 10, Slots: 10, StagedBytes: 10000}},
				{scattered(p.a.region, 7, 333, 5), 400, 1500, 1, rw.Cost{WRs: 2, Reads: 2, Slots: 2, StagedBytes: 1500}},
				{append(scattered(p.a.region, 3, 600, 0), p.a.region.Piece(0, 0)), 600, 0, 1, rw.Cost{WRs: 2, Reads: 2, Slots: 2, StagedBytes: 1200}},
				{scattered(p.a.region, 3, 700, 0), 0, 0, 3, rw.Cost{WRs: 5, Reads: 5, Slots: 3, StagedBytes: 2100}},
			} {
				clear(p.a.region.Bytes())
				before := slices.Clone(p.a.region.Bytes())
				far := cut(slices.Clone(remote), tt.cuts)
				require.NoError(t, ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: tt.list, Offset: tt.offset, Length: tt.length, Remote: far}))
				require.NoError(t, await(t, ep, &c))
				require.Equal(t, rw.Plan{Strategy: rw.Staged, Bytes: tt.want.StagedBytes, Cost: tt.want}, c.Plan())
				got := bytesOf(p.a.region, tt.list)[tt.offset:][:tt.want.StagedBytes]
				require.Equal(t, p.b.region.Bytes()[:len(got)], got)
				if tt.offset == 0 {
					requireUntouched(t, p.a.region, before, tt.list)
				}
				if key == 0 {
					key = rw.SinkKey(&c)
				}
				require.Equal(t, key, rw.SinkKey(&c), "one key for all")
			}
			require.NotEqual(t, p.a.pd.Regions().View().Lookup(p.a.region.ID()).LKey, key)
		})
	}
}

// What is larger than the staging memory is registered strictly; what the pool can't
// register may be staged.
func TestStagingAndRegistrationStandInForEachOther(t *testing.T) {
	p, ep, s := stagedOn(t, simBed("siw"), 10*1000, 1000)
	fill(p.b.region.Bytes(), 6)
	remote := p.source(t, 20000, mrpool.ReadSource)
	var c rw.Context
	require.Equal(t, rw.SyncReg, p.read(t, ep, &c, scattered(p.a.region, 1, 10001, 0), remote).Strategy)
	require.Equal(t, rw.Staged, p.read(t, ep, &c, scattered(p.a.region, 1, 10000, 0), remote).Strategy)

	pool, err := mrpool.New(p.a.pd, mrpool.Config{SyncMRs: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	strict, _ := p.dial(t, rw.EndpointConfig{Pool: pool, Staging: s}, rw.EndpointConfig{})
	require.Equal(t, rw.SyncReg, p.read(t, strict, &c, scattered(p.a.region, 2, 100, 0), remote).Strategy)
	require.Equal(t, rw.Staged, p.read(t, strict, &c, scattered(p.a.region, 3, 100, 0), remote).Strategy, "three runs, two registrations")
	err = strict.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 3, 5000, 0), Remote: remote})
	require.ErrorIs(t, err, rw.ErrTooLarge, "too large for both")

	forced, _ := p.dial(t, rw.EndpointConfig{Staging: s, Policy: rw.Policy{Sink: rw.SinkStaging, ForceRegistration: true}}, rw.EndpointConfig{})
	require.Equal(t, rw.SyncReg, p.read(t, forced, &c, scattered(p.a.region, 2, 100, 0), remote).Strategy)
}

// Endpoints that share staging memory wait for its slots, and get them.
func TestStagingSlotsAreWaitedFor(t *testing.T) {
	p, one, s := stagedOn(t, simBed("siw"), 3*1000, 1000)
	two, _ := p.dial(t, rw.EndpointConfig{Policy: rw.Policy{Sink: rw.SinkStaging}, Staging: s}, rw.EndpointConfig{})
	fill(p.b.region.Bytes(), 7)
	remote := p.source(t, 20000, mrpool.ReadSource)
	const n = 40
	cs := make([]rw.Context, n)
	ended := make(chan *rw.Context, n)
	list := scattered(p.a.region, n, 2000, 0)
	for i := range cs {
		ep := []*rw.Endpoint{one, two}[i%2]
		cs[i].OnDone = func(c *rw.Context) { ended <- c }
		require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Read, Local: list[i : i+1], Length: uint64(1 + i%2*1999), Remote: remote}))
		require.NoError(t, ep.Submit(&cs[i]))
	}
	for range cs {
		select {
		case c := <-ended:
			require.NoError(t, c.Err())
			require.Equal(t, rw.Staged, c.Plan().Strategy)
		case <-time.After(time.Minute):
			t.Fatal("a READ never got its slots")
		}
	}
	require.Equal(t, p.b.region.Bytes()[:2000], bytesOf(p.a.region, list[n-1:]))
	require.NoError(t, s.Close(), "all slots are back")
}

// A staged READ that fails copies nothing, and its slots come back: but not to
// another READ before the device is done with them.
func TestFailedStagedRead(t *testing.T) {
	var failing onlySide
	p, ep, s := stagedOn(t, faultyBed("siw", sim.Faults{Run: func(q *sim.QP, k uint64, _ *transport.WR) transport.Status {
		if failing.is(q) && k == 1 {
			return transport.StatusGeneral
		}
		return transport.StatusOK
	}}), 3*1000, 1000)
	failing.qpn.Store(ep.Conn().QP().Num())
	remote := p.source(t, 20000, mrpool.ReadSource)
	fill(p.a.region.Bytes(), 8)
	before := slices.Clone(p.a.region.Bytes())
	var c rw.Context
	require.NoError(t, ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 1, 3000, 0), Remote: remote}))
	require.ErrorIs(t, await(t, ep, &c), transport.StatusGeneral)
	requireUntouched(t, p.a.region, before, nil)
	require.NoError(t, s.Close(), "all slots are back")
}

// While a READ is under way its staging memory can't be closed; and if its sink is
// taken out of the domain meanwhile, it fails without touching it.
func TestStagingUnderWay(t *testing.T) {
	var slow onlySide
	p, ep, s := stagedOn(t, faultyBed("siw", sim.Faults{Delay: func(q *sim.QP, _ uint64, _ *transport.WR) time.Duration {
		if slow.is(q) {
			return 200 * time.Millisecond
		}
		return 0
	}}), 3*1000, 1000)
	slow.qpn.Store(ep.Conn().QP().Num())
	remote := p.source(t, 20000, mrpool.ReadSource)
	other, err := p.a.dev.NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, p.a.pd.AddRegion(other))
	var c, behind rw.Context
	ended := make(chan error, 1)
	c.OnDone = func(c *rw.Context) { ended <- c.Err() }
	require.NoError(t, ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{other.Piece(0, 3000)}, Remote: remote}))
	require.NoError(t, ep.PrepareSend(&behind, rw.Message{}))
	require.ErrorIs(t, ep.Submit(&c, &behind), rw.ErrChain, "a staged READ is over after its copy only")
	require.NoError(t, ep.Submit(&c))
	require.ErrorIs(t, s.Close(), transport.ErrBusy)
	require.NoError(t, p.a.pd.RemoveRegion(other))
	require.ErrorIs(t, <-ended, transport.ErrRegion)
	require.Equal(t, make([]byte, 4096), other.Bytes())
	require.NoError(t, other.Close())
}

func TestStagingIsRefused(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{})
	r, err := p.a.dev.NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
	require.NoError(t, err)
	for _, slot := range []int{-1, 0, 4097} {
		_, err = rw.NewStaging(p.a.pool, r, slot)
		require.ErrorIs(t, err, transport.ErrInvalid, "slots of %d bytes", slot)
	}
	_, err = rw.NewStaging(p.a.pool, r, 4096)
	require.ErrorIs(t, err, transport.ErrRegion, "not in the domain")
	readOnly, err := p.a.dev.NewRegion(transport.RegionConfig{Size: 4096})
	require.NoError(t, err)
	require.NoError(t, p.a.pd.AddRegion(readOnly))
	_, err = rw.NewStaging(p.a.pool, readOnly, 4096)
	require.ErrorIs(t, err, transport.ErrAccess)
	require.NoError(t, p.a.pd.RemoveRegion(readOnly))
	require.NoError(t, readOnly.Close())

	empty, err := mrpool.New(p.a.pd, mrpool.Config{})
	require.NoError(t, err)
	_, err = rw.NewStaging(empty, r, 4096)
	require.ErrorIs(t, err, mrpool.ErrEmpty)
	require.NoError(t, empty.Close())
	require.NoError(t, r.Close())
	_, err = rw.NewStaging(p.a.pool, r, 4096)
	require.ErrorIs(t, err, transport.ErrUnsupported, "memory that the CPU can't see")
	require.Zero(t, p.a.pool.Stats(transport.SyncMR).Out)
}

// What is registered once as a sink serves many READs: one key, no registration per
// READ, with the rights that the device wants; and is dead when it is removed.
func TestPersistentSinks(t *testing.T) {
	for _, profile := range []string{"siw", "cxgb4", "irdma-iwarp"} {
		t.Run(profile, func(t *testing.T) {
			var maps atomic.Int32
			p := connect(t, faultyBed(profile, sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
				if what == sim.AllocMap {
					maps.Add(1)
				}
				return nil
			}}), rw.EndpointConfig{Policy: rw.Policy{Sink: rw.SinkPersistent}})
			fill(p.b.region.Bytes(), 9)
			remote := p.source(t, 1<<20, mrpool.ReadSource)
			list := scattered(p.a.region, 3, 5000, 1)
			var c rw.Context
			err := p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: list, Remote: remote})
			require.ErrorIs(t, err, transport.ErrRegion, "the region isn't a sink yet")

			require.NoError(t, p.a.pool.AddSink(p.a.region))
			before := maps.Load()
			var key transport.LKey
			for range 3 {
				clear(p.a.region.Bytes())
				plan := p.read(t, p.a.ep, &c, list, remote)
				require.Equal(t, rw.Direct, plan.Strategy)
				require.Zero(t, plan.Cost.Registrations)
				require.Contains(t, []transport.LKey{0, key}, key)
				key = rw.SinkKey(&c)
			}
			require.Equal(t, before, maps.Load(), "nothing more was registered")
			require.NotEqual(t, p.a.pd.Regions().View().Lookup(p.a.region.ID()).LKey, key, "not the region's own key")

			require.NoError(t, p.a.pool.RemoveSink(p.a.region))
			require.NoError(t, p.a.pool.RemoveSink(p.a.region), "removing twice is harmless")
			err = p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: list, Remote: remote})
			require.ErrorIs(t, err, transport.ErrRegion)
			require.Zero(t, p.a.pool.Stats(transport.SyncMR).Out)
		})
	}
}

// The regions' own keys serve as sinks where the device is content with their
// rights; where it wants remote write access they don't, and it is refused: a region
// is never remotely reachable. kernel-rdma-rw.md 36; pitfalls 65.
func TestDirectSinks(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{Policy: rw.Policy{Sink: rw.SinkDirect}})
	fill(p.b.region.Bytes(), 10)
	var c rw.Context
	plan := p.read(t, p.a.ep, &c, scattered(p.a.region, 4, 1000, 0), p.source(t, 4000, mrpool.ReadSource))
	require.Equal(t, rw.Plan{Strategy: rw.Direct, Bytes: 4000, Cost: rw.Cost{WRs: 4, Reads: 4}}, plan)
	require.Equal(t, p.a.pd.Regions().View().Lookup(p.a.region.ID()).LKey, rw.SinkKey(&c))

	for _, profile := range []string{"cxgb4", "irdma-iwarp"} {
		p := connect(t, simBed(profile), rw.EndpointConfig{Policy: rw.Policy{Sink: rw.SinkDirect}})
		err := p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 1, 8, 0), Remote: []transport.Remote{{Len: 8}}})
		require.ErrorIs(t, err, transport.ErrUnsupported, fmt.Sprint(profile))
	}
}

// A READ that is taken back while it waits for slots has none to give back: the next one
// doesn't get a slot that is in use.
func TestCanceledWaiterGivesBackNoSlots(t *testing.T) {
	s := steppedOn(t, "siw", func(cfg *steppedConfig) {
		cfg.policy.Sink, cfg.slots, cfg.slot = rw.SinkStaging, 1, 4096
	})
	a := s.ends[0]
	fill(s.ends[1].region.Bytes(), 1)
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.ReadSource)
	var reads [3]rw.Context
	submit := func(i int) {
		local := []transport.Piece{a.region.Piece(uint64(i)*8192, 4096)}
		require.NoError(t, a.ep.Prepare(&reads[i], rw.Transfer{Op: rw.Read, Local: local, Remote: remote}))
		require.Equal(t, rw.Staged, reads[i].Plan().Strategy)
		require.NoError(t, a.ep.Submit(&reads[i]))
	}
	submit(0)
	submit(1)
	require.True(t, a.ep.Cancel(&reads[1]))
	submit(2)
	a.poll()
	require.Len(t, a.dev.posts, 1, "it waits")
	require.True(t, s.until(func() bool { return len(a.done) == 3 }))
	require.NoError(t, reads[0].Err())
	require.ErrorIs(t, reads[1].Err(), rw.ErrCanceled)
	require.NoError(t, reads[2].Err())
	require.Len(t, a.dev.posts, 2)
	s.closeEndpoints()
	s.close()
}
