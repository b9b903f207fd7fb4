//go:build ibverbs && linux && cgo

package ibverbs

import (
	"math"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestSendVariants(t *testing.T) {
	eachWay(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		fill(a.mem.Bytes()[:64], 3)
		next := uint64(recvCookie)
		arrived := func() transport.Completion { next++; return b.completeOK(next - 1) }

		t.Run("inline", func(t *testing.T) {
			// The key of an inline SGE is not looked at.
			a.sges = append(a.sges, transport.SGE{Addr: a.mem.Addr(), Len: 64, LKey: 0xdead})
			a.post(transport.WR{Cookie: 1, Op: transport.OpSend, Flags: transport.Signaled | transport.Inline, NumSGE: 1})
			a.completeOK(1)
			require.EqualValues(t, 64, arrived().ByteLen)
			require.Equal(t, a.mem.Bytes()[:64], b.mem.Bytes()[recvAt:][:64])

			reg, remote := b.expose(0, 64, transport.LocalWrite|transport.RemoteWrite)
			a.sges = append(a.sges, transport.SGE{Addr: a.mem.Addr(), Len: 64})
			a.post(transport.WR{Cookie: 2, Op: transport.OpWrite, Flags: transport.Signaled | transport.Inline, NumSGE: 1,
				RemoteAddr: remote.Addr, RKey: remote.Key})
			a.completeOK(2)
			// On iWARP a WRITE completes when it was sent; the SEND behind it shows
			// that it landed.
			a.post(transport.WR{Cookie: 3, Op: transport.OpSend, Flags: transport.Signaled})
			a.completeOK(3)
			require.Zero(t, arrived().ByteLen)
			require.Equal(t, a.mem.Bytes()[:64], b.mem.Bytes()[:64])
			require.NoError(t, reg.Close())

			first := a.sge(0, 3)
			a.sge(3, 7)
			a.post(transport.WR{Cookie: 4, Op: transport.OpSend, Flags: transport.Signaled | transport.Inline, FirstSGE: first, NumSGE: 2})
			a.completeOK(4)
			require.EqualValues(t, 10, arrived().ByteLen)
			require.Equal(t, a.mem.Bytes()[:10], b.mem.Bytes()[recvAt+2*recvSize:][:10])
		})

		t.Run("inline SEND_WITH_INV", func(t *testing.T) {
			if d.quirk.inline&ops(transport.OpSendWithInv) != 0 {
				t.Skip("the device can")
			}
			n, err := a.qp.PostSend([]transport.WR{{Op: transport.OpSendWithInv, Flags: transport.Inline, RKey: 1}}, nil)
			require.Zero(t, n)
			require.ErrorIs(t, err, transport.ErrUnsupported)
		})

		t.Run("gather", func(t *testing.T) {
			if d.quirk.noBatch && d.caps.AtomicPost {
				t.Skip("as known: the list's length is wrong")
			}
			first := a.sge(0, 10)
			a.sge(50, 14)
			a.post(transport.WR{Cookie: 4, Op: transport.OpSend, Flags: transport.Signaled | transport.Solicited, FirstSGE: first, NumSGE: 2})
			a.completeOK(4)
			require.EqualValues(t, 24, arrived().ByteLen)
		})

		t.Run("zero length", func(t *testing.T) {
			reg, remote := b.expose(0, 64, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
			a.post(
				transport.WR{Cookie: 5, Op: transport.OpWrite, Flags: transport.Signaled, RemoteAddr: remote.Addr, RKey: remote.Key},
				transport.WR{Cookie: 6, Op: transport.OpRead, Flags: transport.Signaled, RemoteAddr: remote.Addr, RKey: remote.Key},
			)
			a.completeOK(5)
			a.completeOK(6)
			require.NoError(t, reg.Close())
		})

		t.Run("immediate", func(t *testing.T) {
			wr := transport.WR{Cookie: 7, Op: transport.OpSendWithImm, Flags: transport.Signaled, Imm: 0x01020304}
			if !d.caps.WriteWithImm {
				n, err := a.qp.PostSend([]transport.WR{wr}, nil)
				require.Zero(t, n)
				require.ErrorIs(t, err, transport.ErrUnsupported)
				return
			}
			reg, remote := b.expose(0, 64, transport.LocalWrite|transport.RemoteWrite)
			a.post(wr, transport.WR{Cookie: 8, Op: transport.OpWriteWithImm, Flags: transport.Signaled, Imm: 5,
				FirstSGE: a.sge(0, 8), NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key})
			a.completeOK(7)
			a.completeOK(8)
			c := arrived()
			require.Equal(t, transport.Receive|transport.WithImm, c.Flags)
			require.EqualValues(t, 0x01020304, c.Imm)
			c = arrived()
			require.Equal(t, transport.Receive|transport.WithImm, c.Flags)
			require.EqualValues(t, 5, c.Imm)
			require.EqualValues(t, 8, c.ByteLen)
			require.NoError(t, reg.Close())
		})

		t.Run("atomics", func(t *testing.T) {
			wr := transport.WR{Cookie: 9, Op: transport.OpFetchAdd, Flags: transport.Signaled, CompareAdd: 5, FirstSGE: a.sge(128, 8), NumSGE: 1}
			if !d.caps.Atomics {
				n, err := a.qp.PostSend([]transport.WR{wr}, a.sges)
				require.Zero(t, n)
				require.ErrorIs(t, err, transport.ErrUnsupported)
				return
			}
			reg, remote := b.expose(0, 64, transport.LocalWrite|transport.RemoteAtomic)
			b.mem.Bytes()[0] = 7
			clear(b.mem.Bytes()[1:8])
			wr.RemoteAddr, wr.RKey = remote.Addr, remote.Key
			a.post(wr, transport.WR{Cookie: 10, Op: transport.OpCompareSwap, Flags: transport.Signaled, CompareAdd: 12, Swap: 99,
				FirstSGE: a.sge(136, 8), NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key})
			a.completeOK(9)
			a.completeOK(10)
			require.EqualValues(t, 7, a.mem.Bytes()[128])
			require.EqualValues(t, 12, a.mem.Bytes()[136])
			require.EqualValues(t, 99, b.mem.Bytes()[0])
			require.NoError(t, reg.Close())
		})
	})
}

// A chain longer than a chunk of the C side, more READs than the depth.
func TestLongChain(t *testing.T) {
	eachWay(t, func(t *testing.T, d *device, host string) {
		const n = 150
		a, b := newEnd(t, d), newEnd(t, d)
		t.Cleanup(func() { a.close(); b.close() })
		connectWith(t, a, b, host, func(c *transport.QPConfig) { c.MaxSendWR = n },
			transport.ConnParams{InitiatorDepth: 4}, transport.ConnParams{ResponderResources: 4})
		require.Equal(t, 4, a.info.InitiatorDepth)
		reg, remote := b.expose(0, n*100, transport.LocalWrite|transport.RemoteRead)
		fill(b.mem.Bytes()[:n*100], 9)
		var wrs []transport.WR
		for i := range n {
			wr := transport.WR{Cookie: uint64(i), Op: transport.OpRead, FirstSGE: a.sge(500_000+i*100, 100), NumSGE: 1,
				RemoteAddr: remote.Addr + uint64(i*100), RKey: remote.Key}
			if i == n-1 {
				wr.Flags = transport.Signaled
			}
			wrs = append(wrs, wr)
		}
		a.post(wrs...)
		a.completeOK(n - 1)
		require.Equal(t, b.mem.Bytes()[:n*100], a.mem.Bytes()[500_000:][:n*100])
		require.NoError(t, reg.Close())
	})
}

// Requests that are converted in one step, and those that aren't, in one chain, longer than a
// chunk of the C side: each does what it says.
func TestMixedChain(t *testing.T) {
	eachWay(t, func(t *testing.T, d *device, host string) {
		const n, size = 100, 16
		a, b := newEnd(t, d), newEnd(t, d)
		t.Cleanup(func() { a.close(); b.close() })
		connectWith(t, a, b, host, func(c *transport.QPConfig) { c.MaxSendWR = n })
		reg, remote := b.expose(0, 2*n*size, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		fill(a.mem.Bytes()[:n*size], 3)
		fill(b.mem.Bytes()[n*size:2*n*size], 5)
		kinds := []transport.WR{
			{Op: transport.OpWrite},
			{Op: transport.OpWrite, Flags: transport.Inline},
			{Op: transport.OpRead},
			{Op: transport.OpWrite, Flags: transport.Fence},
			{Op: transport.OpSend, Flags: transport.Solicited},
			{Op: transport.OpSend, Flags: transport.Inline},
		}
		if d.caps.WriteWithImm {
			kinds = append(kinds, transport.WR{Op: transport.OpWriteWithImm, Imm: 77})
		}
		var wrs []transport.WR
		var arrive []transport.Opcode // at the peer's receives
		for i := range n {
			wr := kinds[i%len(kinds)]
			wr.Cookie, wr.FirstSGE, wr.NumSGE = uint64(i), a.sge(i*size, size), 1
			wr.RemoteAddr, wr.RKey = remote.Addr+uint64(i*size), remote.Key
			if wr.Op == transport.OpRead { // what lies in the other half, to the same place there
				wr.FirstSGE, wr.RemoteAddr = a.sge((n+i)*size, size), wr.RemoteAddr+n*size
			}
			if wr.Op.IsSend() {
				arrive = append(arrive, wr.Op)
			}
			wrs = append(wrs, wr)
		}
		wrs[n-1].Flags |= transport.Signaled
		a.post(wrs...)
		a.completeOK(n - 1)
		for i, op := range arrive {
			c := b.completeOK(recvCookie + uint64(i))
			if op == transport.OpWriteWithImm {
				require.EqualValues(t, 77, c.Imm)
			}
		}
		landed := 0 // receives that hold data
		for i, wr := range wrs {
			ours, theirs := a.mem.Bytes()[i*size:][:size], b.mem.Bytes()[i*size:][:size]
			switch wr.Op {
			case transport.OpWrite, transport.OpWriteWithImm:
				require.Equal(t, ours, theirs, "request %d", i)
			case transport.OpRead:
				require.Equal(t, b.mem.Bytes()[(n+i)*size:][:size], a.mem.Bytes()[(n+i)*size:][:size], "request %d", i)
			default:
				require.Equal(t, ours, b.mem.Bytes()[recvAt+landed*recvSize:][:size], "request %d", i)
			}
			if wr.Op.IsSend() {
				landed++
			}
		}
		require.NoError(t, reg.Close())
	})
}

// What a peer may not do, and what the initiator learns of it: on iWARP a WRITE
// that the peer refuses has completed successfully, the connection ends.
func TestRefusedAccess(t *testing.T) {
	const rw = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite
	cases := []struct {
		name   string
		access transport.Access
		op     transport.Opcode
		change func(r *transport.Remote)
	}{
		{"READ without right", transport.LocalWrite | transport.RemoteWrite, transport.OpRead, nil},
		{"WRITE without right", transport.LocalWrite | transport.RemoteRead, transport.OpWrite, nil},
		{"READ past the end", rw, transport.OpRead, func(r *transport.Remote) { r.Addr++ }},
		{"READ before the start", rw, transport.OpRead, func(r *transport.Remote) { r.Addr-- }},
		{"WRITE past the end", rw, transport.OpWrite, func(r *transport.Remote) { r.Addr++ }},
		{"READ with another key byte", rw, transport.OpRead, func(r *transport.Remote) { r.Key ^= 1 }},
		{"READ with another index", rw, transport.OpRead, func(r *transport.Remote) { r.Key ^= 1 << 20 }},
		{"WRITE with another key byte", rw, transport.OpWrite, func(r *transport.Remote) { r.Key ^= 1 }},
	}
	onDevices(t, func(t *testing.T, d *device, host string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				a, b := pair(t, d, host)
				const n = 256
				reg, remote := b.expose(8192, n, c.access)
				if c.change != nil {
					c.change(&remote)
				}
				before := append([]byte(nil), b.mem.Bytes()[:16384]...)
				fill(a.mem.Bytes()[:n], 7)
				a.post(transport.WR{Cookie: 1, Op: c.op, Flags: transport.Signaled, FirstSGE: a.sge(0, n), NumSGE: 1,
					RemoteAddr: remote.Addr, RKey: remote.Key})
				got := a.complete(1)[0]
				for got.Cookie != 1 { // the receives may be flushed first
					require.Equal(t, transport.StatusFlushed, got.Status)
					got = a.complete(1)[0]
				}
				t.Logf("status %v (vendor %#x)", got.Status, got.Vendor)
				if d.info.driver == driverSIW && c.access&transport.RemoteRead == 0 && c.op == transport.OpRead {
					require.Equal(t, transport.StatusOK, got.Status, "siw checks the right to READ: strike that from quirks.go")
				} else if d.caps.Protocol == transport.IWARP && c.op == transport.OpWrite {
					// A WRITE is over when it was sent, and has no answer. The peer's TERMINATE may
					// come before siw says so: then it is the request that fails.
					if got.Status != transport.StatusOK {
						require.Contains(t, []transport.Status{transport.StatusLocalQPOp, transport.StatusFlushed}, got.Status)
					}
					<-a.conn.Done()
				} else if d.caps.Protocol == transport.IWARP {
					require.NotEqual(t, transport.StatusOK, got.Status)
				} else {
					require.Equal(t, transport.StatusRemoteAccess, got.Status)
				}
				inside := func(i int) bool { return i >= 8192 && i < 8192+n }
				for i, v := range before {
					if !inside(i) {
						require.Equal(t, v, b.mem.Bytes()[i], "byte %d outside of the exposed range", i)
					}
				}
				require.NoError(t, reg.Close())
			})
		}
	})
}

// siw would truncate the list and report success.
func TestReadSGELimitIsCheckedBefore(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		reg, remote := b.expose(0, 100, transport.LocalWrite|transport.RemoteRead)
		limit := d.caps.ReadSGEs(a.qp.Granted().MaxSendSGE)
		for range limit + 1 {
			a.sge(0, 1)
		}
		read := transport.WR{Op: transport.OpRead, Flags: transport.Signaled, NumSGE: uint16(limit), RemoteAddr: remote.Addr, RKey: remote.Key}
		long := read
		long.NumSGE++
		n, err := a.qp.PostSend([]transport.WR{read, long, read}, a.sges)
		require.Equal(t, a.before(1), n)
		require.ErrorIs(t, err, transport.ErrTooManySGE)
		var e *transport.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.WR)
		t.Log(err)
		if n > 0 {
			a.completeOK(0)
		}
		require.NoError(t, reg.Close())
	})
}

// before is how many of n requests before a refused one are accepted: all of them,
// or none where a chain is posted as a whole.
func (e *end) before(n int) int {
	if e.dev.caps.AtomicPost {
		return 0
	}
	return n
}

// batched opens a device again, with batch posting. On rxe it is good for requests
// of one SGE.
func batched(t *testing.T, d *device) *device {
	o, err := Open(d.name, WithCaps(func(c *transport.Caps) { c.AtomicPost = true }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	return o.(*device)
}

// eachWay runs a test for each way of posting that the device has.
func eachWay(t *testing.T, test func(t *testing.T, d *device, host string)) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		t.Run("by default", func(t *testing.T) { test(t, d, host) })
		if d.batchOffered && !d.caps.AtomicPost {
			t.Run("by ibv_wr", func(t *testing.T) { test(t, batched(t, d), host) })
		}
	})
}

func TestRefusedPosts(t *testing.T) { eachWay(t, refusedPosts) }

func refusedPosts(t *testing.T, d *device, host string) {
	a, b := pair(t, d, host)
	granted := a.qp.Granted()
	reg, remote := b.expose(0, 100, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
	refuse := func(want error, wr transport.WR, sges ...transport.SGE) {
		t.Helper()
		ok := transport.WR{Op: transport.OpWrite, Flags: transport.Signaled, RemoteAddr: remote.Addr, RKey: remote.Key}
		n, err := a.qp.PostSend([]transport.WR{ok, wr}, sges)
		require.ErrorIs(t, err, want)
		require.Equal(t, a.before(1), n)
		var e *transport.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 1, e.WR)
		t.Log(err)
		if n > 0 {
			a.completeOK(0)
		}
	}
	sge := transport.SGE{Addr: a.mem.Addr(), Len: 1, LKey: a.lkey()}
	// siw holds requests to the device's limits and not to the queue pair's.
	maxSGE, maxInline := granted.MaxSendSGE, granted.MaxInline
	if d.info.driver == driverSIW {
		maxSGE, maxInline = d.caps.MaxSendSGE, d.caps.MaxInline
	}
	many := make([]transport.SGE, maxSGE+1)
	for i := range many {
		many[i] = sge
	}
	refuse(transport.ErrTooManySGE, transport.WR{Op: transport.OpSend, NumSGE: uint16(len(many))}, many...)
	refuse(transport.ErrInvalid, transport.WR{Op: transport.OpSend, FirstSGE: 1, NumSGE: 1}, sge)
	refuse(transport.ErrInvalid, transport.WR{Op: transport.OpSend, FirstSGE: 1 << 31, NumSGE: 1 << 15}, sge)
	refuse(transport.ErrInvalid, transport.WR{Op: transport.OpWrite, FirstSGE: math.MaxUint32, NumSGE: 1}, sge)
	refuse(transport.ErrInvalid, transport.WR{Op: transport.OpRead, FirstSGE: 2}, sge)
	refuse(transport.ErrUnsupported, transport.WR{Op: transport.OpReadWithInv})
	refuse(transport.ErrUnsupported, transport.WR{Op: transport.OpFastReg})
	refuse(transport.ErrUnsupported, transport.WR{Op: transport.OpInvalid})
	refuse(transport.ErrUnsupported, transport.WR{Op: 200})
	long := sge
	long.Len = uint32(maxInline) + 1
	refuse(transport.ErrInlineTooLong, transport.WR{Op: transport.OpSend, NumSGE: 1, Flags: transport.Inline}, long)
	if d.quirk.noFence != 0 {
		refuse(transport.ErrUnsupported, transport.WR{Op: transport.OpRead, Flags: transport.Fence, RemoteAddr: remote.Addr, RKey: remote.Key})
	}
	if d.caps.Windows == transport.NoWindows {
		refuse(transport.ErrUnsupported, transport.WR{Op: transport.OpBindWindow, Reg: 1})
	} else {
		refuse(transport.ErrInvalid, transport.WR{Op: transport.OpBindWindow, Reg: 1})
		refuse(transport.ErrInvalid, transport.WR{Op: transport.OpBindWindow, Reg: 1<<18 | 77777})
	}
	n, err := b.qp.PostRecv([]transport.RecvWR{{NumSGE: 2, FirstSGE: 0}}, []transport.SGE{sge})
	require.Zero(t, n)
	require.ErrorIs(t, err, transport.ErrInvalid)
	// The queue pair is none the worse for it.
	a.post(transport.WR{Cookie: 9, Op: transport.OpWrite, Flags: transport.Signaled, RemoteAddr: remote.Addr, RKey: remote.Key})
	a.completeOK(9)
	require.NoError(t, reg.Close())
}

func TestQueueFull(t *testing.T) { eachWay(t, queueFull) }

func queueFull(t *testing.T, d *device, host string) {
	a, b := pair(t, d, host)
	reg, remote := b.expose(0, 1<<16, transport.LocalWrite|transport.RemoteWrite)
	granted := a.qp.Granted().MaxSendWR
	// Nothing is polled meanwhile, but devices take requests out of their queue as
	// they run them: how many more than granted fit is theirs to say.
	wrs := make([]transport.WR, 4*granted)
	at := a.sge(0, 1<<16)
	for i := range wrs {
		wrs[i] = transport.WR{Cookie: uint64(i), Op: transport.OpWrite, FirstSGE: at, NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key, Flags: transport.Signaled}
	}
	n, err := a.qp.PostSend(wrs[:min(len(wrs), 200)], a.sges)
	t.Logf("granted %d, took %d: %v", granted, n, err)
	if d.caps.AtomicPost {
		require.ErrorIs(t, err, transport.ErrQueueFull)
		require.Zero(t, n, "all or nothing")
		n, err = a.qp.PostSend(wrs[:granted], a.sges)
	}
	require.GreaterOrEqual(t, n, granted)
	if err != nil {
		require.ErrorIs(t, err, transport.ErrQueueFull)
		var e *transport.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, n, e.WR)
	}
	for i := range n {
		a.completeOK(uint64(i))
	}
	// Receives: none is used up, so here the number is exact.
	got := 0
	for {
		sge := transport.SGE{Addr: b.mem.Addr(), Len: 16, LKey: b.lkey()}
		n, err := b.qp.PostRecv([]transport.RecvWR{{NumSGE: 1}}, []transport.SGE{sge})
		if err != nil {
			require.Zero(t, n)
			require.ErrorIs(t, err, transport.ErrQueueFull)
			break
		}
		got++
	}
	require.Equal(t, b.qp.Granted().MaxRecvWR, queueSize+got)
	require.NoError(t, reg.Close())
}
