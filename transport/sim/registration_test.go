package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

const remoteRW = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite

// bind maps a window to a range of the side's region and binds it.
func (s *side) bind(w transport.Registration, off uint64, n uint32, access transport.Access, keyByte uint8) transport.RKey {
	s.t.Helper()
	_, err := w.Map(transport.Mapping{List: []transport.Piece{s.region.Piece(off, n)}, Access: access})
	require.NoError(s.t, err)
	wrs := w.AppendValid(nil, keyByte)
	wrs[0].Flags |= transport.Signaled
	s.post(wrs)
	require.Equal(s.t, []transport.Status{0}, statuses(s.completions()))
	return w.RKey(keyByte)
}

func (s *side) window() transport.Registration {
	s.t.Helper()
	w, err := s.pd.NewRegistration(transport.Window, 0)
	require.NoError(s.t, err)
	return w
}

// reads tells how a READ of one byte through a key ends.
func (s *side) reads(peer *side, key transport.RKey) transport.Status {
	s.t.Helper()
	s.one(transport.WR{Op: transport.OpRead, RemoteAddr: peer.region.Addr(), RKey: key}, s.sge(0, 1))
	return s.completions()[0].Status
}

func TestLKeyAndRKeyOfOneObjectDiffer(t *testing.T) {
	a, _ := newPair(t, "siw-kernel")
	sync := a.expose(0, 64, remoteRW)
	fast, err := a.pd.NewRegistration(transport.FastMR, 1)
	require.NoError(t, err)
	for _, r := range []transport.Registration{sync, fast} {
		require.NotEqual(t, uint32(r.LKey(5))>>8, uint32(r.RKey(5))>>8)
	}
}

func TestSyncMRCoversOneContiguousRangeOfOneRegion(t *testing.T) {
	a, _ := newPair(t, "rxe")
	r, err := a.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(t, err)
	list := []transport.Piece{a.region.Piece(0, 10), a.region.Piece(10, 0), a.region.Piece(10, 20), a.region.Piece(100, 1)}
	ext, err := r.Map(transport.Mapping{List: list, From: transport.Cursor{Offset: 4}})
	require.NoError(t, err)
	require.Equal(t, transport.Extent{IOVA: a.region.Addr() + 4, Len: 26, Pages: 1, Next: transport.Cursor{Piece: 3}}, ext)
	first := r.LKey(0)
	require.NotZero(t, first)

	ext, err = r.Map(transport.Mapping{List: list, Len: 5})
	require.NoError(t, err)
	require.Equal(t, uint64(5), ext.Len)
	require.NotEqual(t, first, r.LKey(0), "mapping again is a new registration")
	require.Empty(t, r.AppendValid(nil, 1))
	require.Empty(t, r.AppendInvalid(nil, 1))
	require.NoError(t, r.Unmap())
	require.NoError(t, r.Unmap())
	require.Zero(t, r.LKey(0))
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
}

func TestMapRefusesBadLists(t *testing.T) {
	for _, name := range []string{"rxe", "siw-kernel"} {
		for _, kind := range []transport.RegistrationKind{transport.SyncMR, transport.FastMR, transport.Window} {
			a, _ := newPair(t, name)
			r, err := a.pd.NewRegistration(kind, 4)
			if err != nil {
				require.ErrorIs(t, err, transport.ErrUnsupported)
				continue
			}
			other, err := a.dev.NewRegion(transport.RegionConfig{Size: 64})
			require.NoError(t, err)
			bad := func(want error, access transport.Access, list ...transport.Piece) {
				t.Helper()
				_, err := r.Map(transport.Mapping{List: list, Access: access})
				require.ErrorIs(t, err, want)
			}
			bad(transport.ErrRange, 0)
			bad(transport.ErrRange, 0, a.region.Piece(0, 0))
			bad(transport.ErrRange, 0, a.region.Piece(1<<16-1, 2))
			bad(transport.ErrRegion, 0, other.Piece(0, 64))
			require.NoError(t, a.pd.AddRegion(other))
			bad(transport.ErrAccess, remoteRW, other.Piece(0, 64))
			if kind != transport.Window {
				bad(transport.ErrInvalid, transport.RemoteWrite, a.region.Piece(0, 64))
			} else {
				bad(transport.ErrAccess, transport.RemoteRead, other.Piece(0, 64))
			}
			require.NoError(t, r.Close())
			_, err = r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(0, 64)}})
			require.ErrorIs(t, err, transport.ErrClosed)
		}
	}
}

func TestRegionCantLeaveUnderAValidRegistration(t *testing.T) {
	a, _ := newPair(t, "rxe")
	r := a.expose(0, 64, 0)
	require.ErrorIs(t, a.pd.RemoveRegion(a.region), transport.ErrBusy)
	require.NoError(t, r.Unmap())
	require.NoError(t, a.pd.RemoveRegion(a.region))
	require.NoError(t, a.pd.RemoveRegion(a.region), "harmless when it isn't there")

	a, _ = newPair(t, "rxe")
	w := a.window()
	a.bind(w, 0, 64, transport.RemoteRead, 1)
	require.ErrorIs(t, a.pd.RemoveRegion(a.region), transport.ErrBusy)
	require.NoError(t, w.Close())
	require.NoError(t, a.pd.RemoveRegion(a.region))
}

func TestWindowLife(t *testing.T) {
	a, b := newPair(t, "rxe")
	w := b.window()
	require.Zero(t, w.LKey(1))
	key := b.bind(w, 0, 64, transport.RemoteRead, w.KeyByte()+1)
	require.Equal(t, transport.StatusOK, a.reads(b, key))

	// The peer invalidates it; the completion says so.
	b.recv(1, b.sge(128, 8))
	a.one(transport.WR{Op: transport.OpSendWithInv, RKey: key}, a.sge(0, 8))
	got := b.receives()
	require.Len(t, got, 1)
	require.Equal(t, transport.Receive|transport.WithInv, got[0].Flags)
	require.Equal(t, key, got[0].InvKey)
	require.Len(t, a.completions(), 1)

	// The next life has another key byte, and the old key is dead.
	next := b.bind(w, 0, 64, transport.RemoteRead, key.KeyByte()+1)
	require.Equal(t, transport.StatusOK, a.reads(b, next))
	require.Equal(t, transport.StatusRemoteAccess, a.reads(b, key))
	require.NoError(t, w.Close())
	require.NoError(t, a.dev.fabric.Err())
}

// rash lets LOCAL_INV of windows be posted on rxe, where it is held back.
func rash(c *pairConfig) { c.b.Caps.LocalInv[transport.Window] = transport.InvWorks }

func TestWindowIsDeadAfterLocalInvAndAfterClose(t *testing.T) {
	_, held := newPair(t, "rxe")
	held.refused(transport.ErrUnsupported, 0, held.window().AppendInvalid(nil, 1))

	a, b := newPair(t, "rxe", rash)
	w := b.window()
	key := b.bind(w, 0, 64, transport.RemoteRead, 1)
	wrs := w.AppendInvalid(nil, 1)
	wrs[0].Flags |= transport.Signaled
	b.post(wrs)
	require.Equal(t, []transport.Status{0}, statuses(b.completions()))
	require.Equal(t, transport.StatusRemoteAccess, a.reads(b, key))

	a, b = newPair(t, "rxe")
	w = b.window()
	key = b.bind(w, 0, 64, transport.RemoteRead, 1)
	require.NoError(t, w.Close(), "bound or not")
	require.NoError(t, w.Close())
	require.Equal(t, transport.StatusRemoteAccess, a.reads(b, key))
	require.NoError(t, b.dev.fabric.Err())
}

func TestWindowGrantsItsRangeAndRightsOnly(t *testing.T) {
	tests := []struct {
		name   string
		access transport.Access
		wr     transport.WR
		off    uint64
		n      uint32
	}{
		{"write through a window for reading", transport.RemoteRead, transport.WR{Op: transport.OpWrite}, 64, 8},
		{"read through a window for writing", transport.RemoteWrite, transport.WR{Op: transport.OpRead}, 64, 8},
		{"below, inside of the region", transport.RemoteRead, transport.WR{Op: transport.OpRead}, 63, 8},
		{"above, inside of the region", transport.RemoteRead, transport.WR{Op: transport.OpRead}, 64, 65},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := newPair(t, "mlx5")
			tt.wr.RKey = b.bind(b.window(), 64, 64, tt.access, 1)
			tt.wr.RemoteAddr = b.region.Addr() + tt.off
			a.one(tt.wr, a.sge(0, tt.n))
			require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))
		})
	}
}

// rxe's check_rkey looks at the rights of the window, and at the range of the
// region that it is bound over.
func TestWindowOfRxeReachesTheWholeRegion(t *testing.T) {
	a, b := newPair(t, "rxe")
	b.dev.caps.MapBlocks[transport.Window] = false // as a transport would that takes windows for granted
	key := b.bind(b.window(), 64, 64, transport.RemoteRead, 1)
	fill(b.mem(0, 64), 1)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 64))
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	require.Equal(t, b.mem(0, 64), a.mem(0, 64))
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 1<<16 - 8, RKey: key}, a.sge(0, 9))
	require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))
}

// So a window is bound over a region of exactly its range there.
func TestWindowOfRxeIsMadeExact(t *testing.T) {
	a, b := newPair(t, "rxe")
	w := b.window()
	key := b.bind(w, 64, 64, transport.RemoteRead, 1)
	fill(b.mem(64, 64), 1)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 64, RKey: key}, a.sge(0, 64))
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	require.Equal(t, b.mem(64, 64), a.mem(0, 64))
	require.ErrorIs(t, w.Unmap(), transport.ErrBusy, "bound")
	require.ErrorIs(t, b.pd.RemoveRegion(b.region), transport.ErrBusy)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 63, RKey: key}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))
	require.NoError(t, w.Close())
	require.NoError(t, b.pd.RemoveRegion(b.region))
}

func TestWindowAnswersToItsQueuePairOnly(t *testing.T) {
	a, b := newPair(t, "rxe")
	c := defaults(t, "rxe")
	key := b.bind(b.window(), 0, 64, transport.RemoteRead, 1)
	// A second connection between the same devices, in the same domain.
	l, err := b.dev.Listen("b:9")
	require.NoError(t, err)
	conn, err := a.dev.Resolve(t.Context(), "b:9")
	require.NoError(t, err)
	a2, b2 := *a, *b
	a2.create(conn, &c)
	require.NoError(t, a2.conn.Connect(transport.ConnParams{}))
	in, err := l.Next(t.Context())
	require.NoError(t, err)
	b2.create(in, &c)
	require.NoError(t, b2.conn.Accept(transport.ConnParams{}))
	_, err = a2.conn.Established(t.Context())
	require.NoError(t, err)
	require.Equal(t, transport.StatusOK, a.reads(b, key))
	require.Equal(t, transport.StatusRemoteAccess, a2.reads(b, key))
}

func TestBindIsRefused(t *testing.T) {
	bind := func(t *testing.T, b *side, w transport.Registration, want transport.Status) {
		wrs := w.AppendValid(nil, 9)
		b.post(wrs)
		require.Equal(t, []transport.Status{want}, statuses(b.completions()))
	}
	t.Run("when bound already", func(t *testing.T) {
		for name, want := range map[string]transport.Status{"mlx5": transport.StatusBindWindow, "rxe": transport.StatusFlushed} {
			_, b := newPair(t, name)
			w := b.window()
			b.bind(w, 0, 64, transport.RemoteRead, 1)
			bind(t, b, w, want)
		}
	})
	t.Run("when nothing was mapped", func(t *testing.T) {
		_, b := newPair(t, "rxe")
		b.refused(transport.ErrInvalid, 0, b.window().AppendValid(nil, 9))
	})
	t.Run("when the region has left", func(t *testing.T) {
		_, b := newPair(t, "mlx5")
		w := b.window()
		_, err := w.Map(transport.Mapping{List: []transport.Piece{b.region.Piece(0, 64)}, Access: transport.RemoteRead})
		require.NoError(t, err)
		require.NoError(t, b.pd.RemoveRegion(b.region))
		bind(t, b, w, transport.StatusBindWindow)
	})
}

// What a real machine would not survive is told to the test.
func TestInvalidatingAFreeWindowCrashesRxe(t *testing.T) {
	free := func(t *testing.T) (a, b *side, w transport.Registration, key transport.RKey) {
		a, b = newPair(t, "rxe", rash)
		w = b.window()
		key = b.bind(w, 0, 64, transport.RemoteRead, 1)
		b.recv(1, b.sge(128, 8))
		b.recv(2, b.sge(128, 8))
		a.one(transport.WR{Op: transport.OpSendWithInv, RKey: key})
		require.Len(t, a.completions(), 1)
		require.NoError(t, b.dev.fabric.Err())
		return
	}
	crashed := func(t *testing.T, b *side) {
		b.dev.fabric.Settle(settleTime)
		require.ErrorContains(t, b.dev.fabric.Err(), "crashed")
		_, err := b.dev.NewPD()
		require.ErrorIs(t, err, transport.ErrDeviceRemoved)
	}
	t.Run("by LOCAL_INV", func(t *testing.T) {
		_, b, w, _ := free(t)
		b.post(w.AppendInvalid(nil, 1))
		crashed(t, b)
	})
	t.Run("by a second SEND_WITH_INV", func(t *testing.T) {
		a, b, _, key := free(t)
		a.one(transport.WR{Op: transport.OpSendWithInv, RKey: key})
		crashed(t, b)
		a.dev.fabric.Drain()
		require.Equal(t, []transport.Status{transport.StatusRetryExceeded}, statuses(a.completions()))
	})
	t.Run("but not with another key byte", func(t *testing.T) {
		a, b, _, key := free(t)
		a.one(transport.WR{Op: transport.OpSendWithInv, RKey: key + 1})
		a.dev.fabric.Drain()
		require.NoError(t, b.dev.fabric.Err())
		require.Equal(t, transport.StatusOK, a.poll(a.cq)[0].Status)
		require.Equal(t, transport.StatusRemoteInvalid, statuses(b.poll(b.rcq))[1])
	})
}

func TestQueuePairDestroyedUnderAWindowIsReported(t *testing.T) {
	_, b := newPair(t, "rxe")
	w := b.window()
	b.bind(w, 0, 64, transport.RemoteRead, 1)
	before := b.dev.fabric.Now()
	require.NoError(t, b.conn.Close())
	require.ErrorContains(t, b.dev.fabric.Err(), "close the windows first")
	require.Greater(t, (b.dev.fabric.Now() - before).Seconds(), 49.0)
	require.NoError(t, w.Close())
}

func TestInvalidationOfAUserMR(t *testing.T) {
	t.Run("by LOCAL_INV is refused", func(t *testing.T) {
		a, _ := newPair(t, "mlx5")
		r := a.expose(0, 64, remoteRW)
		a.post([]transport.WR{{Op: transport.OpLocalInv, Reg: r.ID()}})
		require.Equal(t, []transport.Status{transport.StatusLocalQPOp}, statuses(a.completions()))
	})
	t.Run("by SEND_WITH_INV is refused on rxe, at the price of the queue pair", func(t *testing.T) {
		for name, want := range map[string]transport.Status{
			"rxe":  transport.StatusOK,            // seen
			"mlx5": transport.StatusRetryExceeded, // a class J error has no NAK
		} {
			a, b := newPair(t, name)
			r := b.expose(0, 64, remoteRW)
			b.recv(1)
			a.one(transport.WR{Op: transport.OpSendWithInv, RKey: r.RKey(0)})
			require.Equal(t, []transport.Status{transport.StatusRemoteInvalid}, statuses(b.receives()))
			require.Equal(t, transport.QPError, b.qp.State())
			a.dev.fabric.Drain()
			require.Equal(t, []transport.Status{want}, statuses(a.completions()))
		}
	})
	t.Run("by SEND_WITH_INV kills it for good on siw", func(t *testing.T) {
		a, b := newPair(t, "siw")
		r := b.expose(0, 64, remoteRW)
		b.recv(1, b.sge(128, 8))
		b.recv(2, b.sge(128, 8))
		a.one(transport.WR{Op: transport.OpSendWithInv, RKey: r.RKey(0) ^ 1}) // the key byte doesn't matter there
		a.one(transport.WR{Op: transport.OpSendWithInv, RKey: r.RKey(0)})     // nor that it is dead
		require.Equal(t, []transport.Status{0, 0}, statuses(b.receives()))
		require.Len(t, a.completions(), 2)
		require.Equal(t, transport.StatusFlushed, a.reads(b, r.RKey(0)))
		require.NoError(t, r.Unmap())
	})
	refused := func(t *testing.T, key func(b *side) transport.RKey) {
		a, b := newPair(t, "siw")
		b.recv(1, b.sge(128, 8))
		a.one(transport.WR{Op: transport.OpSendWithInv, RKey: key(b)})
		require.Equal(t, []transport.Status{0}, statuses(a.completions()))
		require.Equal(t, []transport.Status{transport.StatusRemoteInvalid}, statuses(b.receives()))
		<-a.conn.Done()
	}
	t.Run("of an unknown key ends the stream on siw", func(t *testing.T) {
		refused(t, func(*side) transport.RKey { return 0x12345678 })
	})
	t.Run("as does one of another protection domain", func(t *testing.T) {
		refused(t, func(b *side) transport.RKey {
			other := *b
			var err error
			other.pd, err = b.dev.NewPD()
			require.NoError(t, err)
			require.NoError(t, other.pd.AddRegion(b.region))
			return other.expose(0, 64, remoteRW).RKey(0)
		})
	})
	t.Run("and of an lkey that no READ has shown, but on siw", func(t *testing.T) {
		for name, want := range map[string]transport.Status{"cxgb4": transport.StatusRemoteInvalid, "siw": transport.StatusOK} {
			a, b := newPair(t, name)
			b.recv(1, b.sge(128, 8))
			a.one(transport.WR{Op: transport.OpSendWithInv, RKey: transport.RKey(b.sge(0, 1).LKey)})
			require.Equal(t, []transport.Status{want}, statuses(b.receives()), name)
		}
	})
}

func TestRxeLetsAnyQueuePairInvalidateAWindow(t *testing.T) {
	for _, any := range []bool{true, false} {
		a, b := newPair(t, "rxe", func(c *pairConfig) { c.a.InvAnyQP, c.b.InvAnyQP = any, any })
		w := b.window()
		key := b.bind(w, 0, 64, transport.RemoteRead, 1)
		// Bound on b's queue pair, of the other device's point of view: use a loop
		// on b itself.
		c := defaults(t, "rxe")
		l, err := b.dev.Listen("b:9")
		require.NoError(t, err)
		conn, err := b.dev.Resolve(t.Context(), "b:9")
		require.NoError(t, err)
		x, y := *b, *b
		x.create(conn, &c)
		require.NoError(t, x.conn.Connect(transport.ConnParams{}))
		in, err := l.Next(t.Context())
		require.NoError(t, err)
		y.create(in, &c)
		y.recv(5)
		require.NoError(t, y.conn.Accept(transport.ConnParams{}))
		_, err = x.conn.Established(t.Context())
		require.NoError(t, err)
		x.one(transport.WR{Op: transport.OpSendWithInv, RKey: key})
		x.dev.fabric.Settle(settleTime)
		want := transport.StatusRemoteAccess
		if !any {
			want = transport.StatusOK
		}
		require.Equal(t, want, a.reads(b, key))
	}
}

func TestFastRegistrationOfAList(t *testing.T) {
	a, b := newPair(t, "siw-kernel")
	const k = 4096
	r, err := b.pd.NewRegistration(transport.FastMR, 3)
	require.NoError(t, err)
	list := []transport.Piece{b.region.Piece(5*k+100, k-100), b.region.Piece(2*k, k), b.region.Piece(9*k, 200), b.region.Piece(0, 10)}
	ext, err := r.Map(transport.Mapping{List: list, Access: remoteRW})
	require.NoError(t, err)
	require.Equal(t, transport.Extent{IOVA: b.region.Addr() + 5*k + 100, Len: 2*k + 100, Pages: 3, Next: transport.Cursor{Piece: 3}}, ext)
	require.Equal(t, transport.StatusFlushed, func() transport.Status {
		x, y := newPair(t, "siw-kernel")
		fr, err := y.pd.NewRegistration(transport.FastMR, 3)
		require.NoError(t, err)
		_, err = fr.Map(transport.Mapping{List: []transport.Piece{y.region.Piece(0, 8)}, Access: remoteRW})
		require.NoError(t, err)
		return x.reads(y, fr.RKey(fr.KeyByte()))
	}(), "mapped is not valid")

	key := r.KeyByte() + 1
	b.post(r.AppendValid(nil, key))
	b.dev.fabric.Settle(settleTime)
	fill(a.mem(0, 3*k), 1)
	a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: ext.IOVA + 10, RKey: r.RKey(key)}, a.sge(0, 2*k+90))
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	require.Equal(t, transport.QPReady, a.qp.State())
	require.Equal(t, a.mem(0, k-110), b.mem(5*k+110, k-110))
	require.Equal(t, a.mem(k-110, k), b.mem(2*k, k))
	require.Equal(t, a.mem(2*k-110, 200), b.mem(9*k, 200))
	require.Equal(t, make([]byte, 56), b.mem(9*k+200, 56))

	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: ext.IOVA, RKey: r.RKey(key)}, a.sge(0, 2*k+101))
	require.Equal(t, []transport.Status{transport.StatusFlushed}, statuses(a.completions()))
}

func TestFastRegistrationRules(t *testing.T) {
	a, _ := newPair(t, "siw-kernel")
	_, err := a.pd.NewRegistration(transport.FastMR, 257)
	require.ErrorIs(t, err, transport.ErrInvalid)
	r, err := a.pd.NewRegistration(transport.FastMR, 2)
	require.NoError(t, err)
	_, err = r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(0, 10)}, PageShift: 21})
	require.ErrorIs(t, err, transport.ErrUnsupported)

	_, err = r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(0, 10)}, Access: transport.LocalWrite})
	require.NoError(t, err)
	a.post(r.AppendValid(nil, 1))
	require.Empty(t, a.completions())
	require.ErrorIs(t, a.pd.RemoveRegion(a.region), transport.ErrBusy)

	// Re-filling the list changes nothing until the next FAST_REG.
	_, err = r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(4096, 10)}, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NotNil(t, a.dev.local(r.LKey(1), a.pd.(*PD)))
	require.True(t, a.dev.local(r.LKey(1), a.pd.(*PD)).contains(a.region.Addr(), 10))

	wrs := r.AppendInvalid(nil, 1)
	wrs = append(wrs, wrs...) // twice is fine on siw
	wrs[1].Flags |= transport.Signaled
	a.post(wrs)
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	require.Nil(t, a.dev.local(r.LKey(1), a.pd.(*PD)))

	a.post(r.AppendValid(r.AppendValid(nil, 2), 3)) // not while valid
	require.Equal(t, []transport.Status{transport.StatusLocalQPOp}, statuses(a.completions()))
}

func TestReadWithInvKillsItsSinkKey(t *testing.T) {
	a, b := newPair(t, "siw-kernel")
	fill(b.mem(0, 512), 1)
	remote := b.expose(0, 512, transport.RemoteRead)
	r, err := a.pd.NewRegistration(transport.FastMR, 4)
	require.NoError(t, err)
	ext, err := r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(100, 512)}, Access: transport.LocalWrite})
	require.NoError(t, err)
	sge := transport.SGE{Addr: ext.IOVA, Len: 512, LKey: r.LKey(7)}
	wrs := append(r.AppendValid(nil, 7), transport.WR{
		Op: transport.OpReadWithInv, Reg: r.ID(), KeyByte: 7, RemoteAddr: b.region.Addr(), RKey: remote.RKey(0), NumSGE: 1, Flags: transport.Signaled,
	})
	a.post(wrs, sge)
	require.Equal(t, []transport.Status{0}, statuses(a.completions()))
	require.Equal(t, b.mem(0, 512), a.mem(100, 512))
	require.Nil(t, a.dev.local(r.LKey(7), a.pd.(*PD)))

	wrs[1].KeyByte = 8 // names another key than the sink's
	a.refused(transport.ErrInvalid, 1, wrs, sge)
}

func TestAtomics(t *testing.T) {
	a, b := newPair(t, "rxe")
	access := transport.LocalWrite | transport.RemoteAtomic
	r := b.expose(0, 64, access)
	b.mem(8, 8)[0] = 5
	a.one(transport.WR{Op: transport.OpFetchAdd, RemoteAddr: b.region.Addr() + 8, RKey: r.RKey(0), CompareAdd: 3}, a.sge(0, 8))
	a.one(transport.WR{Op: transport.OpCompareSwap, RemoteAddr: b.region.Addr() + 8, RKey: r.RKey(0), CompareAdd: 8, Swap: 77}, a.sge(8, 8))
	a.one(transport.WR{Op: transport.OpCompareSwap, RemoteAddr: b.region.Addr() + 8, RKey: r.RKey(0), CompareAdd: 8, Swap: 99}, a.sge(16, 8))
	require.Equal(t, []transport.Status{0, 0, 0}, statuses(a.completions()))
	require.Equal(t, []byte{5, 8, 77, 77}, []byte{a.mem(0, 1)[0], a.mem(8, 1)[0], a.mem(16, 1)[0], b.mem(8, 1)[0]})
	odd := []transport.WR{{Op: transport.OpFetchAdd, RemoteAddr: b.region.Addr() + 4, RKey: r.RKey(0), NumSGE: 1}}
	a.refused(transport.ErrInvalid, 0, odd, a.sge(0, 8))

	a, b = newPair(t, "mlx5") // finds out later, and has no room for the old value
	r = b.expose(0, 64, access)
	a.one(transport.WR{Op: transport.OpFetchAdd, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), CompareAdd: 1}, a.sge(0, 4))
	require.Equal(t, []transport.Status{transport.StatusLocalProtection}, statuses(a.completions()))
	require.Equal(t, []byte{1, 0}, []byte{b.mem(0, 1)[0], a.mem(0, 1)[0]})
	a, b = newPair(t, "mlx5")
	odd[0].RKey, odd[0].RemoteAddr = b.expose(0, 64, access).RKey(0), b.region.Addr()+4
	a.post(odd, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusRemoteInvalid}, statuses(a.completions()))

	a, b = newPair(t, "rxe")
	r = b.expose(0, 64, remoteRW)
	a.one(transport.WR{Op: transport.OpFetchAdd, RemoteAddr: b.region.Addr(), RKey: r.RKey(0)}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))
}

func TestImmediateData(t *testing.T) {
	a, b := newPair(t, "rxe")
	key := b.expose(0, 64, remoteRW).RKey(0)
	fill(a.mem(0, 64), 1)
	b.recv(1, b.sge(128, 64))
	b.recv(2)
	a.one(transport.WR{Op: transport.OpSendWithImm, Imm: 0x11}, a.sge(0, 64))
	a.one(transport.WR{Op: transport.OpWriteWithImm, Imm: 0x22, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 64))
	require.Len(t, a.completions(), 2)
	require.Equal(t, []transport.Completion{
		{Cookie: 1, QPN: b.qp.Num(), Imm: 0x11, ByteLen: 64, Flags: transport.Receive | transport.WithImm},
		{Cookie: 2, QPN: b.qp.Num(), Imm: 0x22, ByteLen: 64, Flags: transport.Receive | transport.WithImm},
	}, b.receives())
	require.Equal(t, a.mem(0, 64), b.mem(0, 64))
}
