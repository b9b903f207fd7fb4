package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// refused posts a chain whose request at a position must be refused.
func (s *side) refused(want error, at int, wrs []transport.WR, sges ...transport.SGE) {
	s.t.Helper()
	n, err := s.qp.PostSend(wrs, sges)
	require.ErrorIs(s.t, err, want)
	var e *transport.Error
	require.ErrorAs(s.t, err, &e)
	require.Equal(s.t, at, e.WR)
	require.Equal(s.t, at, n)
}

func write(n int) []transport.WR { return chain(n, transport.OpWrite) }

func chain(n int, op transport.Opcode) []transport.WR {
	wrs := make([]transport.WR, n)
	for i := range wrs {
		wrs[i] = transport.WR{Op: op, Cookie: uint64(i)}
	}
	return wrs
}

func TestSlotsComeBackOnlyWhenALaterCompletionIsPolled(t *testing.T) {
	a, _ := newPair(t, "siw", func(c *pairConfig) { c.caps.MaxSendWR = 4 })
	require.Equal(t, 4, a.qp.Granted().MaxSendWR)
	a.post(write(4)) // unsignaled
	a.dev.fabric.Settle(settleTime)
	a.refused(transport.ErrQueueFull, 0, write(1))

	b, _ := newPair(t, "siw", func(c *pairConfig) { c.caps.MaxSendWR = 4 })
	wrs := write(4)
	wrs[2].Flags = transport.Signaled
	b.post(wrs)
	b.dev.fabric.Settle(settleTime)
	b.refused(transport.ErrQueueFull, 0, write(1)) // complete, but not polled
	require.Len(t, b.completions(), 1)
	b.refused(transport.ErrQueueFull, 3, write(4)) // the fourth still holds its slot
}

func TestPostStopsAtTheFirstBadRequestAndRunsThoseBefore(t *testing.T) {
	a, _ := newPair(t, "rxe")
	wrs := write(4)
	wrs[0].Flags, wrs[1].Flags = transport.Signaled, transport.Signaled
	wrs[2].Op = transport.OpReadWithInv
	a.refused(transport.ErrUnsupported, 2, wrs)
	require.Equal(t, []transport.Status{0, 0}, statuses(a.completions()))
	require.Equal(t, transport.QPReady, a.qp.State(), "a refused post does no harm to the queue pair")
}

func TestAtomicPostLeavesNothingPosted(t *testing.T) {
	a, _ := newPair(t, "rxe", func(c *pairConfig) { c.a.Caps.AtomicPost = true })
	before := a.dev.Stats()
	wrs := write(4)
	wrs[0].Flags = transport.Signaled
	wrs[0].NumSGE, wrs[1].Flags, wrs[1].NumSGE = 1, transport.Inline, 1
	wrs[2].Op = transport.OpReadWithInv
	n, err := a.qp.PostSend(wrs, []transport.SGE{a.sge(0, 8)})
	require.Zero(t, n)
	require.ErrorIs(t, err, transport.ErrUnsupported)
	require.ErrorContains(t, err, "request 2 ")
	require.Empty(t, a.completions())
	require.Equal(t, before, a.dev.Stats())
	a.one(transport.WR{Op: transport.OpWrite, Cookie: 9})
	require.Equal(t, uint64(9), a.completions()[0].Cookie)
}

func TestPostErrorsAreToldApart(t *testing.T) {
	a, _ := newPair(t, "mlx5", func(c *pairConfig) {
		c.caps.MaxSendSGE, c.caps.MaxInline = 2, 32
		c.a.Caps.MaxMsg = 8 << 20
		c.size = 9 << 20
	})
	require.Equal(t, 2, a.qp.Granted().MaxSendSGE)
	e := a.sge(0, 20)
	a.refused(transport.ErrTooManySGE, 0, []transport.WR{{Op: transport.OpWrite, NumSGE: 3}}, e, e, e)
	a.refused(transport.ErrTooManySGE, 0, []transport.WR{{Op: transport.OpRead, NumSGE: 3}}, e, e, e)
	a.refused(transport.ErrInlineTooLong, 0, []transport.WR{{Op: transport.OpWrite, NumSGE: 2, Flags: transport.Inline}}, e, e)
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{Op: transport.OpRead, NumSGE: 1, Flags: transport.Inline}}, e)
	a.refused(transport.ErrInvalid, 0, []transport.WR{{Op: transport.OpWrite, FirstSGE: 1, NumSGE: 2}}, e, e)
	a.refused(transport.ErrInvalid, 0, []transport.WR{{Op: transport.OpWrite, FirstSGE: 1<<32 - 1, NumSGE: 2}}, e, e)
	a.refused(transport.ErrMessageTooLong, 0, []transport.WR{{Op: transport.OpWrite, NumSGE: 1}}, a.sge(0, 8<<20+1))
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{Op: transport.OpFastReg}})
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{}})
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{Op: 99}})
	a.refused(transport.ErrInvalid, 0, []transport.WR{{Op: transport.OpLocalInv, Reg: 12345}})
	require.Equal(t, transport.QPReady, a.qp.State())
}

func TestUserDialectOfSiwHasNoLocalInvalidationWindowsOrAtomics(t *testing.T) {
	a, _ := newPair(t, "siw")
	for _, op := range []transport.Opcode{
		transport.OpLocalInv, transport.OpBindWindow, transport.OpFastReg, transport.OpReadWithInv,
		transport.OpWriteWithImm, transport.OpSendWithImm, transport.OpFetchAdd, transport.OpCompareSwap,
	} {
		a.refused(transport.ErrUnsupported, 0, chain(1, op))
	}
	_, err := a.pd.NewRegistration(transport.Window, 0)
	require.ErrorIs(t, err, transport.ErrUnsupported)
	_, err = a.pd.NewRegistration(transport.FastMR, 1)
	require.ErrorIs(t, err, transport.ErrUnsupported)
}

func TestNothingCanBeSentBeforeTheConnectionIsUp(t *testing.T) {
	f := New(Config{Stepped: true})
	defer func() { require.NoError(t, f.Close()) }()
	c := defaults(t, "rxe")
	a, _ := newSide(t, f, c.a, "a", &c), newSide(t, f, c.b, "b", &c)
	conn, err := a.dev.Resolve(t.Context(), "b:1")
	require.NoError(t, err)
	a.create(conn, &c)
	require.Equal(t, transport.QPInit, a.qp.State())
	a.refused(transport.ErrBadState, 0, write(1))
	a.recv(1, a.sge(0, 8))
}

func TestInlineDataIsTakenAtThePostWithoutItsKey(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t, name)
			key := b.expose(0, 64, transport.LocalWrite|transport.RemoteWrite).RKey(0)
			copy(a.mem(0, 5), "early")
			e := a.sge(0, 5)
			e.LKey = 0xbad
			a.one(transport.WR{Op: transport.OpWrite, Flags: transport.Inline, RemoteAddr: b.region.Addr(), RKey: key}, e)
			copy(a.mem(0, 5), "later")
			require.Equal(t, []transport.Status{0}, statuses(a.completions()))
			require.Equal(t, "early", string(b.mem(0, 5)))
		})
	}
}

func TestInlineSendWithInvFailsOnSiw(t *testing.T) {
	a, _ := newPair(t, "siw")
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{Op: transport.OpSendWithInv, Flags: transport.Inline, NumSGE: 1}}, a.sge(0, 5))
}

func TestQueueSizesAreRoundedAsTheDevicesDo(t *testing.T) {
	ask := func(c *pairConfig) {
		c.caps.MaxSendWR, c.caps.MaxRecvWR, c.caps.MaxSendSGE, c.caps.MaxInline = 100, 128, 3, 200
	}
	a, _ := newPair(t, "rxe", ask)
	require.Equal(t, transport.QueueCaps{MaxSendWR: 127, MaxRecvWR: 255, MaxSendSGE: 12, MaxRecvSGE: 4, MaxInline: 200}, a.qp.Granted())
	a, _ = newPair(t, "siw", func(c *pairConfig) { ask(c); c.caps.MaxInline = 80 })
	require.Equal(t, transport.QueueCaps{MaxSendWR: 100, MaxRecvWR: 128, MaxSendSGE: 3, MaxRecvSGE: 4, MaxInline: 80}, a.qp.Granted())
}

func TestReceivesAreAccountedUntilTheirCompletionIsPolled(t *testing.T) {
	a, b := newPair(t, "siw", func(c *pairConfig) { c.caps.MaxRecvWR = 2 })
	b.recv(1, b.sge(0, 8))
	b.recv(2, b.sge(0, 8))
	one := []transport.RecvWR{{NumSGE: 1}}
	_, err := b.qp.PostRecv(one, []transport.SGE{b.sge(0, 8)})
	require.ErrorIs(t, err, transport.ErrQueueFull)
	a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	a.dev.fabric.Settle(settleTime)
	_, err = b.qp.PostRecv(one, []transport.SGE{b.sge(0, 8)})
	require.ErrorIs(t, err, transport.ErrQueueFull)
	require.Len(t, b.receives(), 1)
	_, err = b.qp.PostRecv(one, []transport.SGE{b.sge(0, 8)})
	require.NoError(t, err)

	_, err = b.qp.PostRecv([]transport.RecvWR{{NumSGE: 7}}, make([]transport.SGE, 7))
	require.ErrorIs(t, err, transport.ErrQueueFull)
	a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 8))
	require.Len(t, b.receives(), 1)
	_, err = b.qp.PostRecv([]transport.RecvWR{{NumSGE: 7}}, make([]transport.SGE, 7)) // siw has 6
	require.ErrorIs(t, err, transport.ErrTooManySGE)
	_, err = b.qp.PostRecv([]transport.RecvWR{{FirstSGE: 3, NumSGE: 1}}, make([]transport.SGE, 3))
	require.ErrorIs(t, err, transport.ErrInvalid)
}

// Where a receive without memory begins in the list is of no interest.
func TestReceiveWithoutMemoryMayBeginAnywhere(t *testing.T) {
	a, b := newPair(t, "rxe")
	n, err := b.qp.PostRecv([]transport.RecvWR{{Cookie: 7, FirstSGE: 1}}, nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	a.one(transport.WR{Op: transport.OpSend})
	require.EqualValues(t, 7, b.wait(b.rcq).Cookie)
}

func TestReceivesOfSiwMustHaveMemory(t *testing.T) {
	a, _ := newPair(t, "siw")
	_, err := a.qp.PostRecv([]transport.RecvWR{{}}, nil)
	require.ErrorIs(t, err, transport.ErrInvalid)
}

// siw would cut it to the first SGE, and say success.
func TestMultiSGEReadOfSiwIsRefused(t *testing.T) {
	for _, name := range []string{"siw", "siw-kernel"} {
		a, _ := newPair(t, name)
		a.refused(transport.ErrTooManySGE, 0, []transport.WR{{Op: transport.OpRead, NumSGE: 2}}, a.sge(0, 1), a.sge(0, 1))
	}
}

func TestReadDepth(t *testing.T) {
	t.Run("zero fails", func(t *testing.T) {
		for _, name := range []string{"rxe", "siw"} {
			a, _ := newPair(t, name, func(c *pairConfig) { c.params.InitiatorDepth = -1 })
			a.refused(transport.ErrReadDepth, 0, chain(1, transport.OpRead))
		}
	})
	t.Run("beyond it requests stall and hold up what follows", func(t *testing.T) {
		a, b := newPair(t, "rxe", func(c *pairConfig) { c.params.InitiatorDepth = 2 })
		b.recv(1, b.sge(0, 8))
		wrs := append(chain(5, transport.OpRead), transport.WR{Op: transport.OpSend, Cookie: 5})
		for i := range wrs {
			wrs[i].Flags = transport.Signaled
		}
		a.post(wrs)
		most := 0
		for a.dev.fabric.Step() {
			most = max(most, a.qp.reads)
			if a.qp.comp < 3 {
				require.Empty(t, b.poll(b.rcq), "the SEND stalls behind the READs")
			}
		}
		require.Equal(t, 2, most)
		require.Len(t, a.completions(), 6)
		require.Len(t, b.receives(), 1)
	})
}

func TestEmptySGEsOfSiw(t *testing.T) {
	a, _ := newPair(t, "siw")
	send := []transport.WR{{Op: transport.OpSend, NumSGE: 2}}
	a.refused(transport.ErrUnsupported, 0, send, a.sge(0, 0), a.sge(0, 8))
	send[0].Flags = transport.Inline
	n, err := a.qp.PostSend(send, []transport.SGE{a.sge(0, 0), a.sge(0, 8)})
	require.NoError(t, err, "inline data has no keys")
	require.Equal(t, 1, n)
}
