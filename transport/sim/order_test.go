package sim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// seeds runs a test under several schedules.
func seeds(t *testing.T, name string, test func(a, b *side), opts ...option) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			a, b := newPair(t, name, append(opts, func(c *pairConfig) { c.cfg.Seed = seed })...)
			test(a, b)
		})
	}
}

func TestCompletionsComeInTheOrderOfPosting(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		seeds(t, name, func(a, b *side) {
			r := b.expose(0, 64, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
			var wrs []transport.WR
			for i := range 30 {
				op := transport.OpWrite
				if i%3 == 0 {
					op = transport.OpRead
				}
				wrs = append(wrs, transport.WR{Op: op, Cookie: uint64(i), RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1, Flags: transport.Signaled})
			}
			a.post(wrs, a.sge(0, 64))
			got := a.completions()
			require.Len(a.t, got, 30)
			for i, c := range got {
				require.Equal(a.t, uint64(i), c.Cookie)
				require.Equal(a.t, transport.StatusOK, c.Status)
			}
		})
	}
}

func TestSendIsSeenAfterTheWriteBeforeIt(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		seeds(t, name, func(a, b *side) {
			key := b.expose(0, 4096, transport.LocalWrite|transport.RemoteWrite).RKey(0)
			fill(a.mem(0, 4096), 5)
			b.recv(1, b.sge(8192, 8))
			a.post([]transport.WR{
				{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: key, NumSGE: 1},
				{Op: transport.OpSend, FirstSGE: 1, NumSGE: 1},
			}, a.sge(0, 4096), a.sge(0, 8))
			b.wait(b.rcq)
			require.Equal(b.t, a.mem(0, 4096), b.mem(0, 4096))
		})
	}
}

// A WRITE that follows a READ may be carried out before the response lands, so
// what is sent may be old: only a fence makes it wait.
func TestFenceWaitsForReads(t *testing.T) {
	for _, flags := range []transport.Flags{0, transport.Fence} {
		a, b := newPair(t, "rxe")
		r := b.expose(0, 16, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		copy(b.mem(0, 8), "response")
		copy(a.mem(0, 8), "original")
		a.post([]transport.WR{
			{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1},
			{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + 8, RKey: r.RKey(0), NumSGE: 1, Flags: flags},
		}, a.sge(0, 8))
		a.dev.fabric.Settle(settleTime)
		want := "original"
		if flags != 0 {
			want = "response"
		}
		require.Equal(t, want, string(b.mem(8, 8)))
	}
}

func TestFencedReadFailsOnSiw(t *testing.T) {
	a, _ := newPair(t, "siw")
	_, err := a.qp.PostSend([]transport.WR{{Op: transport.OpRead, Flags: transport.Fence}}, nil)
	require.ErrorIs(t, err, transport.ErrUnsupported)

	a, _ = newPair(t, "siw-kernel") // whose posts nobody checks
	a.one(transport.WR{Op: transport.OpRead, Flags: transport.Fence})
	require.Equal(t, []transport.Status{transport.StatusLocalQPOp}, statuses(a.completions()))
}

// registered makes a FAST_REG, a READ into it, and a LOCAL_INV of it.
func registered(t *testing.T, a, b *side, invFlags transport.Flags) []transport.Status {
	fill(b.mem(0, 512), 1)
	remote := b.expose(0, 512, transport.RemoteRead)
	r, err := a.pd.NewRegistration(transport.FastMR, 4)
	require.NoError(t, err)
	ext, err := r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(100, 512)}, Access: transport.LocalWrite})
	require.NoError(t, err)
	key := r.KeyByte() + 1
	wrs := r.AppendValid(nil, key)
	wrs = append(wrs, transport.WR{Op: transport.OpRead, Cookie: 1, RemoteAddr: b.region.Addr(), RKey: remote.RKey(0), NumSGE: 1})
	wrs = r.AppendInvalid(wrs, key)
	wrs[2].Flags |= invFlags | transport.Signaled
	a.post(wrs, transport.SGE{Addr: ext.IOVA, Len: 512, LKey: r.LKey(key)})
	return statuses(a.completions())
}

func TestLocalInvOvertakesTheReadUnlessFenced(t *testing.T) {
	a, b := newPair(t, "siw-kernel")
	require.Equal(t, []transport.Status{transport.StatusLocalProtection, transport.StatusFlushed}, registered(t, a, b, 0),
		"the response finds the sink's key dead")
	require.Equal(t, make([]byte, 512), a.mem(100, 512))

	a, b = newPair(t, "siw-kernel")
	require.Equal(t, []transport.Status{0}, registered(t, a, b, transport.Fence))
	require.Equal(t, b.mem(0, 512), a.mem(100, 512))
}

func TestLocalInvWaitsForEverythingOnRxe(t *testing.T) {
	a, b := newPair(t, "rxe", func(c *pairConfig) { // as rw.c sees it
		c.a.Caps.FastReg = transport.FastRegCaps{MaxPages: 512, PageSizes: 0xfffff000}
		c.a.Caps.LocalInv[transport.FastMR] = transport.InvWorks
	})
	require.Equal(t, []transport.Status{0}, registered(t, a, b, 0))
	require.Equal(t, b.mem(0, 512), a.mem(100, 512))
}
