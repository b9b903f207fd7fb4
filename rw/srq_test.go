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

// shared is an SRQ of side B with its receives posted, each of 64 bytes.
type shared struct {
	t        *testing.T
	b        *side
	srq      *rw.SRQ
	contexts []rw.Context
	done     chan *rw.Context
}

func newShared(t *testing.T, b *side, n int) *shared {
	require.NotZero(t, b.dev.Caps().MaxSRQWR, "each testbed has SRQs")
	srq, err := b.poller.NewSRQ(b.pd, n, 1)
	require.NoError(t, err)
	s := &shared{t: t, b: b, srq: srq, contexts: make([]rw.Context, n), done: make(chan *rw.Context, n)}
	for i := range s.contexts {
		s.contexts[i].Owner = i
		s.contexts[i].OnDone = func(c *rw.Context) { s.done <- c }
		s.post(&s.contexts[i])
	}
	return s
}

func (s *shared) at(c *rw.Context) transport.Piece {
	return s.b.region.Piece(uint64(64*c.Owner.(int)), 64)
}

func (s *shared) post(c *rw.Context) {
	require.NoError(s.t, s.srq.PrepareRecv(c, []transport.Piece{s.at(c)}))
	require.NoError(s.t, s.srq.PostRecv(c))
}

// next waits for a message and posts its receive again.
func (s *shared) next() (from *rw.Endpoint, text string) {
	select {
	case c := <-s.done:
		require.NoError(s.t, c.Err())
		text = string(bytesOf(s.b.region, []transport.Piece{s.at(c)})[:c.Received().Len])
		from = c.Endpoint()
		s.post(c)
	case <-time.After(20 * time.Second):
		s.t.Fatal("no message")
	}
	return from, text
}

// Messages of all connections come by one queue, each with the endpoint it came to, and
// one connection's end takes nothing from the others.
func TestSRQ(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		const receives, connections = 16, 3
		s := newShared(t, p.b, receives)
		var as, bs [connections]*rw.Endpoint
		for i := range as {
			as[i], bs[i] = p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{SRQ: s.srq})
		}
		say := func(i int, text string) {
			piece := p.a.region.Piece(uint64(64*i), uint32(len(text)))
			copy(p.a.region.Bytes()[64*i:], text)
			var c rw.Context
			require.NoError(t, as[i].PrepareSend(&c, rw.Message{Local: []transport.Piece{piece}}))
			require.NoError(t, await(t, as[i], &c))
		}
		for round := range 2 * receives {
			for i := range as {
				text := fmt.Sprintf("%d says %d", i, round)
				say(i, text)
				from, got := s.next()
				require.Equal(t, text, got)
				require.Same(t, bs[i], from)
			}
		}

		var c rw.Context
		require.NoError(t, bs[0].PrepareRecv(&c, nil))
		require.ErrorIs(t, bs[0].PostRecv(&c), transport.ErrInvalid)
		require.ErrorIs(t, s.srq.PostRecv(&c), rw.ErrNotPrepared, "it is another's")
		require.ErrorIs(t, s.srq.Close(), transport.ErrBusy)

		require.NoError(t, as[0].Close())
		require.NoError(t, bs[0].Close())
		say(1, "still here")
		from, got := s.next()
		require.Same(t, bs[1], from)
		require.Equal(t, "still here", got)

		for i := range as {
			require.NoError(t, as[i].Close())
			require.NoError(t, bs[i].Close())
		}
		require.NoError(t, s.srq.Close())
		require.NoError(t, s.srq.Close(), "twice is harmless")
		back := 0
		for range receives {
			c := <-s.done
			require.ErrorIs(t, c.Err(), rw.ErrClosed)
			back++
		}
		require.Equal(t, receives, back)
		require.Error(t, s.srq.PostRecv(&s.contexts[0]))
	})
}

// A queue takes no more than it has, and pollers and domains keep theirs apart.
func TestSRQRefusals(t *testing.T) {
	p := connect(t, testbeds[0], rw.EndpointConfig{})
	srq, err := p.b.poller.NewSRQ(p.b.pd, 2, 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, srq.Close()) }()
	piece := []transport.Piece{p.b.region.Piece(0, 64)}
	var c rw.Context
	require.ErrorIs(t, srq.PrepareRecv(&c, []transport.Piece{piece[0], p.b.region.Piece(4096, 64)}), transport.ErrTooManySGE)
	require.ErrorIs(t, srq.PostRecv(&c), rw.ErrNotPrepared)
	full := false
	for range 1 << 12 {
		c := &rw.Context{OnDone: func(*rw.Context) {}}
		require.NoError(t, srq.PrepareRecv(c, piece))
		if err := srq.PostRecv(c); err != nil {
			require.ErrorIs(t, err, transport.ErrQueueFull)
			full = true
			break
		}
		require.ErrorIs(t, srq.PostRecv(c), rw.ErrNotPrepared, "posted already")
	}
	require.True(t, full)

	other, err := rw.NewPoller(p.b.dev, 512, rw.PollerConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	_, err = other.NewSRQ(p.b.pd, 1000, 1)
	require.ErrorIs(t, err, rw.ErrCQTooSmall)
	conn, err := p.b.dev.Resolve(within(t, time.Minute), p.listen.Addr())
	require.NoError(t, err)
	defer conn.Close()
	_, err = other.NewEndpoint(conn, rw.EndpointConfig{Pool: p.b.pool, SRQ: srq})
	require.ErrorIs(t, err, transport.ErrInvalid)
	pd, err := p.b.dev.NewPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	pool, err := mrpool.New(pd, mrpool.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, pool.Close()) }()
	_, err = p.b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: pool, SRQ: srq})
	require.ErrorIs(t, err, transport.ErrInvalid)
}

// A receive is posted where it was prepared: another queue's domain doesn't know its
// keys. A closed queue says so, and its poller is closed after it.
func TestSRQsAreNotMixedUp(t *testing.T) {
	p := connect(t, testbeds[0], rw.EndpointConfig{})
	poller, err := rw.NewPoller(p.b.dev, 512, rw.PollerConfig{})
	require.NoError(t, err)
	pd, err := p.b.dev.NewPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	one, err := poller.NewSRQ(p.b.pd, 4, 1)
	require.NoError(t, err)
	other, err := poller.NewSRQ(pd, 4, 1)
	require.NoError(t, err)
	piece := []transport.Piece{p.b.region.Piece(0, 64)}
	var c, late rw.Context
	require.NoError(t, one.PrepareRecv(&c, piece))
	require.ErrorIs(t, other.PostRecv(&c), rw.ErrNotPrepared)
	require.NoError(t, one.PostRecv(&c))
	require.ErrorIs(t, other.PrepareRecv(&c, nil), rw.ErrInUse)

	require.NoError(t, other.Close())
	require.ErrorIs(t, poller.Close(), transport.ErrBusy)
	require.NoError(t, one.Close())
	require.NoError(t, one.PrepareRecv(&late, piece))
	require.ErrorIs(t, one.PostRecv(&late), rw.ErrClosed)
	var done [4]*rw.Context
	n, err := poller.Poll(done[:])
	require.NoError(t, err)
	require.Equal(t, []*rw.Context{&c}, done[:n])
	require.ErrorIs(t, c.Err(), rw.ErrClosed)
	require.NoError(t, poller.Close())
}
