package sim

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

func TestRemoteAccessChecks(t *testing.T) {
	const rw = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite
	tests := []struct {
		name   string
		access transport.Access
		op     transport.Opcode
		key    func(r transport.Registration) transport.RKey
		offset uint64 // from the start of the registered 64 bytes
		n      uint32
	}{
		{name: "wrong key byte", op: transport.OpRead, key: func(r transport.Registration) transport.RKey { return r.RKey(0) ^ 1 }},
		{name: "wrong index", op: transport.OpRead, key: func(r transport.Registration) transport.RKey { return r.RKey(0) ^ 1<<20 }},
		{name: "lkey as rkey", op: transport.OpRead, key: func(r transport.Registration) transport.RKey { return transport.RKey(r.LKey(0)) }},
		{name: "no right to read", access: transport.LocalWrite | transport.RemoteWrite, op: transport.OpRead},
		{name: "no right to write", access: transport.LocalWrite | transport.RemoteRead, op: transport.OpWrite},
		{name: "one byte before", op: transport.OpWrite, offset: math.MaxUint64},
		{name: "one byte after", op: transport.OpRead, offset: 1, n: 64},
		{name: "far after", op: transport.OpRead, offset: 1 << 40},
		{name: "wraps around", op: transport.OpWrite, offset: math.MaxUint64 - 10, n: 64},
	}
	for _, name := range []string{"rxe", "siw"} {
		for _, tt := range tests {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				a, b := newPair(t, name, func(c *pairConfig) { c.b.UncheckedReads = false }) // see below
				access := tt.access
				if access == 0 {
					access = rw
				}
				fill(a.mem(0, 64), 1)
				r := b.expose(128, 64, access)
				key := r.RKey(0)
				if tt.key != nil {
					key = tt.key(r)
				}
				n := tt.n
				if n == 0 {
					n = 8
				}
				a.one(transport.WR{Op: tt.op, Cookie: 7, RemoteAddr: b.region.Addr() + 128 + tt.offset, RKey: key}, a.sge(0, n))
				want := transport.StatusRemoteAccess
				switch {
				case name == "siw" && tt.op == transport.OpWrite:
					want = transport.StatusOK // it is gone when TCP has it
				case name == "siw":
					want = transport.StatusFlushed
				}
				require.Equal(t, []transport.Status{want}, statuses(a.completions()))
				require.Equal(t, make([]byte, 1<<16), b.region.Bytes(), "nothing was written")
				require.Equal(t, transport.QPError, a.qp.State())
				require.Equal(t, transport.QPError, b.qp.State())
				event := <-b.dev.Events()
				require.Equal(t, transport.EventQPAccess, event.Kind)
				require.Equal(t, b.qp.Num(), event.QPN)
			})
		}
	}
}

func TestSiwLetsPeersReadWhateverTheyHaveAKeyOf(t *testing.T) {
	a, b := newPair(t, "siw")
	fill(b.mem(0, 8), 1)
	r := b.expose(0, 8, transport.LocalWrite|transport.RemoteWrite)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0)}, a.sge(0, 8))
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	require.Equal(t, b.mem(0, 8), a.mem(0, 8))
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 1, RKey: r.RKey(0)}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusFlushed}, statuses(a.completions()), "the range is checked")
}

func TestZeroLengthNeedsNoKey(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		a, _ := newPair(t, name)
		a.one(transport.WR{Op: transport.OpWrite, RKey: 0xdead})
		a.one(transport.WR{Op: transport.OpRead, RKey: 0xdead})
		require.Equal(t, []transport.Status{0, 0}, statuses(a.completions()))
	}
}

func TestKeysOfAnotherProtectionDomainAreUnknown(t *testing.T) {
	a, b := newPair(t, "rxe")
	pd, err := b.dev.NewPD()
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(b.region))
	r, err := pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(t, err)
	_, err = r.Map(transport.Mapping{List: []transport.Piece{b.region.Piece(0, 64)}, Access: transport.RemoteRead})
	require.NoError(t, err)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0)}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))

	a, b = newPair(t, "rxe")
	pd, err = a.dev.NewPD()
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(a.region))
	e := a.sge(0, 8)
	e.LKey = pd.Regions().View().Lookup(a.region.ID()).LKey
	b.recv(1, b.sge(0, 8))
	a.one(transport.WR{Op: transport.OpSend}, e)
	require.Equal(t, []transport.Status{transport.StatusFlushed}, statuses(a.completions()), "rxe doesn't tell more")
}

func TestLocalAccessChecks(t *testing.T) {
	tests := []struct {
		name    string
		corrupt func(a *side, e *transport.SGE)
	}{
		{"unknown lkey", func(_ *side, e *transport.SGE) { e.LKey ^= 1 << 20 }},
		{"key byte", func(_ *side, e *transport.SGE) { e.LKey ^= 1 }},
		{"rkey as lkey", func(a *side, e *transport.SGE) {
			e.LKey = transport.LKey(a.expose(0, 64, transport.LocalWrite|transport.RemoteRead).RKey(0))
		}},
		{"range", func(_ *side, e *transport.SGE) { e.Addr += 1<<16 - 7 }},
		{"below", func(_ *side, e *transport.SGE) { e.Addr-- }},
	}
	// What a request is told of it differs, as package transporttest has seen: rxe flushes
	// what it can't send.
	prot, flushed := transport.StatusLocalProtection, transport.StatusFlushed
	send := map[string][]transport.Status{"rxe": {flushed, flushed}, "siw": {transport.StatusLocalQPOp, flushed}, "mlx5": {prot, flushed}}
	for name := range send {
		for _, tt := range tests {
			for _, op := range []transport.Opcode{transport.OpSend, transport.OpWrite, transport.OpRead} {
				t.Run(name+"/"+tt.name+"/"+op.String(), func(t *testing.T) {
					a, b := newPair(t, name)
					b.recv(1, b.sge(0, 8))
					r := b.expose(0, 64, transport.LocalWrite|transport.RemoteRead|transport.RemoteWrite)
					e := a.sge(0, 8)
					tt.corrupt(a, &e)
					a.post([]transport.WR{
						{Op: op, Cookie: 1, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1}, // unsignaled
						{Op: transport.OpWrite, Cookie: 2},
					}, e)
					got := a.completions()
					want := send[name]
					if op == transport.OpRead {
						want = []transport.Status{prot, flushed}
					}
					require.Equal(t, want, statuses(got))
					require.Equal(t, uint64(1), got[0].Cookie)
					if name == "siw" {
						require.Equal(t, transport.QPError, b.qp.State(), "an iWARP error ends the stream")
						<-b.conn.Done()
					} else {
						require.Equal(t, transport.QPReady, b.qp.State(), "InfiniBand doesn't tell the peer")
					}
				})
			}
		}
	}
}

func TestReadSinkNeedsLocalWriteAndOnHardwareRemoteWrite(t *testing.T) {
	sink := func(hardware bool, access transport.Access) transport.Status {
		a, b := newPair(t, "siw", func(c *pairConfig) { c.a.Caps.ReadSinkNeedsRemoteWrite = hardware })
		key := b.expose(0, 64, transport.RemoteRead).RKey(0)
		r := a.expose(0, 64, access)
		a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, transport.SGE{Addr: a.region.Addr(), Len: 64, LKey: r.LKey(0)})
		return a.completions()[0].Status
	}
	require.Equal(t, transport.StatusLocalProtection, sink(false, 0))
	require.Equal(t, transport.StatusOK, sink(false, transport.LocalWrite))
	require.Equal(t, transport.StatusLocalProtection, sink(true, transport.LocalWrite))
	require.Equal(t, transport.StatusOK, sink(true, transport.LocalWrite|transport.RemoteWrite))
}

func TestReadSinkIsLookedUpWhenTheResponseArrives(t *testing.T) {
	a, b := newPair(t, "siw")
	key := b.expose(0, 64, transport.RemoteRead).RKey(0)
	fill(b.mem(0, 64), 1)
	r := a.expose(0, 64, transport.LocalWrite)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, transport.SGE{Addr: a.region.Addr(), Len: 64, LKey: r.LKey(0)})
	for a.qp.reads == 0 {
		require.True(t, a.dev.fabric.Step())
	}
	require.NoError(t, r.Unmap())
	require.Equal(t, []transport.Status{transport.StatusLocalProtection}, statuses(a.completions()))
	require.Equal(t, make([]byte, 64), a.mem(0, 64))
	<-b.conn.Done()
}

// Every READ request of iWARP shows the STag of its sink.
func TestPeerThatSawASinkKeyCanUseIt(t *testing.T) {
	sink := func(access transport.Access) (a, b *side, r transport.Registration) {
		a, b = newPair(t, "siw")
		key := b.expose(0, 64, transport.RemoteRead).RKey(0)
		r = a.expose(0, 64, access)
		a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, transport.SGE{Addr: a.region.Addr(), Len: 64, LKey: r.LKey(0)})
		require.Equal(t, []transport.Status{0}, statuses(a.completions()))
		return a, b, r
	}
	t.Run("a writable one can be written", func(t *testing.T) {
		a, b, r := sink(transport.LocalWrite | transport.RemoteWrite)
		copy(b.mem(0, 4), "evil")
		b.one(transport.WR{Op: transport.OpWrite, RemoteAddr: a.region.Addr(), RKey: transport.RKey(r.LKey(0))}, b.sge(0, 4))
		b.completions()
		require.Equal(t, "evil", string(a.mem(0, 4)))
		require.Equal(t, transport.QPReady, a.qp.State())
	})
	t.Run("a local one can't", func(t *testing.T) {
		a, b, r := sink(transport.LocalWrite)
		copy(b.mem(0, 4), "evil")
		b.one(transport.WR{Op: transport.OpWrite, RemoteAddr: a.region.Addr(), RKey: transport.RKey(r.LKey(0))}, b.sge(0, 4))
		b.completions()
		require.NotEqual(t, "evil", string(a.mem(0, 4)))
		require.Equal(t, transport.QPError, a.qp.State())
	})
	t.Run("but killed for good on siw", func(t *testing.T) {
		a, b, r := sink(transport.LocalWrite)
		a.recv(1, a.sge(128, 8))
		b.one(transport.WR{Op: transport.OpSendWithInv, RKey: transport.RKey(r.LKey(0))})
		got := a.receives()
		require.Equal(t, []transport.Status{0}, statuses(got))
		require.Equal(t, transport.Receive, got[0].Flags, "and the receiver doesn't learn of it")
		a.one(transport.WR{Op: transport.OpWrite}, transport.SGE{Addr: a.region.Addr(), Len: 4, LKey: r.LKey(0)})
		require.Equal(t, []transport.Status{transport.StatusLocalQPOp}, statuses(a.completions()))
	})
}

func TestRefusedWriteOfIWARPCompletesWithSuccessAndThenTheConnectionEnds(t *testing.T) {
	a, b := newPair(t, "siw")
	key := b.expose(100, 3000, transport.LocalWrite|transport.RemoteWrite).RKey(0)
	fill(a.mem(0, 4000), 1)
	before := bytes.Clone(b.region.Bytes())
	a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + 100, RKey: key}, a.sge(0, 3001))
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	<-a.conn.Done()
	<-b.conn.Done()
	require.ErrorIs(t, a.conn.Err(), transport.ErrDisconnected)
	// Whole segments that lay inside the range were placed before the refusal.
	require.Equal(t, a.mem(0, 2880), b.mem(100, 2880))
	copy(b.mem(100, 2880), before[100:])
	require.Equal(t, before, b.region.Bytes())
}

func TestRefusedWriteOfRoCEChangesNothing(t *testing.T) {
	a, b := newPair(t, "rxe")
	key := b.expose(100, 3000, transport.LocalWrite|transport.RemoteWrite).RKey(0)
	fill(a.mem(0, 4000), 1)
	a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + 100, RKey: key}, a.sge(0, 3001))
	require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))
	require.Equal(t, make([]byte, 1<<16), b.region.Bytes())
}

func TestFirstErrorIsKeptAndTheRestFlushesEvenUnsignaled(t *testing.T) {
	a, b := newPair(t, "rxe")
	a.recv(50, a.sge(0, 8))
	a.recv(51, a.sge(0, 8))
	key := b.expose(0, 64, transport.RemoteRead).RKey(0)
	wrs := chain(6, transport.OpRead)
	for i := range wrs {
		wrs[i].RemoteAddr, wrs[i].RKey, wrs[i].NumSGE = b.region.Addr(), key, 1
	}
	wrs[0].Flags = transport.Signaled
	wrs[3].RKey ^= 1
	a.post(wrs, a.sge(0, 8))
	got := a.completions()
	const ok, refused, flushed = transport.StatusOK, transport.StatusRemoteAccess, transport.StatusFlushed
	require.Equal(t, []transport.Status{ok, refused, flushed, flushed}, statuses(got))
	require.Equal(t, []uint64{0, 3, 4, 5}, []uint64{got[0].Cookie, got[1].Cookie, got[2].Cookie, got[3].Cookie})
	rec := a.receives()
	require.Equal(t, []transport.Status{flushed, flushed}, statuses(rec))
	require.Equal(t, uint64(50), rec[0].Cookie)
	require.Zero(t, rec[0].Flags, "flags mean nothing on an error")
}

func TestLocalErrorWaitsItsTurn(t *testing.T) {
	a, b := newPair(t, "mlx5")
	key := b.expose(0, 64, transport.RemoteRead).RKey(0)
	bad := a.sge(0, 8)
	bad.LKey = 1
	a.post([]transport.WR{
		{Op: transport.OpRead, Cookie: 1, RemoteAddr: b.region.Addr(), RKey: key, NumSGE: 1, Flags: transport.Signaled},
		{Op: transport.OpWrite, Cookie: 2, FirstSGE: 1, NumSGE: 1},
	}, a.sge(0, 8), bad)
	require.Equal(t, []transport.Status{0, transport.StatusLocalProtection}, statuses(a.completions()))
}

func TestNothingBehindALocalErrorIsSent(t *testing.T) {
	a, b := newPair(t, "rxe")
	r := b.expose(0, 64, remoteRW)
	fill(a.mem(0, 8), 1)
	bad := a.sge(0, 8)
	bad.LKey = 1
	a.post([]transport.WR{
		{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 32, RKey: r.RKey(0), NumSGE: 1}, // keeps the error waiting
		{Op: transport.OpWrite, FirstSGE: 1, NumSGE: 1},
		{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1},
	}, a.sge(0, 8), bad)
	a.dev.fabric.Drain()
	require.Equal(t, make([]byte, 64), b.mem(0, 64))
}

func TestFlushKeepsAnErrorThatHadNotCompleted(t *testing.T) {
	a, b := newPair(t, "mlx5")
	key := b.expose(0, 64, remoteRW).RKey(0)
	bad := a.sge(0, 8)
	bad.LKey = 1
	a.post([]transport.WR{
		{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key, NumSGE: 1},
		{Op: transport.OpWrite, FirstSGE: 1, NumSGE: 1},
		{Op: transport.OpWrite},
	}, a.sge(0, 8), bad)
	for !a.qp.halted {
		require.True(t, a.dev.fabric.Step())
	}
	require.NoError(t, a.conn.Disconnect())
	const flushed = transport.StatusFlushed
	require.Equal(t, []transport.Status{flushed, transport.StatusLocalProtection, flushed}, statuses(a.completions()))
}

func TestRequestsPostedAfterAnErrorFlushOrNeverComplete(t *testing.T) {
	const flushed = transport.StatusFlushed
	for _, name := range []string{"rxe-kernel", "siw-kernel", "rxe", "siw"} {
		a, b := newPair(t, name)
		a.post(write(2))
		require.NoError(t, a.qp.Fail())
		require.Equal(t, transport.QPError, a.qp.State())
		require.Equal(t, []transport.Status{flushed, flushed}, statuses(a.completions()))
		recv := []transport.RecvWR{{}}
		if a.dev.profile.Kernel {
			a.post(write(1))
			require.Equal(t, []transport.Status{flushed}, statuses(a.completions()))
			_, err := a.qp.PostRecv(recv, nil)
			require.NoError(t, err)
			require.Equal(t, []transport.Status{flushed}, statuses(a.receives()))
		} else {
			a.refused(transport.ErrBadState, 0, write(1))
			_, err := a.qp.PostRecv(recv, nil)
			require.ErrorIs(t, err, transport.ErrBadState)
		}
		require.Equal(t, a.dev.iwarp, b.qp.State() == transport.QPError)
		require.NoError(t, a.qp.Fail())
		require.NoError(t, a.conn.Close())
		require.ErrorIs(t, a.qp.Fail(), transport.ErrClosed)
	}
}

func TestReceiverNotReady(t *testing.T) {
	t.Run("waits for ever by default", func(t *testing.T) {
		a, b := newPair(t, "rxe")
		a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
		a.one(transport.WR{Op: transport.OpWrite})
		a.dev.fabric.Drain()
		require.Empty(t, a.completions(), "what is behind waits too")
		b.recv(1, b.sge(0, 8))
		require.Len(t, a.completions(), 2)
		require.Len(t, b.receives(), 1)
	})
	t.Run("retries are counted", func(t *testing.T) {
		a, b := newPair(t, "rxe", func(c *pairConfig) { c.params.RNRRetryCount = 3 })
		before := a.dev.fabric.Now()
		a.post([]transport.WR{{Op: transport.OpSend}, {Op: transport.OpWrite}})
		a.dev.fabric.Drain()
		require.Equal(t, []transport.Status{transport.StatusRNRExceeded, transport.StatusFlushed}, statuses(a.completions()))
		require.InDelta(t, 3*rnrDelay, a.dev.fabric.Now()-before, float64(rnrDelay/2))
		require.Equal(t, transport.QPReady, b.qp.State())
	})
	t.Run("a receive within the retries is found", func(t *testing.T) {
		a, b := newPair(t, "rxe", func(c *pairConfig) { c.params.RNRRetryCount = 3 })
		a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
		require.Empty(t, a.completions())
		b.recv(1, b.sge(0, 8))
		a.dev.fabric.Drain()
		require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	})
	t.Run("a receiver that fails meanwhile never answers", func(t *testing.T) {
		a, b := newPair(t, "rxe")
		a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
		require.Empty(t, a.completions())
		require.NoError(t, b.qp.Fail())
		a.dev.fabric.Drain()
		require.Equal(t, []transport.Status{transport.StatusRetryExceeded}, statuses(a.completions()))
	})
	t.Run("none ends the stream on iWARP", func(t *testing.T) {
		a, b := newPair(t, "siw")
		a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
		require.Equal(t, []transport.Status{0}, statuses(a.completions()))
		<-a.conn.Done()
		<-b.conn.Done()
	})
	t.Run("free-running", func(t *testing.T) {
		a, _ := newPair(t, "rxe", func(c *pairConfig) { c.cfg.Stepped = false; c.params.RNRRetryCount = 2 })
		a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
		require.Equal(t, transport.StatusRNRExceeded, a.wait(a.cq).Status)
	})
}

func TestMessageLongerThanTheReceive(t *testing.T) {
	for name, want := range map[string]struct{ send, receive transport.Status }{
		"mlx5": {transport.StatusRemoteInvalid, transport.StatusLocalLength},
		"rxe":  {transport.StatusRemoteOp, transport.StatusLocalQPOp}, // RESPST_ERR_MALFORMED_WQE
		"siw":  {transport.StatusOK, transport.StatusLocalLength},
	} {
		a, b := newPair(t, name)
		b.recv(1, b.sge(0, 7))
		fill(a.mem(0, 8), 1)
		a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
		require.Equal(t, []transport.Status{want.send}, statuses(a.completions()))
		require.Equal(t, []transport.Status{want.receive}, statuses(b.receives()))
		require.Equal(t, make([]byte, 8), b.mem(0, 8))
	}
}

func TestReceiveIntoMemoryThatIsNotWritable(t *testing.T) {
	a, b := newPair(t, "rxe")
	r := b.expose(0, 64, 0)
	b.recv(1, transport.SGE{Addr: b.region.Addr(), Len: 64, LKey: r.LKey(0)})
	a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusRemoteOp}, statuses(a.completions()))
	require.Equal(t, []transport.Status{transport.StatusLocalQPOp}, statuses(b.receives()))
}

// What was posted before anybody knows of the error is accepted, and then it depends.
func TestRequestsPostedBeforeTheErrorIsKnown(t *testing.T) {
	for name, want := range map[string][]transport.Status{"rxe": {transport.StatusFlushed}, "siw": nil} {
		a, b := newPair(t, name)
		key := b.expose(0, 64, transport.RemoteRead).RKey(0)
		a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 64, RKey: key}, a.sge(0, 8))
		for a.qp.state == transport.QPReady {
			require.True(t, a.dev.fabric.Step())
		}
		require.Len(t, a.completions(), 1)
		known := a.conn.state
		a.conn.state = connUp // the CM's event is late
		a.post(write(1))
		require.Equal(t, want, statuses(a.completions()), name)
		a.conn.state = known
	}
}

func TestCQOverrun(t *testing.T) {
	a, _ := newPair(t, "rxe", func(c *pairConfig) { c.cqe = 4 })
	wrs := write(5)
	for i := range wrs {
		wrs[i].Flags = transport.Signaled
	}
	a.post(wrs)
	a.dev.fabric.Settle(settleTime)
	var done [8]transport.Completion
	n, err := a.cq.Poll(done[:])
	require.Equal(t, 4, n)
	require.ErrorIs(t, err, transport.ErrCQOverrun)
	_, err = a.cq.Poll(done[:])
	require.ErrorIs(t, err, transport.ErrCQOverrun)
	require.Equal(t, transport.QPError, a.qp.State())
	require.Equal(t, transport.EventCQError, (<-a.dev.Events()).Kind)
}

func TestFlushOfUnsignaledRequestsOverrunsACQSizedForSignaledOnes(t *testing.T) {
	a, _ := newPair(t, "rxe", func(c *pairConfig) { c.cqe = 8 })
	a.post(write(9))
	require.NoError(t, a.qp.Fail())
	a.dev.fabric.Drain()
	_, err := a.cq.Poll(make([]transport.Completion, 16))
	require.ErrorIs(t, err, transport.ErrCQOverrun)
}

func TestKilledPeer(t *testing.T) {
	for _, mode := range []bool{true, false} {
		for _, name := range []string{"rxe", "siw"} {
			a, b := newPair(t, name, func(c *pairConfig) { c.cfg.Stepped = mode; c.params.RetryCount = 1; c.params.AckTimeout = 1e6 })
			key := b.expose(0, 64, transport.RemoteRead).RKey(0)
			b.dev.Kill()
			a.one(transport.WR{Op: transport.OpRead, Cookie: 1, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 8))
			a.post(write(1))
			want := transport.StatusRetryExceeded
			if name == "siw" {
				want = transport.StatusFlushed
			}
			require.Equal(t, want, a.wait(a.cq).Status)
			require.Equal(t, transport.StatusFlushed, a.wait(a.cq).Status)
			if name == "siw" {
				<-a.conn.Done()
			} else {
				require.NoError(t, a.conn.Err(), "the CM of InfiniBand knows nothing of it")
			}
			_, err := b.qp.PostSend(write(1), nil)
			require.ErrorIs(t, err, transport.ErrDeviceRemoved)
			_, err = b.dev.NewPD()
			require.ErrorIs(t, err, transport.ErrDeviceRemoved)
			require.NoError(t, b.conn.Close())
		}
	}
}

func TestPeerInErrorDoesNotAnswer(t *testing.T) {
	a, b := newPair(t, "rxe")
	require.NoError(t, b.qp.Fail())
	before := a.dev.fabric.Now()
	a.one(transport.WR{Op: transport.OpWrite})
	require.Empty(t, a.completions())
	a.dev.fabric.Drain()
	require.Equal(t, []transport.Status{transport.StatusRetryExceeded}, statuses(a.completions()))
	require.GreaterOrEqual(t, a.dev.fabric.Now()-before, 8*defaultAckTimeout)
}

func TestKilledConnection(t *testing.T) {
	a, b := newPair(t, "rxe")
	b.recv(1, b.sge(0, 8))
	b.conn.Kill()
	a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	require.Empty(t, a.completions())
	a.dev.fabric.Drain()
	require.Equal(t, []transport.Status{transport.StatusRetryExceeded}, statuses(a.completions()))
	require.Empty(t, b.receives())
	require.NoError(t, b.conn.Close())
	<-b.conn.Done()
}

func TestWhatWasSentBeforeAnErrorStillArrives(t *testing.T) {
	a, b := newPair(t, "rxe")
	key := b.expose(0, 64, transport.LocalWrite|transport.RemoteWrite).RKey(0)
	copy(a.mem(0, 4), "sent")
	a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 4))
	for a.qp.next == 0 {
		a.dev.fabric.Step()
	}
	require.NoError(t, a.qp.Fail())
	copy(a.mem(0, 4), "used")
	require.Equal(t, []transport.Status{transport.StatusFlushed}, statuses(a.completions()))
	require.Equal(t, "sent", string(b.mem(0, 4)))
}

func TestNothingOfAConnectionMovesAfterClose(t *testing.T) {
	a, b := newPair(t, "rxe")
	key := b.expose(0, 64, transport.RemoteRead).RKey(0)
	fill(b.mem(0, 64), 1)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 64))
	for a.qp.reads == 0 {
		a.dev.fabric.Step()
	}
	require.NoError(t, a.conn.Close())
	a.dev.fabric.Drain()
	require.Equal(t, make([]byte, 64), a.mem(0, 64))
	require.Empty(t, a.completions())
	_, err := a.qp.PostSend(write(1), nil)
	require.ErrorIs(t, err, transport.ErrBadState)
	<-b.conn.Done()
}

func TestDeviceRemoval(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		a, b := newPair(t, name)
		a.post(write(1))
		a.dev.Remove()
		require.Equal(t, transport.EventDeviceRemoved, (<-a.dev.Events()).Kind)
		require.Equal(t, []transport.Status{transport.StatusFlushed}, statuses(a.completions()))
		<-a.conn.Done()
		require.ErrorIs(t, a.conn.Err(), transport.ErrDeviceRemoved)
		<-b.conn.Done()
		require.ErrorIs(t, b.conn.Err(), transport.ErrDisconnected)
		_, err := a.dev.NewRegion(transport.RegionConfig{Size: 1})
		require.ErrorIs(t, err, transport.ErrDeviceRemoved)
		require.NoError(t, a.conn.Close())
	}
}
