package rw_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// On a connection without READ depth READs are refused, or end if they were submitted
// before it was known; WRITEs go on. kernel-rdma-rw.md 4.7: "ORD 0 fails".
func TestReadDepthZero(t *testing.T) {
	devA, devB, addr := simBed("rxe").open(t)
	a, b := newSide(t, devA), newSide(t, devB)
	l, err := devB.Listen(addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	conn, err := devA.Resolve(within(t, 20*time.Second), l.Addr())
	require.NoError(t, err)
	ep, err := a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: a.pool})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	var early, late, write rw.Context
	ended := make(chan error, 1)
	early.OnDone = func(c *rw.Context) { ended <- c.Err() }
	tr := rw.Transfer{Op: rw.Read, Local: scattered(a.region, 1, 8, 0), Remote: []transport.Remote{{Len: 8}}}
	require.NoError(t, ep.Prepare(&early, tr))
	require.NoError(t, ep.Submit(&early), "nobody knows the depth yet")
	accepted := make(chan *rw.Endpoint, 1)
	go func() {
		defer close(accepted)
		conn, err := l.Next(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		far, err := b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: b.pool})
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := far.Accept(context.Background(), transport.ConnParams{}); err != nil {
			t.Error(err)
		}
		accepted <- far
	}()
	_, err = ep.Connect(within(t, 20*time.Second), transport.ConnParams{InitiatorDepth: -1})
	require.NoError(t, err)
	far := <-accepted
	require.NotNil(t, far)
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	require.ErrorIs(t, <-ended, transport.ErrReadDepth)
	require.NoError(t, ep.Prepare(&late, tr))
	require.ErrorIs(t, ep.Submit(&late), transport.ErrReadDepth)
	var x rw.Exposure
	remote := b.expose(far, &x, []transport.Piece{b.region.Piece(0, 8)}, mrpool.WriteSink)
	require.NoError(t, ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: tr.Local, Remote: remote}))
	require.NoError(t, await(t, ep, &write))
	b.revoke(far, &x)
}

// A registration by calls that fails is the error of its READ: nothing was posted, the
// endpoint is well, and what was registered before it is deregistered.
// xprtrdma 539431a437d2 (an invalidation was posted though the registration had failed).
func TestRegistrationThatFails(t *testing.T) {
	for at := range int32(3) {
		var maps, failAt atomic.Int32
		failAt.Store(-1)
		p := connect(t, faultyBed("siw", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
			if what == sim.AllocMap && failAt.Load() >= 0 && maps.Add(1)-1 == failAt.Load() {
				return transport.ErrMemlock
			}
			return nil
		}}), rw.EndpointConfig{})
		remote := p.source(t, 4096, mrpool.ReadSource)
		var c rw.Context
		list := scattered(p.a.region, 3, 64, 0)
		require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
		failAt.Store(at)
		require.ErrorIs(t, await(t, p.a.ep, &c), transport.ErrMemlock)
		failAt.Store(-1)
		require.NoError(t, p.a.ep.Err())
		p.holdsNothing(t, p.a.ep, p.a.pool)
		p.read(t, p.a.ep, &c, list, remote)
		require.NoError(t, p.a.pd.RemoveRegion(p.a.region), "no registration covers it any more")
		require.NoError(t, p.a.pd.AddRegion(p.a.region))
	}
}

// A chain mixes what has its own keys with what is registered: each uses its own
// SGEs.
func TestChainOfDirectAndRegistered(t *testing.T) {
	p, r := recorded(t, "siw-kernel", rw.EndpointConfig{})
	fill(p.a.region.Bytes(), 1)
	fill(p.b.region.Bytes(), 2)
	remote := p.source(t, 64<<10, mrpool.ReadSource|mrpool.WriteSink)
	at := func(offset uint64, n uint32) []transport.Remote {
		return []transport.Remote{{Addr: remote[0].Addr + offset, Len: n, Key: remote[0].Key}}
	}
	pieces := scattered(p.a.region, 20, 1000, 0)
	var write, read, more rw.Context
	require.NoError(t, p.a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: pieces[:8], Remote: at(0, 8000)}))
	require.NoError(t, p.a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: pieces[8:12], Remote: at(30000, 4000)}))
	require.NoError(t, p.a.ep.Prepare(&more, rw.Transfer{Op: rw.Write, Local: pieces[12:], Remote: at(10000, 8000)}))
	require.NoError(t, await(t, p.a.ep, &write, &read, &more))
	require.Equal(t, "WRITE WRITE FAST_REG READ_WITH_INV FAST_REG READ_WITH_INV FAST_REG READ_WITH_INV FAST_REG READ_WITH_INV WRITE WRITE", opcodes(r.take()))
	far := p.b.region.Bytes()
	require.Equal(t, bytesOf(p.a.region, pieces[:8]), far[:8000])
	require.Equal(t, far[30000:34000], bytesOf(p.a.region, pieces[8:12]))
	require.Equal(t, bytesOf(p.a.region, pieces[12:]), far[10000:18000])
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// On iWARP the READ shows the sink's key to the peer: no key of a sink comes twice
// while that peer lives.
func TestSinkKeysAreNeverReused(t *testing.T) {
	r := new(recorder)
	p := connect(t, faultyBed("siw-kernel", sim.Faults{Post: r.post}), rw.EndpointConfig{})
	pool, err := mrpool.New(p.a.pd, mrpool.Config{FastMRs: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	ep, _ := p.dial(t, rw.EndpointConfig{Pool: pool}, rw.EndpointConfig{})
	r.qpn.Store(ep.Conn().QP().Num())
	remote := p.source(t, 64, mrpool.ReadSource)
	type key struct {
		reg transport.RegistrationID
		b   byte
	}
	shown := make(map[key]bool)
	var c rw.Context
	for range 600 {
		p.read(t, ep, &c, scattered(p.a.region, 1, 64, 0), remote)
		reg := r.take()[0]
		require.False(t, shown[key{reg.Reg, reg.KeyByte}])
		shown[key{reg.Reg, reg.KeyByte}] = true
	}
	require.EqualValues(t, 2, pool.Stats(transport.FastMR).Repairs)
}

// The offer to invalidate is of one use of an exposure: the next is not offered.
func TestOfferIsOfOneUse(t *testing.T) {
	for _, profile := range []string{"siw-kernel", "mlx5", "rxe"} {
		p := connect(t, simBed(profile), rw.EndpointConfig{})
		var x rw.Exposure
		var send rw.Context
		invalidate := func() *rw.Context {
			got := p.b.postRecv(p.b.ep)
			remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 100)}, mrpool.ReadSource)
			if send.Op() == 0 {
				require.True(t, x.OfferInvalidation())
			}
			require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 3)}, Invalidate: remote[0].Key, HasInvalidate: true}))
			p.a.ep.Do(within(t, 20*time.Second), &send)
			return receive(t, got)
		}
		c := invalidate()
		require.NoError(t, c.Err(), profile)
		require.Same(t, &x, c.Received().Invalidated)
		require.Same(t, p.b.ep, c.Endpoint())
		p.b.revoke(p.b.ep, &x)
		require.ErrorIs(t, invalidate().Err(), rw.ErrInvalidation, profile)
		p.b.revoke(p.b.ep, &x)
	}
}

// Messages that the device can't send are refused before they are queued.
func TestMessagesThatAreRefused(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{})
	var c rw.Context
	require.ErrorIs(t, p.a.ep.PrepareSend(&c, rw.Message{HasImm: true}), transport.ErrUnsupported)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, p.a.ep.Read(ctx, nil), transport.ErrInvalid)
	limited := connect(t, changedBed("rxe", func(p *sim.Profile) { p.Caps.MaxMsg, p.Caps.SendWithInv = 1000, false }, sim.Faults{}), rw.EndpointConfig{})
	require.ErrorIs(t, limited.a.ep.PrepareSend(&c, rw.Message{HasInvalidate: true}), transport.ErrUnsupported)
	require.ErrorIs(t, limited.a.ep.PrepareSend(&c, rw.Message{Local: []transport.Piece{limited.a.region.Piece(0, 1001)}}), transport.ErrMessageTooLong)
	require.NoError(t, limited.a.ep.PrepareSend(&c, rw.Message{Local: []transport.Piece{limited.a.region.Piece(0, 1000)}, Solicited: true}))
	got := limited.b.postRecv(limited.b.ep)
	require.NoError(t, await(t, limited.a.ep, &c))
	require.Equal(t, 1000, receive(t, got).Received().Len)
	got = limited.b.postRecv(limited.b.ep)
	require.NoError(t, limited.a.ep.PrepareSend(&c, rw.Message{HasImm: true, Imm: 0xabc, Inline: true, Local: []transport.Piece{limited.a.region.Piece(0, 10)}}))
	require.NoError(t, await(t, limited.a.ep, &c))
	require.Equal(t, rw.Received{Len: 10, HasImm: true, Imm: 0xabc}, receive(t, got).Received())
	require.ErrorIs(t, p.a.ep.PrepareRecv(&rw.Context{}, scattered(p.a.region, 7, 10, 0)), transport.ErrTooManySGE)
	require.ErrorIs(t, p.a.ep.PrepareRecv(&rw.Context{}, []transport.Piece{p.a.region.Piece(regionSize, 1)}), transport.ErrRange)
}

// The keys of calls are killed before their context is done, not by a repair some time
// after it.
func TestKeysOfCallsDontDieOfRepairs(t *testing.T) {
	for profile, kind := range map[string]transport.RegistrationKind{"siw": transport.SyncMR, "rxe": transport.Window, "cxgb4": transport.SyncMR} {
		p := connect(t, simBed(profile), rw.EndpointConfig{})
		var x rw.Exposure
		var c rw.Context
		for range 3 {
			remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 3000)}, mrpool.ReadSource)
			p.read(t, p.a.ep, &c, scattered(p.a.region, 3, 1000, 0), remote)
			p.b.revoke(p.b.ep, &x)
			for _, s := range []mrpool.Stats{p.a.pool.Stats(kind), p.b.pool.Stats(kind)} {
				require.Zero(t, s.Out+s.Broken, profile)
				require.Zero(t, s.Repairs, profile)
			}
		}
	}
}

// Cancel takes back the chain of its context, and no other: those before and behind it
// stay queued, in order.
func TestCancelTakesBackOneChain(t *testing.T) {
	devA, _, _ := simBed("rxe").open(t)
	s := newSide(t, devA)
	conn, err := devA.Resolve(within(t, 20*time.Second), "b:1")
	require.NoError(t, err)
	ep, err := s.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: s.pool})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	var cs [6]rw.Context
	ended := make(chan *rw.Context, len(cs))
	for i := range cs {
		cs[i].OnDone = func(c *rw.Context) { ended <- c }
		require.NoError(t, ep.Prepare(&cs[i], rw.Transfer{Op: rw.Write, Local: []transport.Piece{s.region.Piece(0, 8)}, Remote: []transport.Remote{{Len: 8}}}))
	}
	require.NoError(t, ep.Submit(&cs[0], &cs[1]))
	require.NoError(t, ep.Submit(&cs[2], &cs[3]))
	require.NoError(t, ep.Submit(&cs[4], &cs[5]))
	require.True(t, ep.Cancel(&cs[3]))
	require.Same(t, &cs[2], <-ended)
	require.Same(t, &cs[3], <-ended)
	require.ErrorIs(t, cs[2].Err(), rw.ErrCanceled)
	require.False(t, ep.Cancel(&cs[2]), "it is over")
	require.Empty(t, ended)
	ep.Fail(transport.ErrTimeout)
	for _, i := range []int{0, 1, 4, 5} {
		require.Same(t, &cs[i], <-ended)
		require.ErrorIs(t, cs[i].Err(), transport.ErrTimeout)
	}
}
