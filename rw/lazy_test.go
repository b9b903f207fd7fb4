package rw_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// Where a device does better with registrations than with long lists of SGEs
// (mlx5: max_sgl_rd is 3), a READ above that is registered; no peer sees the key, so
// that it stays valid, and its invalidation heads the next use.
// rw.c: rdma_rw_io_needs_mr, rdma_rw_init_one_mr; list 3.6 "post, ok, reuse".
func TestReadsAboveTheHintAreRegistered(t *testing.T) {
	p, r := recorded(t, "mlx5-kernel", rw.EndpointConfig{})
	fill(p.b.region.Bytes(), 1)
	remote := p.source(t, 2<<20, mrpool.ReadSource)
	var c rw.Context
	for _, pieces := range []int{1, 3} {
		plan := p.read(t, p.a.ep, &c, scattered(p.a.region, pieces, 4096, 0), remote)
		require.Equal(t, rw.Direct, plan.Strategy)
		require.Equal(t, "READ", opcodes(r.take()))
	}
	for i, pieces := range []int{4, 256, 4} {
		plan := p.read(t, p.a.ep, &c, scattered(p.a.region, pieces, 4096, 0), remote)
		require.Equal(t, rw.Plan{Strategy: rw.FastReg, Bytes: uint64(pieces) * 4096, Cost: rw.Cost{WRs: 2, Reads: 1, Registrations: 1}}, plan)
		wrs := r.take()
		if i == 0 {
			require.Equal(t, "FAST_REG READ", opcodes(wrs), "never used before")
		} else {
			require.Equal(t, "LOCAL_INV FAST_REG READ", opcodes(wrs))
			require.Equal(t, wrs[0].Reg, wrs[1].Reg)
			require.Equal(t, wrs[0].KeyByte+1, wrs[1].KeyByte)
		}
	}
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// The hint can be overruled: never, or from another number on, also where the
// device has no opinion.
func TestRegisterAboveOverrulesTheHint(t *testing.T) {
	for _, tt := range []struct {
		profile string
		above   int
		pieces  int
		want    rw.Strategy
	}{
		{"mlx5-kernel", -1, 256, rw.Direct},
		{"mlx5-kernel", 10, 10, rw.Direct},
		{"mlx5-kernel", 10, 11, rw.FastReg},
		{"rxe-kernel", 0, 256, rw.Direct},
		{"rxe-kernel", 16, 16, rw.Direct},
		{"rxe-kernel", 16, 17, rw.FastReg},
		{"rxe", 1, 17, rw.Direct}, // no fast registration in user space
	} {
		t.Run(fmt.Sprintf("%s, %d pieces, above %d", tt.profile, tt.pieces, tt.above), func(t *testing.T) {
			p := connect(t, simBed(tt.profile), rw.EndpointConfig{Policy: rw.Policy{RegisterAbove: tt.above}})
			fill(p.b.region.Bytes(), 2)
			var c rw.Context
			plan := p.read(t, p.a.ep, &c, scattered(p.a.region, tt.pieces, 4096, 0), p.source(t, 2<<20, mrpool.ReadSource))
			require.Equal(t, tt.want, plan.Strategy)
		})
	}
}

// Registrations are an optimisation there: without one free, a READ goes direct at
// once instead of waiting, and says so.
// rw.c 00da250c21b0: pool exhaustion was fatal.
func TestEmptyPoolFallsBackToDirect(t *testing.T) {
	p, r := recorded(t, "mlx5-kernel", rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendSGE: 30}})
	fill(p.b.region.Bytes(), 3)
	remote := p.source(t, 2<<20, mrpool.ReadSource)
	all := make([]*mrpool.MR, p.a.pool.Size(transport.FastMR))
	require.NoError(t, p.a.pool.Take(transport.FastMR, all, "test"))
	var c rw.Context
	list := scattered(p.a.region, 256, 4096, 0)
	require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
	require.Equal(t, rw.FastReg, c.Plan().Strategy, "nothing is taken before it is submitted")
	require.NoError(t, await(t, p.a.ep, &c))
	require.Equal(t, bytesOf(p.b.region, []transport.Piece{p.b.region.Piece(0, 1<<20)}), bytesOf(p.a.region, list))
	require.Equal(t, rw.Plan{Strategy: rw.Direct, Fallback: true, Bytes: 1 << 20, Cost: rw.Cost{WRs: 9, Reads: 9}}, c.Plan())
	require.Len(t, r.take(), 9)

	for _, m := range all {
		m.Put()
	}
	plan := p.read(t, p.a.ep, &c, list, remote)
	require.Equal(t, rw.FastReg, plan.Strategy)
	require.False(t, plan.Fallback)
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// The registrations that a chain has taken go back when one of its contexts finds
// none left and the chain is planned again.
func TestFallbackInAChainPutsBackWhatWasTaken(t *testing.T) {
	p, r := recorded(t, "mlx5-kernel", rw.EndpointConfig{})
	fill(p.b.region.Bytes(), 4)
	remote := p.source(t, 2<<20, mrpool.ReadSource)
	all := make([]*mrpool.MR, p.a.pool.Size(transport.FastMR)-1) // one is left for two
	require.NoError(t, p.a.pool.Take(transport.FastMR, all, "test"))
	var one, two rw.Context
	list := scattered(p.a.region, 8, 4096, 0)
	for i, c := range []*rw.Context{&one, &two} {
		require.NoError(t, p.a.ep.Prepare(c, rw.Transfer{Op: rw.Read, Local: list[4*i:][:4], Remote: remote}))
	}
	require.NoError(t, await(t, p.a.ep, &one, &two))
	require.Equal(t, rw.FastReg, one.Plan().Strategy)
	require.False(t, one.Plan().Fallback)
	require.Equal(t, rw.Direct, two.Plan().Strategy)
	require.True(t, two.Plan().Fallback)
	require.Equal(t, "FAST_REG READ READ", opcodes(r.take()))
	for _, m := range all {
		m.Put()
	}
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// A chain that fits the send queue only with registrations waits for them when there
// are none: it was accepted.
func TestFallbackThatDoesNotFitWaits(t *testing.T) {
	p := connect(t, simBed("mlx5-kernel"), rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 16, MaxSendSGE: 30}})
	require.Equal(t, 15, p.a.ep.Limits().SendWR)
	remote := p.source(t, 2<<20, mrpool.ReadSource|mrpool.WriteSink)
	all := make([]*mrpool.MR, p.a.pool.Size(transport.FastMR))
	require.NoError(t, p.a.pool.Take(transport.FastMR, all, "test"))
	var read, write rw.Context
	prepare := func() {
		require.NoError(t, p.a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 256, 4096, 0), Remote: remote}))
		require.NoError(t, p.a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 200, 10, 0), Remote: remote}))
	}
	prepare() // 9 direct READs, or INV, REG, READ; and 7 WRITEs
	ended := make(chan error, 1)
	go func() { ended <- p.a.ep.Do(within(t, time.Minute), &read, &write) }()
	require.Eventually(t, func() bool { return rw.Queued(p.a.ep) }, time.Minute, time.Millisecond)
	for _, m := range all {
		m.Put()
	}
	require.NoError(t, <-ended)
	require.Equal(t, rw.FastReg, read.Plan().Strategy)
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// A region that was taken away between the plan and the fall-back is an error of the
// READ, not of the endpoint.
func TestFallbackAfterItsRegionIsGone(t *testing.T) {
	p := connect(t, simBed("mlx5-kernel"), rw.EndpointConfig{})
	remote := p.source(t, 2<<20, mrpool.ReadSource)
	other, err := p.a.dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, p.a.pd.AddRegion(other))
	all := make([]*mrpool.MR, p.a.pool.Size(transport.FastMR))
	require.NoError(t, p.a.pool.Take(transport.FastMR, all, "test"))
	var c rw.Context
	require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: apart(other, 8), Remote: remote}))
	require.NoError(t, p.a.pd.RemoveRegion(other))
	require.ErrorIs(t, await(t, p.a.ep, &c), transport.ErrRegion)
	require.NoError(t, p.a.ep.Err())
	for _, m := range all {
		m.Put()
	}
	require.NoError(t, other.Close())
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// The knob of tests registers the memory of every transfer, where the device would
// not: by work requests where it can, else by calls (rw.c: force_mr).
func TestForcedRegistration(t *testing.T) {
	for profile, want := range map[string]rw.Strategy{
		"rxe": rw.SyncReg, "siw": rw.SyncReg, "mlx5": rw.SyncReg,
		"rxe-kernel": rw.FastReg, "siw-kernel": rw.FastReg, "mlx5-kernel": rw.FastReg, "irdma-iwarp-kernel": rw.FastReg,
	} {
		for _, op := range []rw.Op{rw.Read, rw.Write} {
			t.Run(fmt.Sprint(profile, " ", op), func(t *testing.T) {
				p, r := recorded(t, profile, rw.EndpointConfig{Policy: rw.Policy{ForceRegistration: true, Sink: rw.SinkDirect}})
				remote := p.source(t, 5*4096, mrpool.ReadSource|mrpool.WriteSink)
				list := scattered(p.a.region, 5, 4096, 0)
				var c, send rw.Context
				for round := range 3 {
					fill(p.a.region.Bytes(), uint64(round))
					fill(p.b.region.Bytes(), uint64(100+round))
					require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: op, Local: list, Remote: remote}))
					require.Equal(t, want, c.Plan().Strategy)
					require.NoError(t, await(t, p.a.ep, &c))
					ops := opcodes(r.take())
					if op == rw.Write { // has it arrived? On iWARP only what follows it tells
						got := p.b.postRecv(p.b.ep)
						require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: list[:1]}))
						require.NoError(t, await(t, p.a.ep, &send))
						require.NoError(t, receive(t, got).Err())
						r.take()
					}
					require.Equal(t, p.b.region.Bytes()[:5*4096], bytesOf(p.a.region, list))
					switch {
					case want == rw.SyncReg:
						require.NotContains(t, ops, "REG")
					case op == rw.Read && p.a.dev.Caps().Protocol == transport.IWARP:
						require.Equal(t, "FAST_REG READ_WITH_INV", ops)
					case round == 0:
						require.Equal(t, "FAST_REG "+op.String(), ops)
					default:
						require.Equal(t, "LOCAL_INV FAST_REG "+op.String(), ops)
					}
				}
				p.holdsNothing(t, p.a.ep, p.a.pool)
			})
		}
	}
}
