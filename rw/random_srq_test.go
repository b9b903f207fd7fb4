package rw_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// sharedWork is random work on an SRQ: connections come and go, under numbers that others
// had, and messages arrive at any time, while a queue pair is being destroyed too.
type sharedWork struct {
	*stepped
	choose choose
	srq    *rw.SRQ
	lines  []*line
	serial uint64
	sent   map[uint64]*line // that are on their way
	posted map[*rw.Context]bool
	idle   []*rw.Context
	heard  int
	reused int // numbers of queue pairs
	nums   map[uint32]bool
	sends  map[*rw.Context]bool
	over   bool
}

// line is a connection, from A to B.
type line struct {
	a, b   *rw.Endpoint
	broken bool
}

// lateConn lets something happen around the destruction of its queue pair.
type lateConn struct {
	transport.Conn
	before, after func()
}

func (c *lateConn) Close() error {
	c.before()
	err := c.Conn.Close()
	after := c.after
	c.after = func() {}
	after()
	return err
}

const sharedReceives = 8

func newSharedWork(t *rapid.T, c choose, profile sim.Profile) *sharedWork {
	w := &sharedWork{
		stepped: newStepped(t, steppedConfig{profile: profile, seed: uint64(c(1<<20, "seed")), memory: 64 << 10}), choose: c,
		sent: make(map[uint64]*line), posted: make(map[*rw.Context]bool), nums: make(map[uint32]bool), sends: make(map[*rw.Context]bool),
	}
	b := w.ends[1]
	var err error
	w.srq, err = b.poller.NewSRQ(b.pd, sharedReceives, 1)
	require.NoError(t, err)
	for i := range sharedReceives {
		w.idle = append(w.idle, &rw.Context{Owner: b.region.Piece(uint64(i)*64, 64)})
	}
	return w
}

// dial makes one more connection.
func (w *sharedWork) dial() {
	a, b := w.ends[0], w.ends[1]
	ctx := context.Background()
	conn, err := a.dev.Resolve(ctx, w.listen.Addr())
	require.NoError(w.t, err)
	l := new(line)
	queues := transport.QueueCaps{MaxSendWR: 16, MaxRecvWR: 1}
	l.a, err = a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: a.pool, QueueCaps: queues, DrainTimeout: time.Second})
	require.NoError(w.t, err)
	require.NoError(w.t, conn.Connect(transport.ConnParams{}))
	conn, err = w.listen.Next(ctx)
	require.NoError(w.t, err)
	late := &lateConn{Conn: conn, before: func() {
		for range w.choose(20, "steps before") {
			w.step()
		}
	}, after: func() {}}
	if w.choose.oneIn(3, "somebody else has the number at once") {
		late.after = func() {
			if len(w.lines) < 4 && !w.over {
				w.dial()
			}
		}
	}
	l.b, err = b.poller.NewEndpoint(late, rw.EndpointConfig{Pool: b.pool, SRQ: w.srq, QueueCaps: queues, DrainTimeout: time.Second})
	require.NoError(w.t, err)
	_, err = l.b.Accept(ctx, transport.ConnParams{})
	require.NoError(w.t, err)
	_, err = l.a.Established(ctx)
	require.NoError(w.t, err)
	if n := l.b.Conn().QP().Num(); w.nums[n] {
		w.reused++
	} else {
		w.nums[n] = true
	}
	w.lines = append(w.lines, l)
}

func (w *sharedWork) send(l *line) {
	a := w.ends[0]
	if l.broken {
		return
	}
	w.serial++
	at := w.serial % 512 * 64
	binary.LittleEndian.PutUint64(a.region.Bytes()[at:], w.serial)
	c := &rw.Context{Owner: l}
	require.NoError(w.t, l.a.PrepareSend(c, rw.Message{Local: []transport.Piece{a.region.Piece(at, 8)}}))
	if err := l.a.Submit(c); err != nil {
		l.broken = true
		return
	}
	w.sends[c] = true
	w.sent[w.serial] = l
}

// hear takes in what came.
func (w *sharedWork) hear() {
	for _, e := range w.ends {
		e.poll()
	}
	a, b := w.ends[0], w.ends[1]
	for _, c := range a.done {
		require.True(w.t, w.sends[c], "it was under way")
		delete(w.sends, c)
		if c.Err() != nil {
			c.Owner.(*line).broken = true
		}
	}
	for _, c := range b.done {
		require.True(w.t, w.posted[c], "it was posted")
		delete(w.posted, c)
		w.idle = append(w.idle, c)
		if c.Err() != nil {
			continue
		}
		serial := binary.LittleEndian.Uint64(b.region.Bytes()[c.Owner.(transport.Piece).Addr-b.region.Addr():])
		l := w.sent[serial]
		require.NotNil(w.t, l, "message %d was sent once", serial)
		require.Same(w.t, l.b, c.Endpoint(), "and came to its own endpoint")
		delete(w.sent, serial)
		w.heard++
	}
	a.done, b.done = nil, nil
}

func (w *sharedWork) post() {
	for len(w.idle) > 0 {
		c := w.idle[0]
		require.NoError(w.t, w.srq.PrepareRecv(c, []transport.Piece{c.Owner.(transport.Piece)}))
		require.NoError(w.t, w.srq.PostRecv(c), "as many receives as the queue has")
		w.idle = w.idle[1:]
		w.posted[c] = true
		if w.choose.oneIn(3, "no more") {
			return
		}
	}
}

func (w *sharedWork) end(i int) {
	l := w.lines[i]
	w.lines = append(w.lines[:i], w.lines[i+1:]...)
	l.broken = true
	switch w.choose(4, "how it ends") {
	case 0:
		l.b.Conn().(*lateConn).Conn.(*witnessConn).Conn.(*sim.Conn).Kill()
	case 1:
		require.NoError(w.t, l.a.Conn().Disconnect())
	case 2:
		l.a.StartClose()
	}
	l.b.StartClose()
	l.a.StartClose()
}

func (w *sharedWork) finish() {
	w.over = true
	for len(w.lines) > 0 {
		w.end(0)
	}
	w.until(func() bool { return false })
	w.hear()
	w.post()
	require.NoError(w.t, w.srq.Close())
	w.hear()
	require.Empty(w.t, w.posted, "all receives came back")
	require.Empty(w.t, w.sends)
	w.closeEndpoints()
	w.close()
}

// Each message comes to the endpoint that it was for, or nobody; each receive comes back
// once, and the queue holds as many as ever.
func TestRandomSRQ(t *testing.T) {
	heard, reused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawn(t)
		profile, _ := sim.LookupProfile([]string{"rxe", "siw", "mlx5"}[c(3, "profile")])
		w := newSharedWork(t, c, profile)
		for range 10 + c(40, "acts") {
			switch c(8, "act") {
			case 0:
				if len(w.lines) < 4 {
					w.dial()
				}
			case 1, 2, 3:
				if n := len(w.lines); n > 0 {
					w.send(w.lines[c(n, "line")])
				}
			case 4:
				w.post()
			case 5:
				w.hear()
			case 6:
				if n := len(w.lines); n > 0 && c.oneIn(2, "end") {
					w.end(c(n, "line"))
				}
			default:
				for range c(10, "steps") {
					w.step()
				}
			}
		}
		w.finish()
		heard += w.heard
		reused += w.reused
	})
	require.Greater(t, heard, 20)
	require.Greater(t, reused, 3)
}
