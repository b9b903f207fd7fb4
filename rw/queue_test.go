package rw_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// The sizes that were granted are used, not those that were asked for; one slot is kept
// for the drain. svcrdma 4c8c0fa0d32a, e67792cc96ef; pitfalls 43.
func TestGrantedSizesAreUsed(t *testing.T) {
	for profile, want := range map[string]int{"rxe": 255, "siw": 128, "mlx5": 128} {
		p := connect(t, simBed(profile), rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 128}})
		require.Equal(t, want, p.a.ep.Conn().QP().Granted().MaxSendWR, profile)
		sends, _ := p.a.ep.Credits()
		require.Equal(t, want-1, sends, profile)
		require.Equal(t, want-1, p.a.ep.Limits().SendWR, profile)
	}
}

// READ depth is what this side may have outstanding, which is not what it answers:
// ksmbd took max_qp_rd_atom for it (namjaejeon/ksmbd#497).
func TestReadDepthIsTheInitiators(t *testing.T) {
	p := connect(t, changedBed("mlx5", func(p *sim.Profile) { p.Caps.InitiatorDepth, p.Caps.ResponderResources = 3, 7 }, sim.Faults{}), rw.EndpointConfig{})
	_, reads := p.a.ep.Credits()
	require.Equal(t, 3, reads)
}

// The message at the end of a chain takes a slot like anything else; a chain that is
// too long by just that is refused. spdk#3195: ENOMEM from post_send; pitfalls 46, 48.
func TestResponseIsCountedIntoItsChain(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 8, MaxSendSGE: 1}})
	remote := p.source(t, 4096, mrpool.WriteSink)
	var write, send rw.Context
	prepare := func(n int) {
		require.NoError(t, p.a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, n, 8, 0), Remote: remote}))
		require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 1)}}))
	}
	got := p.b.postRecv(p.b.ep)
	prepare(6)
	require.NoError(t, await(t, p.a.ep, &write, &send))
	require.NoError(t, receive(t, got).Err())
	prepare(7)
	require.ErrorIs(t, p.a.ep.Submit(&write, &send), rw.ErrTooLarge)
	got = p.b.postRecv(p.b.ep)
	require.NoError(t, await(t, p.a.ep, &write), "still prepared")
	require.NoError(t, await(t, p.a.ep, &send))
	require.NoError(t, receive(t, got).Err())
	p.holdsNothing(t, p.a.ep, p.a.pool)
}

// Nothing is done before the last request of its chain is: the memory of a message must
// not be used again while the device may still read it. xprtrdma 01bb35c89d90,
// nvme-rdma 4af7f7ff92a4.
func TestNothingOfAChainIsDoneBeforeItsLastRequest(t *testing.T) {
	const late = 100 * time.Millisecond
	var a onlySide
	p := connect(t, faultyBed("rxe", sim.Faults{Delay: func(q *sim.QP, _ uint64, wr *transport.WR) time.Duration {
		if a.is(q) && wr.Op == transport.OpSend {
			return late
		}
		return 0
	}}), rw.EndpointConfig{})
	a.qpn.Store(p.a.ep.Conn().QP().Num())
	remote := p.source(t, 4096, mrpool.WriteSink)
	got := p.b.postRecv(p.b.ep)
	var write, send rw.Context
	require.NoError(t, p.a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 1, 8, 0), Remote: remote}))
	require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{}))
	begun := time.Now()
	ended := make(chan time.Duration, 2)
	write.OnDone = func(*rw.Context) { ended <- time.Since(begun) }
	send.OnDone = write.OnDone
	require.NoError(t, p.a.ep.Submit(&write, &send))
	require.GreaterOrEqual(t, <-ended, late)
	require.GreaterOrEqual(t, <-ended, late)
	require.NoError(t, receive(t, got).Err())
}

// Receives are accounted for, and refused when the queue is full.
// nvmet 8407879c4e0d: receives posted before there was room for what they bring.
func TestReceiveQueueFull(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxRecvWR: 4}})
	ended := make(chan *rw.Context, 8)
	cs := make([]rw.Context, 5)
	for i := range cs {
		cs[i].OnDone = func(c *rw.Context) { ended <- c }
		require.NoError(t, p.b.ep.PrepareRecv(&cs[i], []transport.Piece{p.b.region.Piece(0, 64)}))
	}
	for i := range 4 {
		require.NoError(t, p.b.ep.PostRecv(&cs[i]))
	}
	require.ErrorIs(t, p.b.ep.PostRecv(&cs[4]), transport.ErrQueueFull)
	require.ErrorIs(t, p.b.ep.PostRecv(&cs[0]), rw.ErrNotPrepared, "posted already")
	require.ErrorIs(t, p.b.ep.PrepareRecv(&cs[0], nil), rw.ErrInUse)
	var send rw.Context
	require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 1)}}))
	require.NoError(t, await(t, p.a.ep, &send))
	require.Same(t, &cs[0], <-ended)
	require.NoError(t, p.b.ep.PostRecv(&cs[4]), "there is room again, and it is still prepared")
	require.NoError(t, p.b.ep.Close())
	for range 4 {
		require.ErrorIs(t, (<-ended).Err(), transport.StatusFlushed)
	}
	require.NoError(t, p.b.ep.PrepareRecv(&cs[0], []transport.Piece{p.b.region.Piece(0, 64)}))
	require.ErrorIs(t, p.b.ep.PostRecv(&cs[0]), rw.ErrClosed)
}

// stuck is a connection whose side A posts and never hears of it again.
func stuck(t *testing.T, profile string, cfg rw.EndpointConfig) (*pair, *recorder) {
	r := new(recorder)
	p := connect(t, faultyBed(profile, sim.Faults{Post: r.post, Delay: func(q *sim.QP, _ uint64, _ *transport.WR) time.Duration {
		if r.is(q) {
			return time.Hour
		}
		return 0
	}}), cfg)
	r.qpn.Store(p.a.ep.Conn().QP().Num())
	return p, r
}

// What waits for credits holds nothing: no registration, no slot, no READ depth; and
// its requests aren't built. list 3.6 "ctx_wrs not called before credits are held";
// pitfalls 53, 54.
func TestWhatWaitsHoldsNothing(t *testing.T) {
	p, r := stuck(t, "siw-kernel", rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 8}, DrainTimeout: 100 * time.Millisecond})
	var first, waits rw.Context
	ended := make(chan error, 2)
	first.OnDone = func(c *rw.Context) { ended <- c.Err() }
	waits.OnDone = first.OnDone
	remote := []transport.Remote{{Len: 1 << 20, Key: 7}}
	require.NoError(t, p.a.ep.Prepare(&first, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 7*6, 8, 0), Remote: remote}))
	require.NoError(t, p.a.ep.Submit(&first))
	require.Len(t, r.take(), 7, "the queue is full, but for the slot that is kept")
	require.NoError(t, p.a.ep.Prepare(&waits, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 1, 8, 0), Remote: remote}))
	require.NoError(t, p.a.ep.Submit(&waits))
	require.ErrorIs(t, p.a.ep.Submit(&waits), rw.ErrNotPrepared)
	require.ErrorIs(t, p.a.ep.Prepare(&waits, rw.Transfer{Op: rw.Read}), rw.ErrInUse)
	require.Zero(t, p.a.pool.Stats(transport.FastMR).Out)
	_, reads := p.a.ep.Credits()
	require.Equal(t, 128, reads)
	require.Empty(t, r.take())

	// Close with the queue full, and somebody waiting: both come back, with the cause.
	// svcrdma 830bb59b6ece; list 3.6 "close while waiting for credit", "drain with a
	// full SQ".
	require.NoError(t, p.a.ep.Close())
	require.ErrorIs(t, <-ended, rw.ErrClosed)
	require.ErrorIs(t, <-ended, rw.ErrClosed)
	require.ErrorIs(t, p.a.ep.Submit(&waits), rw.ErrNotPrepared)
}

// Only where there is no READ_WITH_INV are there invalidations of our own: at the end,
// where the fence of the first holds up nothing but the others; READs have none
// (kernel-rdma-rw.md 33; siw refuses a fenced READ).
func TestFencesStandAtTheEnd(t *testing.T) {
	p, r := recorded(t, "irdma-iwarp-kernel", rw.EndpointConfig{})
	remote := p.source(t, 1<<20, mrpool.ReadSource)
	var c rw.Context
	p.read(t, p.a.ep, &c, scattered(p.a.region, 3, 100, 50), remote)
	wrs := r.take()
	require.Equal(t, "FAST_REG READ_WITH_INV FAST_REG READ_WITH_INV FAST_REG READ_WITH_INV", opcodes(wrs))
	for i := 0; i < len(wrs); i += 2 {
		// rw.c names the key of before the bump, and providers ignore it:
		// kernel-rdma-rw.md 9g.
		require.Equal(t, wrs[i].KeyByte, wrs[i+1].KeyByte)
		require.Equal(t, wrs[i].Reg, wrs[i+1].Reg)
	}

	r = new(recorder)
	p = connect(t, changedBed("siw-kernel", func(p *sim.Profile) { p.Caps.ReadWithInv = false }, sim.Faults{Post: r.post}), rw.EndpointConfig{})
	r.qpn.Store(p.a.ep.Conn().QP().Num())
	remote = p.source(t, 1<<20, mrpool.ReadSource)
	for range 2 {
		p.read(t, p.a.ep, &c, scattered(p.a.region, 3, 100, 50), remote)
		require.Equal(t, "FAST_REG READ FAST_REG READ FAST_REG READ LOCAL_INV! LOCAL_INV LOCAL_INV", opcodes(r.take()))
	}
	p.holdsNothing(t, p.a.ep, p.a.pool)
}
