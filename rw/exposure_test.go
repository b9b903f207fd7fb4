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

// exposing are profiles that differ in how they expose and revoke: registrations by
// work request, windows that invalidate, windows that don't, registrations by calls.
var exposing = []string{"siw-kernel", "mlx5-kernel", "mlx5", "rxe", "siw", "cxgb4-kernel"}

// Where an exposure is revoked by work request, the revocation is part of a chain like
// anything else: behind it the key is dead. Elsewhere it needs a chain of its own.
func TestRevocationInAChain(t *testing.T) {
	for _, profile := range exposing {
		t.Run(profile, func(t *testing.T) {
			p, r := recorded(t, profile, rw.EndpointConfig{})
			caps := p.a.dev.Caps()
			var x, y rw.Exposure
			require.NoError(t, p.a.ep.Expose(&x, apart(p.a.region, 2), mrpool.ReadSource))
			require.NoError(t, p.a.ep.Expose(&y, apart(p.a.region, 1), mrpool.WriteSink))
			got := p.b.postRecv(p.b.ep)
			var tell, bye rw.Context
			require.NoError(t, p.a.ep.PrepareSend(&tell, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 4)}}))
			require.NoError(t, await(t, p.a.ep, &x.Grant, &y.Grant, &tell))
			require.NoError(t, receive(t, got).Err())
			granted := opcodes(r.take())

			got = p.b.postRecv(p.b.ep)
			require.NoError(t, p.a.ep.PrepareSend(&bye, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 4)}}))
			err := p.a.ep.Submit(&x.Revoke, &bye)
			byWR := caps.FastReg.MaxPages > 0 || caps.LocalInv[transport.Window] == transport.InvWorks
			if !byWR {
				require.ErrorIs(t, err, rw.ErrChain)
				require.NoError(t, await(t, p.a.ep, &x.Revoke))
				require.NoError(t, await(t, p.a.ep, &y.Revoke))
				require.Empty(t, opcodes(r.take()), "revoked by calls")
				require.NoError(t, await(t, p.a.ep, &bye))
				return
			}
			require.NoError(t, err)
			require.NoError(t, receive(t, got).Err())
			require.NoError(t, await(t, p.a.ep, &y.Revoke))
			if caps.FastReg.Gaps {
				require.Equal(t, "FAST_REG FAST_REG SEND", granted, "a list by one key")
				require.Equal(t, "LOCAL_INV SEND LOCAL_INV", opcodes(r.take()))
			} else if caps.FastReg.MaxPages > 0 {
				require.Equal(t, "FAST_REG FAST_REG SEND", granted)
				require.Equal(t, "LOCAL_INV SEND LOCAL_INV", opcodes(r.take()))
			} else {
				require.Equal(t, "BIND_MW BIND_MW BIND_MW SEND", granted, "a window for each run")
				require.Equal(t, "LOCAL_INV LOCAL_INV SEND LOCAL_INV", opcodes(r.take()))
			}
			p.holdsNothing(t, p.a.ep, p.a.pool)
		})
	}
}

// A list that needs several keys needs several requests: what exceeds the send queue,
// or the pool, is refused whole, and nothing is held.
func TestExposureThatCantBeIsRefusedWhole(t *testing.T) {
	for _, profile := range exposing {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 4}})
			cfg := mrpool.Config{}
			caps := p.a.dev.Caps()
			kind := transport.SyncMR
			switch {
			case caps.FastReg.MaxPages > 0:
				kind, cfg.FastMRs, cfg.FastPages = transport.FastMR, 20, 1
			case caps.Windows != transport.NoWindows:
				kind, cfg.Windows = transport.Window, 20
			default:
				cfg.SyncMRs = 20
			}
			pool, err := mrpool.New(p.a.pd, cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			ep, _ := p.dial(t, rw.EndpointConfig{Pool: pool, QueueCaps: transport.QueueCaps{MaxSendWR: 4}}, rw.EndpointConfig{})
			var x rw.Exposure
			require.ErrorIs(t, ep.Expose(&x, apart(p.a.region, 21), mrpool.ReadSource), mrpool.ErrEmpty)
			require.Zero(t, pool.Stats(kind).Out+pool.Stats(kind).Broken, "nothing is held")
			err = ep.Expose(&x, apart(p.a.region, 20), mrpool.ReadSource)
			if kind == transport.SyncMR {
				require.NoError(t, err, "takes no requests")
				require.Len(t, x.Remotes(), 20)
				require.NoError(t, await(t, ep, &x.Grant))
				require.NoError(t, await(t, ep, &x.Revoke))
			} else {
				require.ErrorIs(t, err, rw.ErrTooLarge)
				require.Empty(t, x.Remotes())
				require.ErrorIs(t, ep.Submit(&x.Grant), rw.ErrNotPrepared)
			}
			require.Zero(t, pool.Stats(kind).Out+pool.Stats(kind).Broken, "nothing is held")

			require.NoError(t, ep.Expose(&x, apart(p.a.region, 3), mrpool.ReadSource), "and it may be used for what can be")
			require.ErrorIs(t, ep.Expose(&x, apart(p.a.region, 3), mrpool.ReadSource), rw.ErrInUse)
			plan := x.Plan()
			require.Equal(t, uint64(3*4096), plan.Bytes)
			require.Equal(t, len(x.Remotes()), plan.Cost.Registrations)
			require.NoError(t, await(t, ep, &x.Grant))
			require.ErrorIs(t, ep.Submit(&x.Grant), rw.ErrNotPrepared, "granted already")
			require.NoError(t, await(t, ep, &x.Revoke))
			require.NoError(t, ep.Expose(&x, apart(p.a.region, 1), mrpool.WriteSink), "revoked: ready for another use")
			require.NoError(t, await(t, ep, &x.Revoke), "never granted: nothing to do")
			require.Zero(t, pool.Stats(kind).Out+pool.Stats(kind).Broken)
		})
	}
}

// An exposure on an empty pool is refused, not waited for; what was put back in an
// unknown state is repaired for it first.
func TestExposureOnAnEmptyPool(t *testing.T) {
	p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
	pool := smallPool(t, p.a.pd, transport.FastMR, 1)
	ep, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	var one [1]*mrpool.MR
	require.NoError(t, pool.Take(transport.FastMR, one[:], "test"))
	var x rw.Exposure
	list := []transport.Piece{p.a.region.Piece(0, 100)}
	require.ErrorIs(t, ep.Expose(&x, list, mrpool.ReadSource), mrpool.ErrEmpty)
	_, err := one[0].MapRemote(list, transport.Cursor{}, 0, mrpool.ReadSource)
	require.NoError(t, err)
	require.NoError(t, one[0].Posted())
	require.True(t, one[0].Put(), "set aside: its key may be valid")
	require.NoError(t, ep.Expose(&x, list, mrpool.ReadSource))
	require.EqualValues(t, 1, pool.Stats(transport.FastMR).Repairs)
	require.NoError(t, await(t, ep, &x.Grant))
	require.NoError(t, await(t, ep, &x.Revoke))
}

// Several exposures of an endpoint come and go in any order, and Close revokes those
// that are left.
func TestExposuresEndInAnyOrder(t *testing.T) {
	for _, profile := range exposing {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			ep, _ := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
			xs := make([]rw.Exposure, 5)
			for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}, {1, 3}} {
				for i := range xs {
					if len(xs[i].Remotes()) == 0 {
						p.a.expose(ep, &xs[i], []transport.Piece{p.a.region.Piece(uint64(i)*4096, 4096)}, mrpool.ReadSource)
					}
				}
				for _, i := range order {
					p.a.revoke(ep, &xs[i])
					require.Empty(t, xs[i].Remotes())
				}
			}
			require.NoError(t, ep.Close())
			for _, kind := range []transport.RegistrationKind{transport.SyncMR, transport.FastMR, transport.Window} {
				require.Zero(t, p.a.pool.Stats(kind).Out, kind)
			}
		})
	}
}

// A grant that fails leaves no key alive: whatever the device did with its requests is
// undone. Its message never arrives.
func TestFailedGrantKillsItsKeys(t *testing.T) {
	for _, profile := range []string{"siw-kernel", "mlx5", "rxe"} {
		for k := range uint64(3) {
			t.Run(fmt.Sprintf("%s, request %d", profile, k), func(t *testing.T) {
				var a onlySide
				p := connect(t, faultyBed(profile, sim.Faults{Run: func(q *sim.QP, i uint64, _ *transport.WR) transport.Status {
					if a.is(q) && i == k {
						return transport.StatusGeneral
					}
					return transport.StatusOK
				}}), rw.EndpointConfig{})
				a.qpn.Store(p.a.ep.Conn().QP().Num())
				var x, y rw.Exposure
				require.NoError(t, p.a.ep.Expose(&x, []transport.Piece{p.a.region.Piece(0, 4096)}, mrpool.ReadSource))
				require.NoError(t, p.a.ep.Expose(&y, []transport.Piece{p.a.region.Piece(8192, 4096)}, mrpool.WriteSink))
				var send rw.Context
				require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{}))
				require.ErrorIs(t, await(t, p.a.ep, &x.Grant, &y.Grant, &send), transport.StatusGeneral)
				require.Equal(t, k > 0, x.Grant.Err() == nil)
				require.Equal(t, k > 1, y.Grant.Err() == nil)
				var e *transport.Error
				require.ErrorAs(t, send.Err(), &e)
				require.Equal(t, map[bool]string{true: "SEND", false: "grant"}[k == 2], e.Op)
				if k > 0 {
					require.NoError(t, await(t, p.a.ep, &x.Revoke), "the endpoint failed, revoking works")
				}
				if k > 1 {
					require.NoError(t, await(t, p.a.ep, &y.Revoke))
				}
				require.Empty(t, x.Remotes())
				require.Empty(t, y.Remotes())
				for kind := range transport.NumRegistrationKinds {
					require.Zero(t, p.a.pool.Stats(kind).Out+p.a.pool.Stats(kind).Broken)
				}
			})
		}
	}
}

// The exposure is revoked while the peer is invalidating it: whoever comes first, both
// ends stay well or fail together, every context ends once, and the key is dead.
func TestRevocationRacesWithThePeersInvalidation(t *testing.T) {
	for _, profile := range []string{"siw-kernel", "mlx5-kernel", "mlx5", "rxe"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			for round := range 12 {
				a, b := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
				got := p.b.postRecv(b)
				var x rw.Exposure
				remote := slices.Clone(p.b.expose(b, &x, []transport.Piece{p.b.region.Piece(0, 100)}, mrpool.WriteSink))
				require.True(t, x.OfferInvalidation())
				var send rw.Context
				sent := make(chan error, 1)
				send.OnDone = func(c *rw.Context) { sent <- c.Err() }
				require.NoError(t, a.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 3)}, Invalidate: remote[0].Key, HasInvalidate: true}))
				require.NoError(t, a.Submit(&send))
				time.Sleep(time.Duration(round%6) * 20 * time.Microsecond)
				require.NoError(t, await(t, b, &x.Revoke))
				require.Empty(t, x.Remotes())
				select {
				case <-sent:
				case <-time.After(time.Minute):
					t.Fatal("the message never ended")
				}
				c := receive(t, got)
				if c.Err() == nil && c.Received().Invalidated != nil {
					require.Same(t, &x, c.Received().Invalidated)
				}
				before := slices.Clone(p.b.region.Bytes()[:100])
				fill(p.a.region.Bytes()[:100], uint64(round))
				a.Write(within(t, 5*time.Second), []transport.Piece{p.a.region.Piece(0, 100)}, remote...)
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
				require.Equal(t, before, p.b.region.Bytes()[:100], "the key is dead")
			}
			for kind := range transport.NumRegistrationKinds {
				require.Zero(t, p.b.pool.Stats(kind).Out)
			}
		})
	}
}

// An exposure is revoked while a worker takes everything away for Close: its keys are
// the worker's then, and the revocation is done when they are dead.
func TestRevocationRacesWithClose(t *testing.T) {
	for _, profile := range []string{"siw-kernel", "mlx5", "rxe"} {
		t.Run(profile, func(t *testing.T) {
			var closing atomic.Bool
			p := connect(t, faultyBed(profile, sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
				if closing.Load() && what == sim.AllocRegistration {
					time.Sleep(time.Millisecond) // the worker replaces what it revokes
				}
				return nil
			}}), rw.EndpointConfig{})
			for round := range 5 {
				closing.Store(false)
				a, b := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
				var xs [6]rw.Exposure
				ended := make(chan error, len(xs))
				for i := range xs {
					p.b.expose(b, &xs[i], []transport.Piece{p.b.region.Piece(uint64(i)*4096, 100)}, mrpool.WriteSink)
					xs[i].Revoke.OnDone = func(c *rw.Context) { ended <- c.Err() }
				}
				closing.Store(true)
				b.StartClose()
				for i := range xs {
					require.NoError(t, b.Submit(&xs[i].Revoke), "taken even now")
					time.Sleep(time.Duration(round) * 200 * time.Microsecond)
				}
				for range xs {
					select {
					case err := <-ended:
						require.NoError(t, err)
					case <-time.After(time.Minute):
						t.Fatal("a revocation never ended")
					}
				}
				<-b.Closed()
				require.NoError(t, a.Close())
				for i := range xs {
					require.Empty(t, xs[i].Remotes())
				}
			}
			for kind := range transport.NumRegistrationKinds {
				require.Zero(t, p.b.pool.Stats(kind).Out)
			}
		})
	}
}

// A key that comes back invalidated without having been offered for that is a protocol
// error: nvme-rdma "Bogus remote invalidation"; list 3.6 "remote invalidate of a
// right/wrong/already invalid key"; pitfalls 74.
func TestInvalidationThatWasNotOfferedKillsTheEndpoint(t *testing.T) {
	for _, profile := range []string{"siw-kernel", "mlx5-kernel", "mlx5", "rxe"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			got := p.b.postRecv(p.b.ep)
			var x rw.Exposure
			remote := slices.Clone(p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 100)}, mrpool.ReadSource))
			var send rw.Context
			require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 3)}, Invalidate: remote[0].Key, HasInvalidate: true}))
			p.a.ep.Do(within(t, time.Minute), &send) // may well succeed
			c := receive(t, got)
			require.ErrorIs(t, c.Err(), rw.ErrInvalidation)
			require.Nil(t, c.Received().Invalidated)
			require.ErrorIs(t, p.b.ep.Err(), rw.ErrInvalidation)
			p.b.revoke(p.b.ep, &x)
			for kind := range transport.NumRegistrationKinds {
				require.Zero(t, p.b.pool.Stats(kind).Out+p.b.pool.Stats(kind).Broken)
			}
		})
	}
}

// When what the device exposes memory with best is used up, what else the pool has
// does as well; only when nothing is left is an exposure refused.
func TestExposureFallsBackToWhatThePoolHas(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		limits := p.b.ep.Limits()
		kinds := []transport.RegistrationKind{transport.SyncMR}
		if limits.Windows > 0 {
			kinds = append([]transport.RegistrationKind{transport.Window}, kinds...)
		}
		if limits.FastMRs > 0 {
			kinds = append([]transport.RegistrationKind{transport.FastMR}, kinds...)
		}
		list := apart(p.b.region, 2)
		fill(p.b.region.Bytes(), 8)
		strategies := map[transport.RegistrationKind]rw.Strategy{transport.FastMR: rw.FastReg, transport.Window: rw.WindowBind, transport.SyncMR: rw.SyncReg}
		var taken []*mrpool.MR
		for i, kind := range kinds {
			var x rw.Exposure
			remote := p.b.expose(p.b.ep, &x, list, mrpool.ReadSource)
			require.Equal(t, strategies[kind], x.Plan().Strategy)
			require.Equal(t, i > 0, x.Plan().Fallback)
			local := p.a.region.Piece(0, uint32(len(bytesOf(p.b.region, list))))
			require.NoError(t, p.a.ep.Read(within(t, time.Minute), []transport.Piece{local}, remote...))
			require.Equal(t, bytesOf(p.b.region, list), bytesOf(p.a.region, []transport.Piece{local}))
			p.b.revoke(p.b.ep, &x)

			all := make([]*mrpool.MR, p.b.pool.Size(kind))
			require.NoError(t, p.b.pool.Take(kind, all, "hog"))
			taken = append(taken, all...)
		}
		var x rw.Exposure
		require.ErrorIs(t, p.b.ep.Expose(&x, list, mrpool.ReadSource), mrpool.ErrEmpty)
		for _, m := range taken {
			m.Put()
		}
	})
}

// A registration whose key the peer has invalidated is the pool's again at once, before
// any revocation; unless the mapping is to be undone by a call, which is the revocation's.
func TestWhatThePeerInvalidatedIsFreeAtOnce(t *testing.T) {
	for profile, kind := range map[string]transport.RegistrationKind{"siw-kernel": transport.FastMR, "mlx5": transport.Window, "rxe": transport.Window} {
		t.Run(profile, func(t *testing.T) {
			s := steppedOn(t, profile, func(*steppedConfig) {})
			a, b := s.ends[0], s.ends[1]
			var recv, inv rw.Context
			a.recv(&recv)
			var x rw.Exposure
			remote := a.grant(&x, 4096, mrpool.ReadSource)
			require.True(t, x.OfferInvalidation())
			require.NoError(t, b.ep.PrepareSend(&inv, rw.Message{Invalidate: remote[0].Key, HasInvalidate: true}))
			require.NoError(t, b.ep.Submit(&inv))
			require.True(t, s.until(func() bool { return a.has(&recv) }))
			require.Same(t, &x, recv.Received().Invalidated)
			out := 0
			if a.dev.Caps().MapBlocks[kind] {
				out = 1
			}
			require.Equal(t, out, a.pool.Stats(kind).Out)
			require.NoError(t, a.ep.Submit(&x.Revoke))
			require.True(t, s.until(func() bool { return a.has(&x.Revoke) }))
			require.Zero(t, a.pool.Stats(kind).Out)
			require.NoError(t, a.pd.RemoveRegion(a.region), "no mapping is left")
			require.NoError(t, a.pd.AddRegion(a.region))
			s.closeEndpoints()
			s.close()
		})
	}
}

// A revocation that comes when the endpoint has failed, and the device hasn't given the
// grant back yet, waits for that: the key isn't taken away under its request.
func TestRevocationAfterAFailureWaitsForTheGrant(t *testing.T) {
	s := steppedOn(t, "siw-kernel", func(*steppedConfig) {})
	a := s.ends[0]
	var x rw.Exposure
	require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource))
	require.NoError(t, a.ep.Submit(&x.Grant))
	a.ep.Fail(transport.ErrTimeout)
	require.NoError(t, a.ep.Submit(&x.Revoke))
	a.poll()
	require.Empty(t, a.done)
	require.True(t, s.until(func() bool { return len(a.done) == 2 }))
	require.Equal(t, []*rw.Context{&x.Grant, &x.Revoke}, a.done)
	require.NoError(t, x.Revoke.Err())
	s.closeEndpoints()
	s.close()
}

// What is wrong with a list is told as such, whatever the pool was made with; and if it is the
// pool, what to do.
func TestWhyAListIsNotExposed(t *testing.T) {
	for _, profile := range simProfiles {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			pool, err := mrpool.New(p.a.pd, mrpool.Config{SyncMRs: 4})
			require.NoError(t, err)
			defer func() { require.NoError(t, pool.Close()) }()
			ep, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
			defer func() { require.NoError(t, ep.Close()) }()
			readOnly, err := p.a.dev.NewRegion(transport.RegionConfig{Size: 4096})
			require.NoError(t, err)
			defer func() { require.NoError(t, readOnly.Close()) }()
			require.NoError(t, p.a.pd.AddRegion(readOnly))
			defer func() { require.NoError(t, p.a.pd.RemoveRegion(readOnly)) }()

			var x rw.Exposure
			outside := p.a.region.Piece(0, 8)
			outside.Addr = p.a.region.Addr() + regionSize
			require.ErrorIs(t, ep.Expose(&x, []transport.Piece{outside}, mrpool.ReadSource), transport.ErrRange)
			foreign, err := p.b.dev.NewRegion(transport.RegionConfig{Size: 4096}) // not of this domain
			require.NoError(t, err)
			defer func() { require.NoError(t, foreign.Close()) }()
			require.Error(t, ep.Expose(&x, []transport.Piece{foreign.Piece(0, 8)}, mrpool.ReadSource))
			require.NotErrorIs(t, ep.Expose(&x, []transport.Piece{foreign.Piece(0, 8)}, mrpool.ReadSource), mrpool.ErrEmpty)
			require.ErrorIs(t, ep.Expose(&x, []transport.Piece{readOnly.Piece(0, 8)}, mrpool.WriteSink), transport.ErrAccess)

			four := make([]rw.Exposure, 4)
			for i := range four {
				require.NoError(t, ep.Expose(&four[i], []transport.Piece{p.a.region.Piece(0, 8)}, mrpool.ReadSource))
			}
			err = ep.Expose(&x, []transport.Piece{p.a.region.Piece(0, 8)}, mrpool.ReadSource)
			require.ErrorIs(t, err, mrpool.ErrEmpty)
			require.ErrorContains(t, err, "4 of 4 SyncMRs in use, and the list takes 1; raise mrpool.Config")
			if caps := p.a.dev.Caps(); caps.FastReg.MaxPages > 0 {
				require.ErrorContains(t, err, "no FastMRs;")
			} else if caps.Windows != transport.NoWindows {
				require.ErrorContains(t, err, "no Windows;")
			}
		})
	}
}

// Revocations go together whatever kind the pool had for them, also of different kinds, also
// when the endpoint has failed; each comes back when its keys are dead.
func TestRevocationsTogether(t *testing.T) {
	for _, profile := range simProfiles {
		for _, fail := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/failed=%v", profile, fail), func(t *testing.T) {
				p := connect(t, simBed(profile), rw.EndpointConfig{})
				cfg := mrpool.Config{SyncMRs: 2}
				caps := p.a.dev.Caps()
				if caps.FastReg.MaxPages > 0 {
					cfg.FastMRs = 2
				} else if caps.Windows != transport.NoWindows {
					cfg.Windows = 2
				} else {
					cfg.SyncMRs = 4
				}
				pool, err := mrpool.New(p.a.pd, cfg)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, pool.Close()) })
				ep, peer := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
				xs := make([]rw.Exposure, 4) // two by what the device does best, two by calls
				var revokes []*rw.Context
				for i := range xs {
					remote := p.a.expose(ep, &xs[i], []transport.Piece{p.a.region.Piece(uint64(4096*i), 8)}, mrpool.ReadSource)
					require.NoError(t, peer.Read(within(t, time.Minute), []transport.Piece{p.b.region.Piece(0, 8)}, remote...))
					revokes = append(revokes, &xs[i].Revoke)
				}
				remote := xs[3].Remotes()[0]
				if fail {
					ep.Fail(nil)
				}
				var other rw.Context
				if !fail {
					require.NoError(t, ep.PrepareSend(&other, rw.Message{}))
					require.ErrorIs(t, ep.Submit(append(revokes, &other)...), rw.ErrChain)
					require.ErrorIs(t, ep.Submit(append(revokes, revokes[0])...), rw.ErrNotPrepared)
				}
				require.NoError(t, await(t, ep, revokes...))
				for kind := range transport.NumRegistrationKinds {
					require.Zero(t, pool.Stats(kind).Out+pool.Stats(kind).Broken)
				}
				require.ErrorIs(t, ep.Submit(revokes...), rw.ErrNotPrepared)
				require.Error(t, peer.Read(within(t, time.Minute), []transport.Piece{p.b.region.Piece(0, 8)}, remote), "dead")
			})
		}
	}
}

// What Remotes returned is the owner's to look at until its Revoke is done: that another
// goroutine closes the endpoint takes nothing of it away, and OfferInvalidation says no then.
func TestRemotesStayWhileTheEndpointCloses(t *testing.T) {
	for _, profile := range []string{"mlx5", "mlx5-kernel", "siw"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			small := rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 4, MaxRecvWR: 4}}
			for range 10 {
				a, _ := p.dial(t, small, small)
				var x rw.Exposure
				require.NoError(t, a.Expose(&x, []transport.Piece{p.a.region.Piece(0, 4096)}, mrpool.ReadSource))
				told := slices.Clone(x.Remotes())
				require.Len(t, told, 1)
				closed := make(chan error, 1)
				go func() { closed <- a.Close() }()
				for open := true; open; {
					require.Equal(t, told, x.Remotes())
					x.OfferInvalidation()
					select {
					case err := <-closed:
						require.NoError(t, err)
						open = false
					default:
					}
				}
				require.Equal(t, told, x.Remotes(), "its Revoke wasn't even submitted")
				require.False(t, x.OfferInvalidation(), "there is no key any more")
				require.NoError(t, a.Do(within(t, 20*time.Second), &x.Revoke))
			}
		})
	}
}

// An exposure that failed has nothing to tell the peer, though the one before had.
func TestFailedExposureHasNoRemotes(t *testing.T) {
	p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
	pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	a, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	var x rw.Exposure
	require.NoError(t, a.Expose(&x, []transport.Piece{p.a.region.Piece(0, 4096)}, mrpool.ReadSource))
	require.NoError(t, await(t, a, &x.Revoke))
	require.ErrorIs(t, a.Expose(&x, scattered(p.a.region, 2, 64, 100), mrpool.ReadSource), mrpool.ErrEmpty)
	require.Empty(t, x.Remotes())
}
