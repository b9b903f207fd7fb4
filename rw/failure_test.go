package rw_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// onlySide makes a fault of side A's requests alone: those of the queue pair
// whose number is set.
type onlySide struct{ qpn atomic.Uint32 }

func (o *onlySide) is(q *sim.QP) bool { return q.Num() == o.qpn.Load() }

var profiles = []string{"rxe", "siw", "siw-kernel"}

// A request that fails is the error of its own context, with its position; what
// comes behind it is flushed for that cause; what was before it is well.
func TestFirstFailureIsTheErrorEverybodySees(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			var a onlySide
			var bad atomic.Uint64
			p := connect(t, faultyBed(profile, sim.Faults{Run: func(q *sim.QP, k uint64, wr *transport.WR) transport.Status {
				if a.is(q) && k == bad.Load() {
					return transport.StatusRemoteOp
				}
				return transport.StatusOK
			}}), rw.EndpointConfig{})
			a.qpn.Store(p.a.ep.Conn().QP().Num())
			bad.Store(4)

			var x rw.Exposure
			remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.WriteSink)
			limit := p.a.dev.Caps().MaxSendSGE
			list := scattered(p.a.region, 3*min(16, limit), 100, 0) // three requests each
			var cs [4]rw.Context
			for i := range cs {
				require.NoError(t, p.a.ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: list, Remote: remote}))
				require.Equal(t, 3, cs[i].Plan().Cost.WRs)
			}
			err := await(t, p.a.ep, &cs[0], &cs[1], &cs[2])
			require.ErrorIs(t, err, transport.StatusRemoteOp)
			require.NoError(t, cs[0].Err(), "over before the failure")
			var e *transport.Error
			require.ErrorAs(t, cs[1].Err(), &e)
			require.Equal(t, 4, e.WR)
			require.Equal(t, "WRITE", e.Op)
			require.ErrorIs(t, cs[2].Err(), transport.StatusRemoteOp, "the cause")

			require.ErrorIs(t, await(t, p.a.ep, &cs[3]), transport.StatusRemoteOp, "nothing more goes out")
			require.ErrorIs(t, p.a.ep.Err(), transport.StatusRemoteOp)
			p.b.revoke(p.b.ep, &x)
		})
	}
}

// A READ that fails leaves no registration behind, and none that could be valid
// goes back to the pool as it is.
func TestFailedReadKillsItsKeys(t *testing.T) {
	for _, profile := range profiles {
		for k := range uint64(4) {
			t.Run(fmt.Sprintf("%s, request %d", profile, k), func(t *testing.T) {
				var a onlySide
				p := connect(t, faultyBed(profile, sim.Faults{Run: func(q *sim.QP, i uint64, wr *transport.WR) transport.Status {
					if a.is(q) && i == k {
						return transport.StatusGeneral
					}
					return transport.StatusOK
				}}), rw.EndpointConfig{})
				a.qpn.Store(p.a.ep.Conn().QP().Num())
				var x rw.Exposure
				remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.ReadSource)
				var c rw.Context
				list := scattered(p.a.region, 2, 100, 50) // two registrations where sinks are registered
				require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
				err := await(t, p.a.ep, &c)
				if k < uint64(c.Plan().Cost.WRs) {
					require.ErrorIs(t, err, transport.StatusGeneral)
				} else {
					require.NoError(t, err)
				}
				for kind := range transport.NumRegistrationKinds {
					require.Zero(t, p.a.pool.Stats(kind).Out)
					require.Zero(t, p.a.pool.Stats(kind).Broken)
				}
				p.b.revoke(p.b.ep, &x)
			})
		}
	}
}

// A chain that is accepted in part: the tail never ran, the rest is accounted
// for, and everything comes back exactly once.
func TestPartialPost(t *testing.T) {
	for _, profile := range profiles {
		for at := range uint64(5) {
			t.Run(fmt.Sprintf("%s, at %d", profile, at), func(t *testing.T) {
				var a onlySide
				refusal := errors.New("refused for the test")
				p := connect(t, faultyBed(profile, sim.Faults{Post: func(q *sim.QP, k uint64, wr *transport.WR) error {
					if a.is(q) && k == at {
						return fmt.Errorf("%w: %w", transport.ErrNoMemory, refusal)
					}
					return nil
				}}), rw.EndpointConfig{DrainTimeout: 300 * time.Millisecond})
				a.qpn.Store(p.a.ep.Conn().QP().Num())
				var x rw.Exposure
				remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.ReadSource|mrpool.WriteSink)
				limit := min(16, p.a.dev.Caps().MaxSendSGE)
				var read, w1, w2 rw.Context
				require.NoError(t, p.a.ep.Prepare(&w1, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 2*limit, 100, 0), Remote: remote}))
				require.NoError(t, p.a.ep.Prepare(&w2, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 3*limit, 100, 0), Remote: remote}))
				err := await(t, p.a.ep, &w1, &w2)
				require.ErrorIs(t, err, refusal)
				require.ErrorIs(t, err, transport.ErrNoMemory)
				if at >= 2 {
					// The first context's requests were all accepted. They may have run, or
					// been flushed; not both.
					if w1.Err() != nil {
						require.ErrorIs(t, w1.Err(), refusal)
					}
				}
				require.ErrorIs(t, w2.Err(), refusal)
				require.NotErrorIs(t, w2.Err(), transport.StatusFlushed, "it was refused")
				require.NoError(t, p.a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 1, 100, 0), Remote: remote}))
				require.Error(t, p.a.ep.Submit(&read), "the endpoint is done for")
				sends, _ := p.a.ep.Credits()
				require.Equal(t, p.a.ep.Limits().SendWR, sends)
				p.b.revoke(p.b.ep, &x)
			})
		}
	}
}

// The device is quick, and has run all that it took of a chain before it is told to stop:
// a context whose requests are all among that is well, though none of them is signaled.
func TestWhatRanBeforeARefusedRequestIsWell(t *testing.T) {
	for _, profile := range profiles {
		for at := range uint64(4) {
			t.Run(fmt.Sprintf("%s, at %d", profile, at), func(t *testing.T) {
				var a onlySide
				refusal := errors.New("refused for the test")
				refused := false // once: the drain's marker comes behind it
				s, near, far := advStepped(t, profile, steppedConfig{
					pool: mrpool.Config{SyncMRs: 4}, queues: transport.QueueCaps{MaxSendWR: 32, MaxSendSGE: 1},
					faults: sim.Faults{Post: func(q *sim.QP, k uint64, _ *transport.WR) error {
						if !a.is(q) || k != at || refused {
							return nil
						}
						refused = true
						return refusal
					}},
				})
				a.qpn.Store(near.ep.Conn().QP().Num())
				near.dev.failing = func() {
					for s.fabric.Step() {
					}
				}
				remote := far.grant(new(rw.Exposure), 64<<10, mrpool.WriteSink)
				var cs [2]rw.Context
				for i := range cs {
					list := scattered(near.region, 2, 100, 0)
					require.NoError(t, near.ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: list, Remote: remote}))
					require.Equal(t, 2, cs[i].Plan().Cost.WRs)
				}
				require.NoError(t, near.ep.Submit(&cs[0], &cs[1]))
				require.True(t, s.until(func() bool { return near.has(&cs[0]) && near.has(&cs[1]) }))
				if at < 2 {
					require.ErrorIs(t, cs[0].Err(), refusal)
				} else {
					require.NoError(t, cs[0].Err())
				}
				require.ErrorIs(t, cs[1].Err(), refusal)
				require.NotErrorIs(t, cs[1].Err(), transport.StatusFlushed)
				s.closeEndpoints()
				s.close()
			})
		}
	}
}

// A partial post inside the chain of a registered READ.
func TestPartialPostOfARegisteredRead(t *testing.T) {
	for at := range uint64(6) {
		t.Run(fmt.Sprint("at ", at), func(t *testing.T) {
			var a onlySide
			p := connect(t, faultyBed("siw-kernel", sim.Faults{Post: func(q *sim.QP, k uint64, wr *transport.WR) error {
				if a.is(q) && k == at {
					return transport.ErrNoMemory
				}
				return nil
			}}), rw.EndpointConfig{DrainTimeout: 300 * time.Millisecond})
			a.qpn.Store(p.a.ep.Conn().QP().Num())
			var x rw.Exposure
			remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.ReadSource)
			var c rw.Context
			require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 3, 100, 50), Remote: remote}))
			require.Equal(t, rw.Cost{WRs: 6, Reads: 3, Registrations: 3}, c.Plan().Cost)
			require.ErrorIs(t, await(t, p.a.ep, &c), transport.ErrNoMemory)
			s := p.a.pool.Stats(transport.FastMR)
			require.Zero(t, s.Out)
			require.Zero(t, s.Broken)
			p.b.revoke(p.b.ep, &x)
		})
	}
}

// The connection ends while much is queued and posted: everything comes back
// once, with a cause.
func TestPeerGoesAwayWithEverythingUnderWay(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		a2, b2 := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
		b := p.b.ep
		var x rw.Exposure
		remote := p.b.expose(b, &x, []transport.Piece{p.b.region.Piece(0, 64<<10)}, mrpool.ReadSource)
		const n = 200
		cs := make([]rw.Context, n)
		ended := make(chan *rw.Context, 2*n)
		for i := range cs {
			cs[i].OnDone = func(c *rw.Context) { ended <- c }
			require.NoError(t, p.a.ep.Prepare(&cs[i], rw.Transfer{Op: rw.Read, Local: []transport.Piece{p.a.region.Piece(uint64(i)*4096, 4096)}, Remote: remote}))
			require.NoError(t, p.a.ep.Submit(&cs[i]))
		}
		require.NoError(t, b.Conn().Disconnect())
		seen := make(map[*rw.Context]bool)
		timeout := time.After(20 * time.Second)
		for len(seen) < n {
			select {
			case c := <-ended:
				require.False(t, seen[c], "a context ends once")
				seen[c] = true
			case <-timeout:
				t.Fatalf("%d of %d contexts never ended", n-len(seen), n)
			}
		}
		require.Error(t, cs[n-1].Err())
		require.Error(t, p.a.ep.Err())
		p.b.revoke(b, &x)
		// The sibling connection of the same poller goes on.
		got := p.b.postRecv(b2)
		var send rw.Context
		require.NoError(t, a2.PrepareSend(&send, rw.Message{}))
		require.NoError(t, await(t, a2, &send))
		require.NoError(t, receive(t, got).Err())
	})
}

// Contexts wait in order for credits and hold nothing; those that can never fit
// are refused at once.
func TestCreditsAreWaitedForInOrder(t *testing.T) {
	everywhereWith(t, rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 16, MaxSendSGE: 1, MaxRecvWR: 1}}, func(t *testing.T, p *pair) {
		var x rw.Exposure
		remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.WriteSink)
		capacity, _ := p.a.ep.Credits()
		var large rw.Context
		err := p.a.ep.Prepare(&large, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, capacity+1, 10, 0), Remote: remote})
		require.ErrorIs(t, err, rw.ErrTooLarge)

		const n = 50
		cs := make([]rw.Context, n)
		order := make(chan *rw.Context, n)
		for i := range cs {
			cs[i].OnDone = func(c *rw.Context) { order <- c }
			size := 1 + (i*7)%capacity
			require.NoError(t, p.a.ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, size, 10, 0), Remote: remote}))
			require.NoError(t, p.a.ep.Submit(&cs[i]))
		}
		for i := range cs {
			select {
			case c := <-order:
				require.True(t, &cs[i] == c, "in order")
				require.NoError(t, c.Err())
			case <-time.After(time.Minute):
				t.Fatalf("context %d never ended", i)
			}
		}
		free, _ := p.a.ep.Credits()
		require.Equal(t, capacity, free)
		p.b.revoke(p.b.ep, &x)
	})
}

// READs beyond the READ depth wait or stall; they never fail.
func TestMoreReadsThanTheDepth(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		var x rw.Exposure
		remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.ReadSource)
		_, depth := p.a.ep.Credits()
		n := min(2*depth+3, 400)
		cs := make([]rw.Context, n)
		ended := make(chan *rw.Context, n)
		for i := range cs {
			cs[i].OnDone = func(c *rw.Context) { ended <- c }
			require.NoError(t, p.a.ep.Prepare(&cs[i], rw.Transfer{Op: rw.Read, Local: []transport.Piece{p.a.region.Piece(uint64(i)*4096, 64)}, Remote: remote}))
			require.NoError(t, p.a.ep.Submit(&cs[i]))
		}
		for range cs {
			select {
			case c := <-ended:
				require.NoError(t, c.Err())
			case <-time.After(time.Minute):
				t.Fatal("a READ never ended")
			}
		}
		_, free := p.a.ep.Credits()
		require.Equal(t, depth, free)
		p.b.revoke(p.b.ep, &x)
	})
}

// A pool shared by two endpoints of one poller: the one that waits for a
// registration gets it when the other's comes back.
func TestEmptyPoolIsWaitedFor(t *testing.T) {
	for _, profile := range []string{"siw", "siw-kernel"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			cfg := mrpool.Config{SyncMRs: 1}
			if profile == "siw-kernel" {
				cfg = mrpool.Config{FastMRs: 1}
			}
			pool, err := mrpool.New(p.a.pd, cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pool.Close()) })
			one, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
			two, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
			var x rw.Exposure
			remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.ReadSource)
			const n = 40
			cs := make([]rw.Context, n)
			ended := make(chan *rw.Context, n)
			for i := range cs {
				ep := []*rw.Endpoint{one, two}[i%2]
				cs[i].OnDone = func(c *rw.Context) { ended <- c }
				require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Read, Local: []transport.Piece{p.a.region.Piece(uint64(i)*4096, 64)}, Remote: remote}))
				require.NoError(t, ep.Submit(&cs[i]))
			}
			for range cs {
				select {
				case c := <-ended:
					require.NoError(t, c.Err())
				case <-time.After(time.Minute):
					t.Fatal("a READ never got its registration")
				}
			}
			p.b.revoke(p.b.ep, &x)
		})
	}
}

func TestCancelOfWhatIsQueued(t *testing.T) {
	// Nothing is posted before the connection is up, so that it stays queued.
	devA, _, _ := simBed("rxe").open(t)
	s := newSide(t, devA)
	conn, err := devA.Resolve(context.Background(), "b:1")
	require.NoError(t, err)
	ep, err := s.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: s.pool})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	var a, b rw.Context
	for _, c := range []*rw.Context{&a, &b} {
		require.NoError(t, ep.Prepare(c, rw.Transfer{Op: rw.Write, Local: []transport.Piece{s.region.Piece(0, 8)}, Remote: []transport.Remote{{Len: 8}}}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, ep.Do(ctx, &a, &b), context.Canceled)
	require.ErrorIs(t, a.Err(), rw.ErrCanceled)
	require.ErrorIs(t, b.Err(), rw.ErrCanceled)
	require.NoError(t, ep.Err(), "the endpoint is well")
	require.False(t, ep.Cancel(&a), "it is over")
}

// A blocking call whose peer never answers fails the endpoint after the grace,
// and returns when the memory is free.
func TestCancelOfWhatIsPosted(t *testing.T) {
	var a onlySide
	p := connect(t, faultyBed("rxe", sim.Faults{Delay: func(q *sim.QP, k uint64, wr *transport.WR) time.Duration {
		if a.is(q) {
			return time.Hour
		}
		return 0
	}}), rw.EndpointConfig{CancelGrace: 50 * time.Millisecond, DrainTimeout: 200 * time.Millisecond})
	a.qpn.Store(p.a.ep.Conn().QP().Num())
	err := p.a.ep.Write(within(t, 50*time.Millisecond), []transport.Piece{p.a.region.Piece(0, 8)}, transport.Remote{Len: 8, Key: 1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, rw.ErrNotPolled)
	require.ErrorIs(t, p.a.ep.Err(), rw.ErrCanceled)
}

// Close with receives, transfers and exposures out: all come back first.
func TestCloseBringsEverythingBack(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		a, b := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
		got := p.b.postRecv(b)
		var x rw.Exposure
		remote := p.b.expose(b, &x, []transport.Piece{p.b.region.Piece(0, 64<<10)}, mrpool.WriteSink)
		ended := make(chan error, 64)
		var cs [32]rw.Context
		for i := range cs {
			cs[i].OnDone = func(c *rw.Context) { ended <- c.Err() }
			require.NoError(t, a.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: []transport.Piece{p.a.region.Piece(0, 64<<10)}, Remote: remote}))
			require.NoError(t, a.Submit(&cs[i]))
		}
		require.NoError(t, a.Close())
		require.NoError(t, a.Close())
		for range cs {
			err := <-ended
			if err != nil {
				require.ErrorIs(t, err, rw.ErrClosed)
			}
		}
		require.NoError(t, b.Close())
		require.ErrorIs(t, receive(t, got).Err(), transport.StatusFlushed)
		require.Equal(t, remote, x.Remotes(), "they stay until Revoke is done")
		require.NoError(t, await(t, b, &x.Revoke), "and revoking it is harmless")
		require.ErrorIs(t, a.Submit(&cs[0]), rw.ErrNotPrepared)
		require.NoError(t, a.Prepare(&cs[0], rw.Transfer{Op: rw.Write, Local: []transport.Piece{p.a.region.Piece(0, 1)}, Remote: remote}))
		require.ErrorIs(t, a.Submit(&cs[0]), rw.ErrClosed)
	})
}

func TestMisuseIsRefused(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	ep := p.a.ep
	var c rw.Context
	require.ErrorIs(t, ep.Submit(), rw.ErrNotPrepared)
	require.ErrorIs(t, ep.Submit(&c), rw.ErrNotPrepared)
	require.ErrorIs(t, ep.Submit(nil), rw.ErrNotPrepared)
	_, err := rw.Explain(rw.Transfer{}, rw.Limits{}, nil)
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.ErrorIs(t, p.b.ep.PostRecv(&c), rw.ErrNotPrepared)
	require.NoError(t, ep.PrepareSend(&c, rw.Message{}))
	require.ErrorIs(t, p.b.ep.Submit(&c), rw.ErrNotPrepared, "prepared on another endpoint")
	require.ErrorIs(t, ep.Submit(&c, &c), rw.ErrNotPrepared, "twice in one chain")
	require.ErrorIs(t, ep.PrepareSend(&c, rw.Message{HasImm: true, HasInvalidate: true}), transport.ErrInvalid)
	require.ErrorIs(t, ep.PrepareSend(&c, rw.Message{Local: scattered(p.a.region, 17, 1, 0)}), transport.ErrTooManySGE)
	require.ErrorIs(t, ep.PrepareSend(&c, rw.Message{Local: scattered(p.a.region, 1, 9000, 0), Inline: true}), transport.ErrInlineTooLong)
	require.ErrorIs(t, ep.PrepareSend(&c, rw.Message{Local: []transport.Piece{p.a.region.Piece(regionSize, 1)}}), transport.ErrRange)

	var x rw.Exposure
	require.ErrorIs(t, ep.Expose(&x, nil, mrpool.ReadSource), transport.ErrInvalid)
	require.ErrorIs(t, ep.Expose(&x, scattered(p.a.region, 1, 100, 0), 0), transport.ErrInvalid)
	require.ErrorIs(t, ep.Expose(&x, []transport.Piece{p.a.region.Piece(regionSize, 1)}, mrpool.ReadSource), transport.ErrRange)
	hog := make([]*mrpool.MR, p.a.pool.Size(transport.SyncMR)) // which windows would be fallen back from to
	require.NoError(t, p.a.pool.Take(transport.SyncMR, hog, "hog"))
	require.ErrorIs(t, ep.Expose(&x, scattered(p.a.region, 9, 10, 0), mrpool.ReadSource), mrpool.ErrEmpty, "more windows than the pool has")
	for _, m := range hog {
		m.Put()
	}
	require.Equal(t, 8, p.a.pool.Stats(transport.Window).Free, "nothing is held")
	require.False(t, x.OfferInvalidation())

	require.ErrorIs(t, p.a.poller.Close(), transport.ErrBusy)
	_, err = p.a.poller.NewEndpoint(nil, rw.EndpointConfig{})
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = rw.NewPoller(p.a.dev, 0, rw.PollerConfig{})
	require.ErrorIs(t, err, transport.ErrInvalid)
	conn, err := p.a.dev.Resolve(within(t, time.Second), p.listen.Addr())
	require.NoError(t, err)
	_, err = p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool, QueueCaps: transport.QueueCaps{MaxSendWR: 4000}})
	require.ErrorIs(t, err, rw.ErrCQTooSmall)
	require.NoError(t, conn.Close())
}

// An endpoint that was failed without a cause says that it is closed: no error is no
// exposure that isn't there.
func TestFailWithoutACause(t *testing.T) {
	p := connect(t, simBed("mlx5"), rw.EndpointConfig{})
	p.a.ep.Fail(nil)
	require.ErrorIs(t, p.a.ep.Err(), rw.ErrClosed)
	var x rw.Exposure
	require.ErrorIs(t, p.a.ep.Expose(&x, []transport.Piece{p.a.region.Piece(0, 100)}, mrpool.ReadSource), rw.ErrClosed)
}
