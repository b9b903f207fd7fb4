package sim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// strangers are two devices without a connection.
func strangers(t *testing.T, name string, opts ...option) (a, b *side, c *pairConfig) {
	t.Helper()
	cfg := defaults(t, name)
	for _, o := range opts {
		o(&cfg)
	}
	f := New(cfg.cfg)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return newSide(t, f, cfg.a, "a", &cfg), newSide(t, f, cfg.b, "b", &cfg), &cfg
}

// dial starts a connection from a.
func (s *side) dial(addr string, c *pairConfig, p transport.ConnParams) {
	s.t.Helper()
	conn, err := s.dev.Resolve(context.Background(), addr)
	require.NoError(s.t, err)
	s.create(conn, c)
	require.NoError(s.t, s.conn.Connect(p))
}

func bothModes(t *testing.T, test func(t *testing.T, mode option)) {
	t.Run("stepped", func(t *testing.T) { test(t, func(*pairConfig) {}) })
	t.Run("free", func(t *testing.T) { test(t, func(c *pairConfig) { c.cfg.Stepped = false }) })
}

func TestPrivateDataAndDepthsAreExchanged(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		a, b, c := strangers(t, name)
		l, err := b.dev.Listen(":0")
		require.NoError(t, err)
		require.Regexp(t, `^b:\d+$`, l.Addr())
		a.dial(l.Addr(), c, transport.ConnParams{PrivateData: []byte("hello"), InitiatorDepth: 4, ResponderResources: 16})
		in, err := l.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, a.conn.LocalAddr(), in.RemoteAddr())
		require.Equal(t, l.Addr(), in.LocalAddr())
		req := in.Request()
		require.Equal(t, 16, req.InitiatorDepth)
		require.Equal(t, 4, req.ResponderResources)
		require.Equal(t, "hello", string(req.PrivateData[:5]))
		if name == "rxe" {
			require.Len(t, req.PrivateData, 56, "InfiniBand pads")
		} else {
			require.Len(t, req.PrivateData, 5)
		}
		b.create(in, c)
		require.NoError(t, b.conn.Accept(transport.ConnParams{PrivateData: []byte("welcome"), InitiatorDepth: 200, ResponderResources: 2}))
		info, err := a.conn.Established(t.Context())
		require.NoError(t, err)
		require.Equal(t, "welcome", string(info.PrivateData[:7]))
		depth := map[string]int{"rxe": 2, "siw": 4}[name] // siw answers as many as it was asked for
		require.Equal(t, depth, info.InitiatorDepth)
		require.Equal(t, 16, info.ResponderResources)
		info, err = b.conn.Established(t.Context())
		require.NoError(t, err)
		require.Equal(t, 16, info.InitiatorDepth)
		require.Equal(t, 2, info.ResponderResources)
	}
}

func TestRejection(t *testing.T) {
	bothModes(t, func(t *testing.T, mode option) {
		a, b, c := strangers(t, "siw", mode)
		l, err := b.dev.Listen("b:1")
		require.NoError(t, err)
		a.dial("b:1", c, transport.ConnParams{})
		in, err := l.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, in.Reject([]byte("no")))
		require.NoError(t, in.Close())
		_, err = a.conn.Established(t.Context())
		require.ErrorIs(t, err, transport.ErrRejected)
		var rej *transport.RejectedError
		require.ErrorAs(t, err, &rej)
		require.Equal(t, 28, rej.Reason)
		require.Equal(t, "no", string(rej.PrivateData))
		<-a.conn.Done()
	})
}

func TestARequestThatIsDroppedIsRejected(t *testing.T) {
	for _, taken := range []bool{true, false} {
		a, b, c := strangers(t, "rxe")
		l, err := b.dev.Listen("b:1")
		require.NoError(t, err)
		a.dial("b:1", c, transport.ConnParams{})
		if taken {
			in, err := l.Next(t.Context())
			require.NoError(t, err)
			require.NoError(t, in.Close())
		} else {
			a.dev.fabric.Settle(settleTime)
		}
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		_, err = a.conn.Established(t.Context())
		require.ErrorIs(t, err, transport.ErrRejected)
		_, err = l.Next(t.Context())
		require.ErrorIs(t, err, transport.ErrClosed)
	}
}

func TestRemovalEndsConnectionsInTheMaking(t *testing.T) {
	a, b, c := strangers(t, "rxe")
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	a.dial("b:1", c, transport.ConnParams{})
	in, err := l.Next(t.Context())
	require.NoError(t, err)
	b.dev.Remove()
	<-in.Done()
	require.ErrorIs(t, in.Err(), transport.ErrDeviceRemoved)
	_, err = in.CreateQP(transport.QPConfig{PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq})
	require.ErrorIs(t, err, transport.ErrDeviceRemoved)
	_, err = a.conn.Established(t.Context())
	require.ErrorIs(t, err, transport.ErrRejected)
}

// Nothing leads out of the error state: a queue pair that has failed before its connection was
// up stays there, and the connection comes to nothing on both sides. (What rxe and siw do, and
// when their peers hear of it, are rows of package transporttest.)
func TestQueuePairThatFailedBeforeItsConnectionStaysFailed(t *testing.T) {
	both(t, func(t *testing.T, name string, mode option) {
		for _, passive := range []bool{false, true} {
			a, b, c := strangers(t, name, mode)
			l, err := b.dev.Listen("b:1")
			require.NoError(t, err)
			a.dial("b:1", c, transport.ConnParams{})
			in, err := l.Next(t.Context())
			require.NoError(t, err)
			b.create(in, c)
			if passive {
				require.NoError(t, b.qp.Fail())
				require.ErrorIs(t, in.Accept(transport.ConnParams{}), transport.ErrInvalid)
				_, err = b.conn.Established(t.Context())
				require.ErrorIs(t, err, transport.ErrInvalid)
				require.ErrorIs(t, in.Accept(transport.ConnParams{}), transport.ErrBadState)
				require.Equal(t, transport.QPError, b.qp.State())
				require.NoError(t, b.conn.Close())
				_, err = a.conn.Established(t.Context())
				require.ErrorIs(t, err, transport.ErrRejected)
			} else {
				require.NoError(t, a.qp.Fail())
				require.NoError(t, in.Accept(transport.ConnParams{}))
				_, err = a.conn.Established(t.Context())
				require.ErrorIs(t, err, transport.ErrUnreachable)
				require.Equal(t, transport.QPError, a.qp.State())
				require.NoError(t, a.conn.Close())
				a.dev.fabric.Settle(settleTime)
				<-b.conn.Done()
				require.Equal(t, transport.QPError, b.qp.State())
			}
		}
	})
}

// The kernel's CM tells the peer of such an end at once, as siw does; user space does when it
// closes the connection.
func TestWhoHearsThatAnAnswerCouldNotBe(t *testing.T) {
	for name, atOnce := range map[string]bool{"mlx5": false, "mlx5-kernel": true, "siw": true} {
		for _, passive := range []bool{false, true} {
			a, b, c := strangers(t, name)
			l, err := b.dev.Listen("b:1")
			require.NoError(t, err)
			a.dial("b:1", c, transport.ConnParams{})
			in, err := l.Next(t.Context())
			require.NoError(t, err)
			b.create(in, c)
			failed, other := a, b
			if passive {
				failed, other = b, a
			}
			require.NoError(t, failed.qp.Fail())
			in.Accept(transport.ConnParams{})
			a.dev.fabric.Settle(settleTime)
			<-failed.conn.Done()
			select {
			case <-other.conn.Done():
				require.True(t, atOnce, name)
			default:
				require.False(t, atOnce, name)
			}
			require.NoError(t, failed.conn.Close())
			a.dev.fabric.Settle(settleTime)
			<-other.conn.Done()
		}
	}
}

func TestUnreachable(t *testing.T) {
	a, _, c := strangers(t, "rxe")
	_, err := a.dev.Resolve(t.Context(), "nobody:1")
	require.ErrorIs(t, err, transport.ErrUnreachable)
	_, err = a.dev.Resolve(t.Context(), "b")
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = a.dev.fabric.NewDevice(profile(t, "siw"), "iwarp")
	require.NoError(t, err)
	_, err = a.dev.Resolve(t.Context(), "iwarp:1")
	require.ErrorIs(t, err, transport.ErrUnreachable, "another protocol")
	a.dial("b:1", c, transport.ConnParams{})
	_, err = a.conn.Established(t.Context())
	require.ErrorIs(t, err, transport.ErrUnreachable, "nobody listens")
	require.ErrorContains(t, err, `nobody listens at "b:`)
	require.NotContains(t, err.Error(), "\n")
	require.ErrorIs(t, err, transport.ErrRejected, "is what the CM calls it")
}

func TestUnansweredRequestTimesOut(t *testing.T) {
	a, b, c := strangers(t, "rxe")
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	a.dial("b:1", c, transport.ConnParams{})
	in, err := l.Next(t.Context())
	require.NoError(t, err)
	_, err = a.conn.Established(t.Context())
	require.ErrorIs(t, err, transport.ErrTimeout)
	require.GreaterOrEqual(t, a.dev.fabric.Now(), connectTimeout)
	a.dev.fabric.Drain()
	<-in.Done()
	require.ErrorIs(t, in.Err(), transport.ErrDisconnected)
	require.ErrorIs(t, in.Accept(transport.ConnParams{}), transport.ErrBadState, "no queue pair")
}

func TestConnectionFaults(t *testing.T) {
	for fault, want := range map[ConnectFault]error{ConnectLost: transport.ErrTimeout, ConnectRejected: transport.ErrRejected} {
		a, b, c := strangers(t, "rxe", func(c *pairConfig) {
			c.cfg.Faults.Connect = func(from, to string) ConnectFault { require.Equal(t, "b:1", to); return fault }
		})
		_, err := b.dev.Listen("b:1")
		require.NoError(t, err)
		a.dial("b:1", c, transport.ConnParams{})
		_, err = a.conn.Established(t.Context())
		require.ErrorIs(t, err, want)
	}
}

func TestWrongOrderOfCallsIsRefused(t *testing.T) {
	a, b, c := strangers(t, "rxe")
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	conn, err := a.dev.Resolve(t.Context(), "b:1")
	require.NoError(t, err)
	require.Nil(t, conn.QP())
	require.ErrorIs(t, conn.Connect(transport.ConnParams{}), transport.ErrBadState, "no queue pair")
	require.ErrorIs(t, conn.Accept(transport.ConnParams{}), transport.ErrBadState)
	require.ErrorIs(t, conn.Reject(nil), transport.ErrBadState)
	a.create(conn, c)
	require.NotNil(t, conn.QP())
	_, err = conn.CreateQP(transport.QPConfig{PD: a.pd, SendCQ: a.cq, RecvCQ: a.rcq})
	require.ErrorIs(t, err, transport.ErrBadState)
	require.ErrorIs(t, conn.Connect(transport.ConnParams{PrivateData: make([]byte, 57)}), transport.ErrInvalid)
	require.NoError(t, conn.Connect(transport.ConnParams{PrivateData: make([]byte, 56)}))
	require.ErrorIs(t, conn.Connect(transport.ConnParams{}), transport.ErrBadState)
	in, err := l.Next(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, in.Reject(make([]byte, 149)), transport.ErrInvalid)
	require.ErrorIs(t, in.Accept(transport.ConnParams{}), transport.ErrBadState)
	require.NoError(t, conn.Close())
	require.ErrorIs(t, conn.Connect(transport.ConnParams{}), transport.ErrClosed)
}

func TestQueuePairConfigIsChecked(t *testing.T) {
	a, b, _ := strangers(t, "siw")
	conn, err := a.dev.Resolve(t.Context(), "b:1")
	require.NoError(t, err)
	good := transport.QPConfig{PD: a.pd, SendCQ: a.cq, RecvCQ: a.cq}
	for _, bad := range []func(c *transport.QPConfig){
		func(c *transport.QPConfig) { c.PD = nil },
		func(c *transport.QPConfig) { c.PD = b.pd },
		func(c *transport.QPConfig) { c.SendCQ = b.cq },
		func(c *transport.QPConfig) { c.RecvCQ = nil },
		func(c *transport.QPConfig) { c.MaxSendWR = 1<<15 + 1 },
		func(c *transport.QPConfig) { c.MaxSendSGE = 7 },
		func(c *transport.QPConfig) { c.MaxInline = 81 },
		func(c *transport.QPConfig) { c.MaxRecvWR = -1 },
	} {
		cfg := good
		bad(&cfg)
		_, err := conn.CreateQP(cfg)
		require.ErrorIs(t, err, transport.ErrInvalid)
	}
	_, err = conn.CreateQP(good)
	require.NoError(t, err)
}

func TestDisconnectFlushesBothSides(t *testing.T) {
	bothModes(t, func(t *testing.T, mode option) {
		a, b := newPair(t, "rxe", mode)
		called := make(chan struct{}, 2)
		b.conn.AfterDone(func() { panic("replaced") })
		b.conn.AfterDone(func() { called <- struct{}{} })
		b.recv(1)
		require.NoError(t, b.conn.Err())
		require.NoError(t, a.conn.Disconnect())
		require.NoError(t, a.conn.Disconnect())
		require.Equal(t, transport.StatusFlushed, b.wait(b.rcq).Status)
		<-b.conn.Done()
		require.ErrorIs(t, b.conn.Err(), transport.ErrDisconnected)
		require.Equal(t, transport.QPError, b.qp.State())
		if a.dev.fabric.stepped {
			a.dev.fabric.Drain()
		}
		<-called
		b.conn.AfterDone(func() { called <- struct{}{} })
		<-called
		require.NoError(t, a.conn.Close())
		require.NoError(t, a.conn.Close())
	})
}

func TestStreamEndsAfterWhatWasSentBefore(t *testing.T) {
	seeds(t, "siw", func(a, b *side) {
		key := b.expose(0, 64, remoteRW).RKey(0)
		fill(a.mem(0, 64), 1)
		for i := range uint64(20) {
			b.recv(i, b.sge(1024, 8))
			a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 64))
			a.one(transport.WR{Op: transport.OpSend})
		}
		// b reads, too: answers that are on their way are not cut off either.
		r := a.expose(0, 64, transport.RemoteRead)
		b.one(transport.WR{Op: transport.OpRead, RemoteAddr: a.region.Addr(), RKey: r.RKey(0)}, b.sge(128, 64))
		for len(a.poll(a.cq)) == 0 || a.qp.comp < 40 || a.dev.stats.BytesOut == 0 {
			require.True(a.t, a.dev.fabric.Step())
		}
		require.NoError(a.t, a.conn.Close())
		a.dev.fabric.Drain()
		got := b.poll(b.rcq)
		require.Len(a.t, got, 20)
		for _, c := range got {
			require.Equal(a.t, transport.StatusOK, c.Status)
		}
		require.Equal(a.t, []transport.Status{0}, statuses(b.poll(b.cq)))
		<-b.conn.Done()
	})
}

func TestAfterDoneMayTakeALockThatTheDisconnectingGoroutineHolds(t *testing.T) {
	a, _ := newPair(t, "siw", func(c *pairConfig) { c.cfg.Stepped = false })
	lock := make(chan struct{}, 1)
	done := make(chan struct{})
	a.conn.AfterDone(func() { lock <- struct{}{}; <-lock; close(done) })
	lock <- struct{}{}
	require.NoError(t, a.qp.Fail())
	require.NoError(t, a.conn.Disconnect())
	<-lock
	<-done
}

func TestLoopbackOnOneDevice(t *testing.T) {
	a, _, c := strangers(t, "rxe")
	l, err := a.dev.Listen("a:1")
	require.NoError(t, err)
	a.dial("a:1", c, transport.ConnParams{})
	in, err := l.Next(t.Context())
	require.NoError(t, err)
	b := *a
	b.create(in, c)
	b.recv(2, b.sge(100, 8))
	require.NoError(t, b.conn.Accept(transport.ConnParams{}))
	copy(a.mem(0, 8), "loopback")
	_, err = a.conn.Established(t.Context())
	require.NoError(t, err)
	a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	require.Equal(t, uint64(2), b.wait(b.rcq).Cookie)
	require.Equal(t, "loopback", string(a.mem(100, 8)))
}

func TestPassiveSideMaySendAsSoonAsItHasAccepted(t *testing.T) {
	a, b, c := strangers(t, "rxe")
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	conn, err := a.dev.Resolve(t.Context(), "b:1")
	require.NoError(t, err)
	a.create(conn, c)
	a.recv(3, a.sge(0, 8))
	require.NoError(t, a.conn.Connect(transport.ConnParams{}))
	in, err := l.Next(t.Context())
	require.NoError(t, err)
	b.create(in, c)
	require.NoError(t, b.conn.Accept(transport.ConnParams{}))
	b.one(transport.WR{Op: transport.OpSend}, b.sge(0, 8))
	require.Equal(t, transport.StatusOK, b.wait(b.cq).Status)
	require.Equal(t, uint64(3), a.wait(a.rcq).Cookie)
}

func TestWaitingHonoursItsContext(t *testing.T) {
	bothModes(t, func(t *testing.T, mode option) {
		a, b, _ := strangers(t, "rxe", mode)
		l, err := b.dev.Listen("b:1")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if a.dev.fabric.stepped {
			// At once, so the deadline is not for these: a busy machine may miss it.
			require.ErrorIs(t, a.cq.Wait(t.Context()), transport.ErrDeadlock)
			_, err = l.Next(t.Context())
			require.ErrorIs(t, err, transport.ErrDeadlock)
		} else {
			require.ErrorIs(t, a.cq.Wait(ctx), context.DeadlineExceeded)
			_, err = l.Next(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		a.cq.Wake()
		require.NoError(t, a.cq.Wait(t.Context()), "a Wake counts for the next Wait")
		require.NoError(t, a.dev.fabric.Close())
		require.ErrorIs(t, a.cq.Wait(t.Context()), transport.ErrClosed)
		_, err = l.Next(t.Context())
		require.ErrorIs(t, err, transport.ErrClosed)
	})
}

func TestClosingACQEndsItsWait(t *testing.T) {
	a, _, _ := strangers(t, "rxe", func(c *pairConfig) { c.cfg.Stepped = false })
	ended := make(chan error)
	go func() { ended <- a.cq.Wait(context.Background()) }()
	require.NoError(t, a.cq.Close())
	require.ErrorIs(t, <-ended, transport.ErrClosed)
	_, err := a.cq.Poll(make([]transport.Completion, 1))
	require.ErrorIs(t, err, transport.ErrClosed)
	require.ErrorIs(t, a.cq.Arm(), transport.ErrClosed)
}

func TestObjectsInUseAreNotClosed(t *testing.T) {
	a, b := newPair(t, "rxe")
	busy := func(err error) { t.Helper(); require.ErrorIs(t, err, transport.ErrBusy) }
	busy(a.dev.Close())
	busy(a.cq.Close())
	busy(a.rcq.Close())
	busy(a.pd.Close())
	busy(a.region.Close())
	require.NoError(t, a.conn.Close())
	for range 2 { // each is idempotent
		require.NoError(t, a.cq.Close())
		require.NoError(t, a.rcq.Close())
	}
	busy(a.pd.Close())
	require.NoError(t, a.pd.RemoveRegion(a.region))
	r, err := a.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(t, err)
	busy(a.pd.Close())
	require.NoError(t, r.Close())
	for range 2 {
		require.NoError(t, a.pd.Close())
	}
	busy(a.dev.Close())
	for range 2 {
		require.NoError(t, a.region.Close())
	}
	for range 2 {
		require.NoError(t, a.dev.Close())
	}
	_, open := <-a.dev.Events()
	require.False(t, open)
	_, err = a.dev.NewPD()
	require.ErrorIs(t, err, transport.ErrClosed)
	_, err = b.dev.Resolve(t.Context(), "a:1")
	require.ErrorIs(t, err, transport.ErrUnreachable)
}

func TestSharedReceiveQueue(t *testing.T) {
	a, b, c := strangers(t, "rxe")
	srq, err := b.pd.NewSRQ(3, 2)
	require.NoError(t, err)
	require.Equal(t, transport.QueueCaps{MaxRecvWR: 3, MaxRecvSGE: 2}, srq.Granted())
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	var as, bs []*side
	for range 2 {
		x, y := *a, *b
		x.dial("b:1", c, transport.ConnParams{})
		in, err := l.Next(t.Context())
		require.NoError(t, err)
		y.conn = in.(*Conn)
		qp, err := in.CreateQP(transport.QPConfig{PD: b.pd, SendCQ: b.cq, RecvCQ: b.rcq, SRQ: srq, QueueCaps: c.caps})
		require.NoError(t, err)
		y.qp = qp.(*QP)
		require.NoError(t, in.Accept(transport.ConnParams{}))
		_, err = x.conn.Established(t.Context())
		require.NoError(t, err)
		as, bs = append(as, &x), append(bs, &y)
	}
	_, err = bs[0].qp.PostRecv([]transport.RecvWR{{}}, nil)
	require.ErrorIs(t, err, transport.ErrInvalid)

	// Messages of both wait for receives; completions are told apart by number.
	as[0].one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	as[1].one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	require.Empty(t, b.receives())
	recvs := []transport.RecvWR{{Cookie: 1, NumSGE: 1}, {Cookie: 2, NumSGE: 1}, {Cookie: 3, NumSGE: 1}, {Cookie: 4}}
	n, err := srq.PostRecv(recvs, []transport.SGE{b.sge(0, 8)})
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, transport.ErrQueueFull)
	got := b.receives()
	require.Len(t, got, 2)
	require.ElementsMatch(t, []uint32{bs[0].qp.Num(), bs[1].qp.Num()}, []uint32{got[0].QPN, got[1].QPN})

	n, err = srq.PostRecv(recvs, []transport.SGE{b.sge(0, 8)})
	require.Equal(t, 2, n, "the slots of those that were polled are free")
	require.ErrorIs(t, err, transport.ErrQueueFull)

	// Receives of an SRQ don't flush with a queue pair.
	require.NoError(t, bs[0].qp.Fail())
	require.Empty(t, b.receives())
	require.ErrorIs(t, srq.Close(), transport.ErrBusy)
	for _, s := range bs {
		require.NoError(t, s.conn.Close())
	}
	require.NoError(t, srq.Close())
	require.NoError(t, srq.Close())
	_, err = srq.PostRecv(recvs[:1], []transport.SGE{b.sge(0, 8)})
	require.ErrorIs(t, err, transport.ErrClosed)
}
