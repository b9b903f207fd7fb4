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

// forced is a stepped pair whose side A registers all that it writes, and leaves it valid
// until the next use: its pool has n registrations, and all of them are like that.
func forced(t *testing.T, n, slots int) (s *stepped, writes []rw.Context) {
	s = steppedOn(t, "mlx5-kernel", func(cfg *steppedConfig) {
		cfg.pool = mrpool.Config{FastMRs: n}
		cfg.queues.MaxSendWR = slots + 1
		cfg.policy.ForceRegistration = true
	})
	a := s.ends[0]
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.WriteSink)
	require.Equal(t, slots, a.ep.Limits().SendWR)
	writes = make([]rw.Context, n)
	prepare := func() {
		for i := range writes {
			local := []transport.Piece{a.region.Piece(uint64(i)*4096, 100)}
			require.NoError(t, a.ep.Prepare(&writes[i], rw.Transfer{Op: rw.Write, Local: local, Remote: remote}))
		}
	}
	prepare()
	for i := range writes { // all at a time, so that each has its own
		require.NoError(t, a.ep.Submit(&writes[i]))
	}
	require.True(t, s.until(func() bool { return len(a.done) == n }))
	prepare()
	a.done = nil
	a.dev.forget()
	return s, writes
}

// A transfer by a registration that its last user left valid takes a slot for the
// invalidation, too: it waits until there is one, alone or in a chain.
func TestRoomForTheInvalidationOfTheLastUse(t *testing.T) {
	const slots = 7
	for n := 1; n <= 2; n++ {
		s, writes := forced(t, 2, slots)
		a := s.ends[0]
		var sends [slots]rw.Context
		var recvs [slots]rw.Context
		busy := slots - 3*n + 1 // one too many
		for i := range busy {
			s.ends[1].recv(&recvs[i])
			require.NoError(t, a.ep.PrepareSend(&sends[i], rw.Message{}))
			require.NoError(t, a.ep.Submit(&sends[i]))
		}
		chain := []*rw.Context{&writes[0], &writes[1]}[:n]
		require.NoError(t, a.ep.Submit(chain...))
		require.Len(t, a.dev.posts, busy, "it waits")
		free, _ := a.ep.Credits()
		require.Equal(t, 3*n-1, free)
		require.True(t, s.until(func() bool { return len(a.done) == busy+n }))
		require.Len(t, a.dev.posts, busy+1)
		require.Len(t, a.dev.posts[busy].wrs, 3*n)
		s.closeEndpoints()
		s.close()
	}
}

// A chain whose registrations would have to be invalidated first and that doesn't fit
// then, or that takes more registrations than there are, can never run for sure.
func TestChainThatMayNotFitIsRefused(t *testing.T) {
	s, writes := forced(t, 3, 7)
	a := s.ends[0]
	require.ErrorIs(t, a.ep.Submit(&writes[0], &writes[1], &writes[2]), rw.ErrTooLarge, "9 requests")
	require.NoError(t, a.ep.Submit(&writes[0], &writes[1]))
	require.True(t, s.until(func() bool { return len(a.done) == 2 }))
	s.closeEndpoints()
	s.close()

	s = steppedOn(t, "siw-kernel", func(*steppedConfig) {}) // 2 registrations
	a = s.ends[0]
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.ReadSource)
	var reads [2]rw.Context
	for i, n := range []int{1, 2} {
		require.NoError(t, a.ep.Prepare(&reads[i], rw.Transfer{Op: rw.Read, Local: scattered(a.region, n, 100, 50), Remote: remote}))
		require.Equal(t, n, reads[i].Plan().Cost.Registrations)
	}
	require.ErrorIs(t, a.ep.Submit(&reads[0], &reads[1]), rw.ErrTooLarge)
	require.NoError(t, a.ep.Submit(&reads[0]))
	require.NoError(t, a.ep.Submit(&reads[1]))
	require.True(t, s.until(func() bool { return len(a.done) == 2 }))
	s.closeEndpoints()
	s.close()
}

// What has nothing left to do when its requests are over ends there, without a worker:
// contexts end in the order of their chain.
func TestContextsOfAChainEndInOrder(t *testing.T) {
	s := steppedOn(t, "siw-kernel", func(*steppedConfig) {})
	a, b := s.ends[0], s.ends[1]
	var x, y rw.Exposure
	remote := s.exposeAll(&x, mrpool.ReadSource)
	a.grant(&y, 4096, mrpool.ReadSource)
	a.done = nil
	var recv, read, send rw.Context
	b.recv(&recv)
	require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(8192, 100)}, Remote: remote}))
	require.NoError(t, a.ep.PrepareSend(&send, rw.Message{}))
	require.NoError(t, a.ep.Submit(&read, &y.Revoke, &send))
	require.True(t, s.until(func() bool { return len(a.done) == 3 }))
	require.Equal(t, []*rw.Context{&read, &y.Revoke, &send}, a.done)
	s.closeEndpoints()
	s.close()
}

// Also where a later one fails; and the registration of the first is left valid for its
// next use then, as ever.
func TestContextsBeforeAFailureEndInOrder(t *testing.T) {
	failing := false
	s := steppedOn(t, "mlx5-kernel", func(cfg *steppedConfig) {
		cfg.policy.ForceRegistration = true
		cfg.faults.Run = func(_ *sim.QP, _ uint64, wr *transport.WR) transport.Status {
			if failing && wr.Op == transport.OpSend {
				return transport.StatusRemoteOp
			}
			return transport.StatusOK
		}
	})
	a := s.ends[0]
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.WriteSink)
	var write, send rw.Context
	require.NoError(t, a.ep.Prepare(&write, rw.Transfer{Op: rw.Write, Local: []transport.Piece{a.region.Piece(0, 100)}, Remote: remote}))
	require.NoError(t, a.ep.PrepareSend(&send, rw.Message{}))
	failing = true
	require.NoError(t, a.ep.Submit(&write, &send))
	require.True(t, s.until(func() bool { return len(a.done) == 2 }))
	require.Equal(t, []*rw.Context{&write, &send}, a.done)
	require.NoError(t, write.Err())
	require.ErrorIs(t, send.Err(), transport.StatusRemoteOp)
	stats := a.pool.Stats(transport.FastMR)
	require.Zero(t, stats.Out+stats.Broken)
	require.Zero(t, stats.Repairs)
	s.closeEndpoints()
	s.close()
}

// Whatever becomes of what is submitted, its chain is used again.
func TestChainsAreUsedAgain(t *testing.T) {
	s := steppedOn(t, "siw-kernel", func(*steppedConfig) {})
	a := s.ends[0]
	var x rw.Exposure
	remote := s.exposeAll(&x, mrpool.ReadSource|mrpool.WriteSink)
	local := []transport.Piece{a.region.Piece(0, 100)}
	var read, write rw.Context
	chains := 0
	for round := range 5 {
		for _, c := range []*rw.Context{&read, &write} {
			op := map[*rw.Context]rw.Op{&read: rw.Read, &write: rw.Write}[c]
			require.NoError(t, a.ep.Prepare(c, rw.Transfer{Op: op, Local: local, Remote: remote}))
			require.NoError(t, a.ep.Submit(c))
			require.True(t, s.until(func() bool { return a.has(c) }))
			require.NoError(t, c.Err())
			a.done = nil
		}
		var hog [2]*mrpool.MR
		require.NoError(t, a.pool.Take(transport.FastMR, hog[:], "hog"))
		require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: local, Remote: remote}))
		require.NoError(t, a.ep.Submit(&read), "it waits")
		require.True(t, a.ep.Cancel(&read))
		for _, m := range hog {
			m.Put()
		}
		a.poll()
		a.done = nil
		if round == 0 {
			chains = rw.Chains(a.poller)
		}
	}
	require.Equal(t, chains, rw.Chains(a.poller))
	s.closeEndpoints()
	s.close()
}
