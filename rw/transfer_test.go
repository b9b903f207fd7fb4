package rw_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// shapes are local lists that are worth trying.
var shapes = []struct {
	name string
	list func(r *transport.Region) []transport.Piece
}{
	{"one byte", func(r *transport.Region) []transport.Piece { return scattered(r, 1, 1, 4095) }},
	{"4095 bytes", func(r *transport.Region) []transport.Piece { return scattered(r, 1, 4095, 1) }},
	{"3 odd pieces", func(r *transport.Region) []transport.Piece {
		return []transport.Piece{r.Piece(4096+1, 4095), r.Piece(3*4096, 8192), r.Piece(6*4096, 17)}
	}},
	{"17 unaligned pieces with gaps", func(r *transport.Region) []transport.Piece { return scattered(r, 17, 1000, 333) }},
	{"neighbours", func(r *transport.Region) []transport.Piece {
		return []transport.Piece{r.Piece(4096, 100), r.Piece(4196, 5000), r.Piece(9196, 1), r.Piece(20480, 0), r.Piece(20480, 4096)}
	}},
	{"256 pieces of 4 KiB", func(r *transport.Region) []transport.Piece { return scattered(r, 256, 4096, 0) }},
	{"256 KiB and 5 bytes in one piece", func(r *transport.Region) []transport.Piece { return scattered(r, 1, 256<<10+5, 0) }},
}

// remoteCuts are ways to describe the peer's memory.
var remoteCuts = []int{1, 2, 17}

// Each shape is read and written, byte for byte, from and to memory that the peer
// exposed for it, and nothing else changes on either side. Afterwards all credits
// and registrations are back, and the peer's keys are dead.
func TestReadAndWriteMoveExactlyTheirBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		sends, reads := p.a.ep.Credits()
		require.NotZero(t, reads)
		for _, shape := range shapes {
			for _, n := range remoteCuts {
				for _, op := range []rw.Op{rw.Read, rw.Write} {
					t.Run(fmt.Sprintf("%v %s, %d remote", op, shape.name, n), func(t *testing.T) {
						moveExactly(t, p, op, shape.list(p.a.region), n)
					})
				}
			}
		}
		s, r := p.a.ep.Credits()
		require.Equal(t, [2]int{sends, reads}, [2]int{s, r}, "all credits are back")
		for kind := range transport.NumRegistrationKinds {
			require.Zero(t, p.a.pool.Stats(kind).Out)
			require.Zero(t, p.a.pool.Stats(kind).Broken)
		}
	})
}

func moveExactly(t *testing.T, p *pair, op rw.Op, local []transport.Piece, remotes int) {
	a, b := p.a, p.b
	var total uint32
	for _, piece := range local {
		total += piece.Len
	}
	far := []transport.Piece{b.region.Piece(12345, total)}
	fill(a.region.Bytes(), 1)
	fill(b.region.Bytes(), 2)
	beforeA, beforeB := slices.Clone(a.region.Bytes()), slices.Clone(b.region.Bytes())

	var x rw.Exposure
	ops := mrpool.ReadSource
	if op == rw.Write {
		ops = mrpool.WriteSink
	}
	remote := cut(slices.Clone(b.expose(p.b.ep, &x, far, ops)), remotes)
	var c rw.Context
	require.NoError(t, a.ep.Prepare(&c, rw.Transfer{Op: op, Local: local, Remote: remote}))
	if op == rw.Read {
		require.NoError(t, await(t, a.ep, &c))
	} else {
		// The completion of a WRITE doesn't say that the data is in the peer's memory
		// (iWARP: only that it was sent). A message behind it does, once it is there.
		got := b.postRecv(p.b.ep)
		var send rw.Context
		require.NoError(t, a.ep.PrepareSend(&send, rw.Message{}))
		require.NoError(t, await(t, a.ep, &c, &send))
		require.NoError(t, receive(t, got).Err())
	}
	require.Equal(t, uint64(total), c.Plan().Bytes)
	b.revoke(p.b.ep, &x)

	require.True(t, bytes.Equal(bytesOf(b.region, far), bytesOf(a.region, local)), "the bytes are there")
	if op == rw.Read {
		requireUntouched(t, a.region, beforeA, local)
		requireUntouched(t, b.region, beforeB, nil)
	} else {
		requireUntouched(t, a.region, beforeA, nil)
		requireUntouched(t, b.region, beforeB, far)
	}
}

// A list that is exposed by several keys, or one, is read as one.
func TestExposureOfAList(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		list := []transport.Piece{p.b.region.Piece(100, 1000), p.b.region.Piece(8192, 4096), p.b.region.Piece(12288, 10)}
		fill(p.b.region.Bytes(), 5)
		var x rw.Exposure
		remote := p.b.expose(p.b.ep, &x, list, mrpool.ReadSource)
		local := []transport.Piece{p.a.region.Piece(0, 5106)}
		require.NoError(t, p.a.ep.Read(within(t, time.Minute), local, remote...))
		require.Equal(t, bytesOf(p.b.region, list), bytesOf(p.a.region, local))
		p.b.revoke(p.b.ep, &x)
		require.Empty(t, x.Remotes())
	})
}

func TestOffsetAndLength(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		fill(p.b.region.Bytes(), 9)
		var x rw.Exposure
		far := []transport.Piece{p.b.region.Piece(0, 5000)}
		remote := p.b.expose(p.b.ep, &x, far, mrpool.ReadSource)
		list := scattered(p.a.region, 3, 2000, 0)
		before := slices.Clone(p.a.region.Bytes())
		var c rw.Context
		require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: list, Offset: 1500, Length: 3000, Remote: remote}))
		require.NoError(t, await(t, p.a.ep, &c))
		require.Equal(t, p.b.region.Bytes()[:3000], bytesOf(p.a.region, list)[1500:4500])
		list[0].Addr, list[0].Len = list[0].Addr+1500, 500
		list[2].Len = 500
		requireUntouched(t, p.a.region, before, list)
		p.b.revoke(p.b.ep, &x)
	})
}

func TestZeroLengthCompletesWithoutPosting(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		var c rw.Context
		for _, op := range []rw.Op{rw.Read, rw.Write} {
			require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: op, Local: []transport.Piece{p.a.region.Piece(0, 0)}}))
			require.Equal(t, rw.Plan{}, c.Plan())
			require.NoError(t, await(t, p.a.ep, &c))
		}
	})
}

// It doesn't even wait for a connection.
func TestZeroLengthCompletesWithoutAConnection(t *testing.T) {
	devA, _, _ := simBed("rxe").open(t)
	s := newSide(t, devA)
	conn, err := devA.Resolve(within(t, time.Minute), "b:1")
	require.NoError(t, err)
	ep, err := s.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: s.pool})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	var c rw.Context
	ended := make(chan error, 1)
	c.OnDone = func(c *rw.Context) { ended <- c.Err() }
	require.NoError(t, ep.Prepare(&c, rw.Transfer{Op: rw.Write, Local: []transport.Piece{s.region.Piece(0, 0)}}))
	require.NoError(t, ep.Submit(&c))
	require.False(t, rw.Queued(ep))
	require.NoError(t, <-ended)
}

// postRecv posts a receive into the last page of the region; its end comes by the
// channel.
func (s *side) postRecv(ep *rw.Endpoint) chan *rw.Context {
	got := make(chan *rw.Context, 1)
	c := &rw.Context{OnDone: func(c *rw.Context) { got <- c }}
	require.NoError(s.t, ep.PrepareRecv(c, []transport.Piece{s.region.Piece(regionSize-4096, 4096)}))
	require.NoError(s.t, ep.PostRecv(c))
	return got
}

func receive(t *testing.T, got chan *rw.Context) *rw.Context {
	t.Helper()
	select {
	case c := <-got:
		return c
	case <-time.After(time.Minute):
		t.Fatal("nothing was received")
		return nil
	}
}

// A WRITE and the SEND that tells of it are one chain: when the message is there,
// so is the data.
func TestSendChainedBehindWriteArrivesAfterIt(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		for round := range uint64(5) {
			got := p.b.postRecv(p.b.ep)
			fill(p.a.region.Bytes(), round)
			far := []transport.Piece{p.b.region.Piece(500, 64<<10)}
			var x rw.Exposure
			remote := p.b.expose(p.b.ep, &x, far, mrpool.WriteSink)
			list := scattered(p.a.region, 16, 4096, 0)
			var write, send rw.Context
			require.NoError(t, p.a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: list, Remote: remote}))
			require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 7)}}))
			require.NoError(t, await(t, p.a.ep, &write, &send))
			c := receive(t, got)
			require.NoError(t, c.Err())
			require.Equal(t, 7, c.Received().Len)
			require.Equal(t, bytesOf(p.a.region, list), bytesOf(p.b.region, far))
			p.b.revoke(p.b.ep, &x)
		}
	})
}

// The key travels in the message that is chained behind the grant.
func TestGrantChainedInFrontOfSend(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		got := p.a.postRecv(p.a.ep)
		fill(p.b.region.Bytes(), 8)
		var x rw.Exposure
		far := []transport.Piece{p.b.region.Piece(77, 10000)}
		require.NoError(t, p.b.ep.Expose(&x, far, mrpool.ReadSource))
		remote := slices.Clone(x.Remotes())
		var send rw.Context
		require.NoError(t, p.b.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.b.region.Piece(0, 1)}}))
		require.NoError(t, await(t, p.b.ep, &x.Grant, &send))
		require.NoError(t, receive(t, got).Err())
		local := []transport.Piece{p.a.region.Piece(0, 10000)}
		require.NoError(t, p.a.ep.Read(within(t, time.Minute), local, remote...))
		require.Equal(t, bytesOf(p.b.region, far), bytesOf(p.a.region, local))
		p.b.revoke(p.b.ep, &x)
	})
}

// Where the device offers it, the peer's message invalidates the key that it was
// given, and the revocation that follows posts nothing.
func TestPeerInvalidatesWhatItWasOffered(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		for range 5 {
			got := p.b.postRecv(p.b.ep)
			var x rw.Exposure
			remote := slices.Clone(p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 100)}, mrpool.ReadSource))
			caps := p.b.dev.Caps()
			offered := x.OfferInvalidation()
			require.Equal(t, caps.CompletionReportsInv && (caps.Windows != transport.NoWindows || caps.FastReg.MaxPages > 0), offered)
			var send rw.Context
			require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 3)}, Invalidate: remote[0].Key, HasInvalidate: offered}))
			require.NoError(t, await(t, p.a.ep, &send))
			c := receive(t, got)
			require.NoError(t, c.Err())
			if offered {
				require.True(t, c.Received().Invalidated == &x)
				require.Equal(t, remote, x.Remotes(), "they stay until Revoke is done")
			}
			p.b.revoke(p.b.ep, &x)
			require.Empty(t, x.Remotes())
		}
	})
}
