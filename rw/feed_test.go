package rw_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// feeding is an endpoint that posts READs a depth at a time: 7 slots and a depth of 5
// on rxe, with one SGE per request.
func feeding(t *testing.T, profile string, faults sim.Faults) *pair {
	return connect(t, changedBed(profile, func(p *sim.Profile) { p.Caps.InitiatorDepth, p.Caps.ResponderResources = 5, 5 }, faults),
		rw.EndpointConfig{
			QueueCaps:    transport.QueueCaps{MaxSendWR: 8, MaxSendSGE: 1, MaxRecvWR: 8},
			Policy:       rw.Policy{FeedReads: true, Sink: rw.SinkDirect},
			DrainTimeout: 300 * time.Millisecond,
		})
}

// A READ of more requests than the send queue holds, and than the READ depth, is
// posted a part at a time. rw.c charges whole chains: a request larger than the SQ
// waits for ever. spdk#3069 (17 READs, depth 16); kernel-rdma-rw.md 23, 37; list 3.6
// "request larger than SQ; larger than READ depth"; pitfalls 37, 45.
func TestReadLargerThanQueueAndDepthIsFed(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "mlx5"} {
		t.Run(profile, func(t *testing.T) {
			r := new(recorder)
			p := feeding(t, profile, sim.Faults{Post: r.post})
			r.qpn.Store(p.a.ep.Conn().QP().Num())
			fill(p.b.region.Bytes(), 1)
			remote := p.source(t, 1<<20, mrpool.ReadSource)
			var c rw.Context
			for _, n := range []int{1, 5, 6, 17, 100} {
				plan := p.read(t, p.a.ep, &c, scattered(p.a.region, n, 1000, 0), remote)
				require.Equal(t, n, plan.Cost.Reads)
				wrs := r.take()
				require.Len(t, wrs, n, "each request is posted once")
				for i, wr := range wrs {
					last := i%5 == 4 || i == n-1
					require.Equal(t, last, wr.Flags&transport.Signaled != 0, "request %d of %d: a completion for each part", i, n)
				}
			}
			p.holdsNothing(t, p.a.ep, p.a.pool)
		})
	}
}

// Without feeding what never fits the send queue is refused, and so is what has more
// requests than a chain can count.
func TestReadThatNeverFitsIsRefused(t *testing.T) {
	p := feeding(t, "rxe", sim.Faults{})
	whole, _ := p.dial(t, rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 8, MaxSendSGE: 1}}, rw.EndpointConfig{})
	remote := []transport.Remote{{Len: 1 << 30}}
	sends, _ := whole.Credits()
	var c rw.Context
	require.NoError(t, whole.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, sends, 8, 0), Remote: remote}))
	err := whole.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, sends+1, 8, 0), Remote: remote})
	require.ErrorIs(t, err, rw.ErrTooLarge)
	require.ErrorIs(t, whole.Submit(&c), rw.ErrNotPrepared)

	var bytes []transport.Piece // every other byte: as many requests as there are
	for i := range uint64(1 << 16) {
		bytes = append(bytes, p.a.region.Piece(2*i, 1))
	}
	require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: bytes[1:], Remote: remote}))
	require.ErrorIs(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: bytes, Remote: remote}), rw.ErrTooLarge)
}

// While a READ is fed, others use what it leaves: chains posted between two of its
// parts complete, in the order of posting.
func TestFedReadLeavesTheQueueToOthers(t *testing.T) {
	p := feeding(t, "rxe", sim.Faults{})
	fill(p.b.region.Bytes(), 2)
	remote := p.source(t, 1<<20, mrpool.ReadSource|mrpool.WriteSink)
	list := scattered(p.a.region, 60, 1000, 0)
	var read rw.Context
	const n = 60
	writes := make([]rw.Context, n)
	ended := make(chan *rw.Context, n+1)
	read.OnDone = func(c *rw.Context) { ended <- c }
	require.NoError(t, p.a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
	require.NoError(t, p.a.ep.Submit(&read))
	far := []transport.Remote{{Addr: remote[0].Addr + 1<<19, Len: 8, Key: remote[0].Key}}
	for i := range writes {
		writes[i].OnDone = func(c *rw.Context) { ended <- c }
		require.NoError(t, p.a.ep.Prepare(&writes[i], rw.Transfer{Op: rw.Write, Local: []transport.Piece{p.a.region.Piece(0, 8)}, Remote: far}))
		require.NoError(t, p.a.ep.Submit(&writes[i]))
	}
	var order []*rw.Context
	for range n + 1 {
		select {
		case c := <-ended:
			require.NoError(t, c.Err())
			order = append(order, c)
		case <-time.After(time.Minute):
			t.Fatal("a transfer never ended")
		}
	}
	order = slices.DeleteFunc(order, func(c *rw.Context) bool { return c == &read })
	for i := range order {
		require.Same(t, &writes[i], order[i])
	}
	require.Equal(t, p.b.region.Bytes()[:60000], bytesOf(p.a.region, list))
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// A request that fails in a later part is the READ's error, with its position in all
// of it.
func TestFedReadThatFailsLater(t *testing.T) {
	for _, k := range []uint64{0, 4, 5, 7, 9, 16} {
		t.Run(fmt.Sprint("request ", k), func(t *testing.T) {
			var a onlySide
			p := feeding(t, "rxe", sim.Faults{Run: func(q *sim.QP, i uint64, _ *transport.WR) transport.Status {
				if a.is(q) && i == k {
					return transport.StatusRemoteOp
				}
				return transport.StatusOK
			}})
			a.qpn.Store(p.a.ep.Conn().QP().Num())
			remote := p.source(t, 1<<20, mrpool.ReadSource)
			var c rw.Context
			require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 17, 1000, 0), Remote: remote}))
			err := await(t, p.a.ep, &c)
			var e *transport.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, transport.StatusRemoteOp, e.Status)
			require.Equal(t, int(k), e.WR)
			require.Equal(t, "READ", e.Op)
			p.holdsNothing(t, p.a.ep, p.a.pool)
		})
	}
}

// A later part that is accepted in part, or not at all: the rest never runs, and the
// READ ends once, with that error.
func TestFedReadThatIsPostedInPart(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "mlx5"} {
		for _, k := range []uint64{5, 6, 9, 15, 16} {
			t.Run(fmt.Sprint(profile, ", at request ", k), func(t *testing.T) {
				var a onlySide
				p := feeding(t, profile, sim.Faults{Post: func(q *sim.QP, i uint64, _ *transport.WR) error {
					if a.is(q) && i == k {
						return transport.ErrNoMemory
					}
					return nil
				}})
				a.qpn.Store(p.a.ep.Conn().QP().Num())
				remote := p.source(t, 1<<20, mrpool.ReadSource)
				var c rw.Context
				require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 17, 1000, 0), Remote: remote}))
				require.ErrorIs(t, await(t, p.a.ep, &c), transport.ErrNoMemory)
				require.ErrorIs(t, p.a.ep.Err(), transport.ErrNoMemory)
				p.holdsNothing(t, p.a.ep, p.a.pool)
			})
		}
	}
}

// The connection ends between two parts.
func TestFedReadWhosePeerGoesAway(t *testing.T) {
	p := feeding(t, "rxe", sim.Faults{})
	remote := p.source(t, 1<<20, mrpool.ReadSource)
	var c rw.Context
	ended := make(chan error, 1)
	c.OnDone = func(c *rw.Context) { ended <- c.Err() }
	var bytes []transport.Piece
	for i := range uint64(60000) {
		bytes = append(bytes, p.a.region.Piece(2*i, 1))
	}
	require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: bytes, Remote: remote}))
	require.NoError(t, p.a.ep.Submit(&c))
	require.NoError(t, p.b.ep.Conn().Disconnect())
	select {
	case err := <-ended:
		require.Error(t, err)
		require.NotErrorIs(t, err, rw.ErrClosed)
	case <-time.After(time.Minute):
		t.Fatal("the READ never ended")
	}
	require.Error(t, p.a.ep.Err())
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// fedInStep is a READ of 17 requests on a stepped fabric, 5 at a time. The first 5 are
// over, and nobody has polled since.
func fedInStep(t *testing.T, profile string, sink rw.SinkPolicy, faults sim.Faults) (s *stepped, read *rw.Context) {
	s, a, b := advStepped(t, profile, steppedConfig{
		faults: faults, pool: mrpool.Config{SyncMRs: 32}, depth: 5, queues: transport.QueueCaps{MaxSendWR: 32, MaxSendSGE: 1},
		policy: rw.Policy{FeedReads: true, Sink: sink}, slots: 17, slot: 64,
	})
	remote := b.grant(new(rw.Exposure), 64<<10, mrpool.ReadSource)
	var list []transport.Piece
	for i := range uint64(17) {
		list = append(list, a.region.Piece(i*4096, 64))
	}
	read = new(rw.Context)
	require.NoError(t, a.ep.Prepare(read, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
	require.NoError(t, a.ep.Submit(read))
	a.poll() // which registers, where it must
	for s.fabric.Step() {
	}
	require.Len(t, a.dev.posts, 1)
	require.Len(t, a.dev.posts[0].wrs, 5)
	return s, read
}

// The endpoint fails, or is closed, while a part of a READ is over and the next isn't
// posted yet: that part was well, but the READ is not.
func TestFedReadEndsWithItsEndpoint(t *testing.T) {
	cause := errors.New("for the test")
	for _, tt := range []struct {
		profile string
		sink    rw.SinkPolicy
		end     func(ep *rw.Endpoint)
		want    error
	}{
		{"rxe", rw.SinkDirect, func(ep *rw.Endpoint) { ep.Fail(cause) }, cause},
		{"rxe", rw.SinkDirect, (*rw.Endpoint).StartClose, rw.ErrClosed},
		{"siw", rw.SinkDirect, (*rw.Endpoint).StartClose, rw.ErrClosed},
		{"siw", rw.SinkStrict, (*rw.Endpoint).StartClose, rw.ErrClosed},
		{"siw", rw.SinkStaging, (*rw.Endpoint).StartClose, rw.ErrClosed},
	} {
		t.Run(fmt.Sprint(tt.profile, " ", tt.sink, " ", tt.want), func(t *testing.T) {
			s, read := fedInStep(t, tt.profile, tt.sink, sim.Faults{})
			a := s.ends[0]
			tt.end(a.ep)
			require.True(t, s.until(func() bool { return a.has(read) }))
			require.Zero(t, s.skew, "it doesn't take a deadline")
			require.ErrorIs(t, read.Err(), tt.want)
			require.Len(t, a.dev.posts, 1, "nothing more was posted")
			sends, reads := a.ep.Credits()
			require.Equal(t, a.ep.Limits().SendWR, sends)
			require.Equal(t, 5, reads)
			s.closeEndpoints()
			s.close()
		})
	}
}

// The connection ends then: what can't be posted any more is told that, not that the
// queue pair is in the wrong state.
func TestFedReadThatCantGoOnSaysWhy(t *testing.T) {
	s, read := fedInStep(t, "rxe", rw.SinkDirect, sim.Faults{})
	a, b := s.ends[0], s.ends[1]
	require.NoError(t, b.ep.Conn().Disconnect())
	for s.fabric.Step() {
	}
	require.True(t, s.until(func() bool { return a.has(read) }))
	require.Zero(t, s.skew, "it doesn't take a deadline")
	require.ErrorIs(t, read.Err(), transport.ErrDisconnected)
	require.NotErrorIs(t, read.Err(), transport.ErrBadState)
	require.ErrorIs(t, a.ep.Err(), transport.ErrDisconnected)
	s.closeEndpoints()
	s.close()
}

// One whose part fails is over with the last completion of that part.
func TestFedReadThatFailsEndsWithItsPart(t *testing.T) {
	for at := range uint64(5) {
		s, read := fedInStep(t, "rxe", rw.SinkDirect, sim.Faults{Run: func(_ *sim.QP, k uint64, wr *transport.WR) transport.Status {
			if wr.Op == transport.OpRead && k == at {
				return transport.StatusRemoteOp
			}
			return transport.StatusOK
		}})
		a := s.ends[0]
		require.True(t, s.until(func() bool { return a.has(read) }))
		require.Zero(t, s.skew, "it doesn't take a deadline")
		require.ErrorIs(t, read.Err(), transport.StatusRemoteOp)
		s.closeEndpoints()
		s.close()
	}
}
