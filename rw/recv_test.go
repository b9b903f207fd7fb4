package rw_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// group are contexts that are over in the order in which they are in done.
type group struct {
	contexts []*rw.Context
	done     chan *rw.Context
}

func newGroup(n int) *group {
	g := &group{done: make(chan *rw.Context, n)}
	for i := range n {
		g.contexts = append(g.contexts, &rw.Context{Owner: i, OnDone: func(c *rw.Context) { g.done <- c }})
	}
	return g
}

// prepare makes receives of the group, each of 64 bytes of the region.
func (g *group) prepare(t *testing.T, s *side, prepare func(*rw.Context, []transport.Piece) error) {
	for i, c := range g.contexts {
		require.NoError(t, prepare(c, []transport.Piece{s.region.Piece(uint64(i)*64, 64)}))
	}
}

// sendNumbers sends n messages; message i holds i.
func (p *pair) sendNumbers(t *testing.T, n int) {
	for i := range n {
		p.a.region.Bytes()[i] = byte(i)
		var c rw.Context
		require.NoError(t, p.a.ep.PrepareSend(&c, rw.Message{Local: []transport.Piece{p.a.region.Piece(uint64(i), 1)}}))
		require.NoError(t, await(t, p.a.ep, &c))
	}
}

// Receives that are posted together are used in their order.
func TestReceivesPostedTogether(t *testing.T) {
	const n = 100 // more than what one call of C converts at a time
	everywhere(t, func(t *testing.T, p *pair) {
		g := newGroup(n)
		g.prepare(t, p.b, p.b.ep.PrepareRecv)
		require.NoError(t, p.b.ep.PostRecv(g.contexts...))
		require.NoError(t, p.b.ep.PostRecv(), "none at all")
		p.sendNumbers(t, n)
		for i := range n {
			c := receive(t, g.done)
			require.NoError(t, c.Err())
			require.Equal(t, i, c.Owner)
			require.Equal(t, byte(i), p.b.region.Bytes()[i*64])
		}
	})
}

// What can't be posted together isn't posted in part, and is still prepared.
func TestReceivesAreAllPostedOrNone(t *testing.T) {
	everywhereWith(t, rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 8, MaxRecvWR: 4}}, func(t *testing.T, p *pair) {
		room := p.b.ep.Conn().QP().Granted().MaxRecvWR
		g := newGroup(room + 1)
		g.prepare(t, p.b, p.b.ep.PrepareRecv)
		c := g.contexts
		require.ErrorIs(t, p.b.ep.PostRecv(c...), transport.ErrQueueFull)
		require.ErrorIs(t, p.b.ep.PostRecv(c[0], c[1], c[0]), rw.ErrNotPrepared, "twice")
		require.ErrorIs(t, p.b.ep.PostRecv(c[0], nil), rw.ErrNotPrepared)
		require.ErrorIs(t, p.b.ep.PostRecv(c[0], new(rw.Context)), rw.ErrNotPrepared)
		require.ErrorIs(t, p.a.ep.PostRecv(c[0]), rw.ErrNotPrepared, "of another endpoint")
		require.NoError(t, p.b.ep.PostRecv(c[:room]...))
		require.ErrorIs(t, p.b.ep.PostRecv(c[room]), transport.ErrQueueFull)
		p.sendNumbers(t, 1)
		require.NoError(t, receive(t, g.done).Err())
		require.NoError(t, p.b.ep.PostRecv(c[room]))
		require.NoError(t, p.b.ep.Close())
		for range room {
			require.ErrorIs(t, receive(t, g.done).Err(), rw.ErrClosed)
		}
		g.contexts = g.contexts[:1]
		require.NoError(t, p.b.ep.PrepareRecv(c[0], nil))
		require.ErrorIs(t, p.b.ep.PostRecv(c[0]), rw.ErrClosed)
	})
}

// The same of shared queues.
func TestSharedReceivesAreAllPostedOrNone(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		srq, err := p.b.poller.NewSRQ(p.b.pd, 4, 1)
		require.NoError(t, err)
		room := 4
		for ; ; room++ { // what is granted may be more
			g := newGroup(room + 1)
			g.prepare(t, p.b, srq.PrepareRecv)
			if err := srq.PostRecv(g.contexts...); err != nil {
				require.ErrorIs(t, err, transport.ErrQueueFull)
				require.ErrorIs(t, srq.PostRecv(g.contexts[0], g.contexts[0]), rw.ErrNotPrepared)
				require.NoError(t, srq.PostRecv(g.contexts[:room]...))
				require.ErrorIs(t, srq.PostRecv(g.contexts[room]), transport.ErrQueueFull)
				require.NoError(t, srq.Close())
				for range room {
					require.ErrorIs(t, receive(t, g.done).Err(), rw.ErrClosed)
				}
				require.ErrorIs(t, srq.PostRecv(g.contexts[room]), rw.ErrClosed)
				return
			}
			require.NoError(t, srq.Close())
			for range room + 1 {
				require.ErrorIs(t, receive(t, g.done).Err(), rw.ErrClosed)
			}
			srq, err = p.b.poller.NewSRQ(p.b.pd, 4, 1)
			require.NoError(t, err)
		}
	})
}

// stingyConn is of a device that takes some receives of a call and refuses the rest.
type stingyConn struct {
	transport.Conn
	takes  int
	reason error
}

type stingyQP struct {
	transport.QP
	conn *stingyConn
}

func (c *stingyConn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	qp, err := c.Conn.CreateQP(cfg)
	return &stingyQP{qp, c}, err
}

func (q *stingyQP) PostRecv(wrs []transport.RecvWR, sges []transport.SGE) (int, error) {
	if q.conn.takes == 0 {
		return 0, q.conn.reason
	}
	n, err := q.QP.PostRecv(wrs[:min(q.conn.takes, len(wrs))], sges)
	if err == nil && n < len(wrs) {
		err = q.conn.reason
	}
	return n, err
}

// If the device takes only some of the receives, all come back, and the endpoint is over. If
// it takes none, nothing has happened.
func TestReceivesTakenInPart(t *testing.T) {
	for _, profile := range profiles {
		for _, takes := range []int{0, 1, 3} {
			t.Run(fmt.Sprintf("%s, %d of 4", profile, takes), func(t *testing.T) {
				p := connect(t, simBed(profile), rw.EndpointConfig{})
				refusal := errors.New("refused for the test")
				ep, far := p.advDial(t, func(c transport.Conn) transport.Conn { return &stingyConn{c, takes, refusal} },
					rw.EndpointConfig{Pool: p.a.pool})
				g := newGroup(4)
				g.prepare(t, p.a, ep.PrepareRecv)
				err := ep.PostRecv(g.contexts...)
				if takes == 0 {
					require.ErrorIs(t, err, refusal)
					require.NoError(t, ep.Err())
				} else {
					require.NoError(t, err)
					require.ErrorIs(t, ep.Err(), refusal)
					seen := map[any]bool{}
					for range 4 {
						c := receive(t, g.done)
						require.ErrorIs(t, c.Err(), refusal)
						seen[c.Owner] = true
					}
					require.Len(t, seen, 4)
				}
				require.NoError(t, ep.Close())
				require.NoError(t, far.Close())
				require.Empty(t, g.done, "none is over twice")
			})
		}
	}
}

// Swept is called once for all that a Poll has found, after the last OnDone, and may submit.
func TestSwept(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			var events []string
			var answer rw.Context
			var ep *rw.Endpoint
			answering := false
			poller, err := rw.NewPoller(p.b.dev, 256, rw.PollerConfig{Swept: func() {
				events = append(events, "swept")
				if answering {
					answering = false
					require.NoError(t, ep.Submit(&answer))
				}
			}})
			require.NoError(t, err)
			pool, err := mrpool.New(p.b.pd, mrpool.Config{})
			require.NoError(t, err)
			accepted := make(chan *rw.Endpoint, 1)
			go func() {
				conn, err := p.listen.Next(context.Background())
				if err != nil {
					return
				}
				e, _ := poller.NewEndpoint(conn, rw.EndpointConfig{Pool: pool, QueueCaps: transport.QueueCaps{MaxSendWR: 16, MaxRecvWR: 16}})
				e.Accept(context.Background(), transport.ConnParams{})
				accepted <- e
			}()
			conn, err := p.a.dev.Resolve(t.Context(), p.listen.Addr())
			require.NoError(t, err)
			p.a.ep, err = p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool})
			require.NoError(t, err)
			_, err = p.a.ep.Connect(t.Context(), transport.ConnParams{})
			require.NoError(t, err)
			ep = <-accepted
			require.NotNil(t, ep)

			var done [1]*rw.Context
			poll := func() int {
				n, err := poller.Poll(done[:])
				require.NoError(t, err)
				return n
			}
			require.Zero(t, poll())
			require.Empty(t, events, "nothing was found")

			var recvs [3]rw.Context
			for i := range recvs {
				recvs[i].OnDone = func(*rw.Context) { events = append(events, "received") }
				require.NoError(t, ep.PrepareRecv(&recvs[i], []transport.Piece{p.b.region.Piece(uint64(i), 1)}))
			}
			require.NoError(t, ep.PostRecv(&recvs[0], &recvs[1], &recvs[2]))
			require.NoError(t, ep.PrepareSend(&answer, rw.Message{}))
			got := p.a.postRecv(p.a.ep)
			answering = true
			p.sendNumbers(t, 3) // each is acknowledged, and so has arrived
			require.Eventually(t, func() bool { poll(); return len(events) >= 4 }, 10*time.Second, time.Millisecond)
			require.Equal(t, []string{"received", "received", "received", "swept"}, events)

			events = nil
			require.NoError(t, receive(t, got).Err(), "what it submits goes")
			require.Eventually(t, func() bool { return poll() == 1 }, 10*time.Second, time.Millisecond)
			require.Same(t, &answer, done[0])
			require.Empty(t, events, "that has no OnDone")

			poller.Call(func() { events = append(events, "called") })
			poll()
			require.Equal(t, []string{"called", "swept"}, events)

			ep.StartClose()
			require.Eventually(t, func() bool {
				poll()
				select {
				case <-ep.Closed():
					return true
				default:
					return false
				}
			}, 20*time.Second, time.Millisecond)
			require.NoError(t, ep.Close())
			require.NoError(t, poller.Close())
			require.NoError(t, pool.Close())
			require.NoError(t, p.a.ep.Close())
		})
	}
}
