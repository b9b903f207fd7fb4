package null_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/null"
)

const pageSize = 4096

// caps are of a device with everything.
func caps() transport.Caps {
	return transport.Caps{
		Device: "null0", MaxSendSGE: 30, MaxSGERead: 30, MaxRecvSGE: 1, MaxSendWR: 128, MaxRecvWR: 128, MaxCQE: 1 << 16,
		InitiatorDepth: 16, Windows: transport.Windows2B, FastReg: transport.FastRegCaps{MaxPages: 64, PageSizes: pageSize},
	}
}

type bed struct {
	dev    *null.Device
	pd     transport.PD
	cq     transport.CQ
	conn   transport.Conn
	qp     *null.QP
	region *transport.Region
}

func open(t *testing.T) *bed {
	b := &bed{dev: null.New(caps())}
	var err error
	b.pd, err = b.dev.NewPD()
	require.NoError(t, err)
	b.region, err = b.dev.NewRegion(transport.RegionConfig{Size: 1 << 24, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, b.pd.AddRegion(b.region))
	b.cq, err = b.dev.NewCQ(200)
	require.NoError(t, err)
	b.conn, err = b.dev.Resolve(context.Background(), "nobody:1")
	require.NoError(t, err)
	qp, err := b.conn.CreateQP(transport.QPConfig{PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq,
		QueueCaps: transport.QueueCaps{MaxSendWR: 128, MaxRecvWR: 2, MaxSendSGE: 30, MaxRecvSGE: 1}})
	require.NoError(t, err)
	b.qp = qp.(*null.QP)
	require.NoError(t, b.conn.Connect(transport.ConnParams{}))
	info, err := b.conn.Established(context.Background())
	require.NoError(t, err)
	require.Equal(t, 16, info.InitiatorDepth)
	t.Cleanup(func() {
		require.NoError(t, b.conn.Close())
		require.NoError(t, b.cq.Close())
		require.NoError(t, b.pd.RemoveRegion(b.region))
		require.NoError(t, b.pd.Close())
		require.NoError(t, b.region.Close())
		require.NoError(t, b.dev.Close())
		require.NoError(t, b.dev.Close())
	})
	return b
}

func (b *bed) poll(t *testing.T) []transport.Completion {
	var buf [256]transport.Completion
	n, err := b.cq.Poll(buf[:])
	require.NoError(t, err)
	return buf[:n]
}

func TestRequestsAreCopiedAndSignaledOnesComplete(t *testing.T) {
	b := open(t)
	sges := []transport.SGE{{Addr: 1, Len: 2, LKey: 3}, {Addr: 4, Len: 5, LKey: 6}, {Addr: 7, Len: 8, LKey: 9}}
	wrs := []transport.WR{
		{Op: transport.OpWrite, Cookie: 10, RemoteAddr: 11, RKey: 12, NumSGE: 2},
		{Op: transport.OpRead, Cookie: 13, RemoteAddr: 14, RKey: 15, FirstSGE: 2, NumSGE: 1, Flags: transport.Signaled},
	}
	n, err := b.qp.PostSend(wrs, sges)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []transport.Completion{{Cookie: 13, QPN: 1}}, b.poll(t))
	require.Empty(t, b.poll(t))
	require.EqualValues(t, 4, b.dev.Ring().Taken())

	// By hand, the same.
	want := b.dev.Ring().Checksum()
	byHand := func(change func(first *transport.WR, list []transport.SGE)) uint64 {
		ring := null.NewRing(16)
		wr, list := ring.Request(2)
		*wr = wrs[0]
		copy(list, sges)
		change(wr, list)
		wr, list = ring.Request(1)
		*wr = wrs[1]
		wr.FirstSGE = 0
		list[0] = sges[2]
		require.EqualValues(t, 4, ring.Taken())
		return ring.Checksum()
	}
	require.Equal(t, want, byHand(func(*transport.WR, []transport.SGE) {}))
	require.Equal(t, want, byHand(func(wr *transport.WR, _ []transport.SGE) { wr.Cookie++ }))
	for name, change := range map[string]func(*transport.WR, []transport.SGE){
		"opcode":         func(wr *transport.WR, _ []transport.SGE) { wr.Op++ },
		"flags":          func(wr *transport.WR, _ []transport.SGE) { wr.Flags |= transport.Fence },
		"remote address": func(wr *transport.WR, _ []transport.SGE) { wr.RemoteAddr++ },
		"rkey":           func(wr *transport.WR, _ []transport.SGE) { wr.RKey++ },
		"address":        func(_ *transport.WR, list []transport.SGE) { list[1].Addr++ },
		"length":         func(_ *transport.WR, list []transport.SGE) { list[1].Len++ },
		"lkey":           func(_ *transport.WR, list []transport.SGE) { list[0].LKey++ },
	} {
		require.NotEqual(t, want, byHand(change), name)
	}
}

// A registration's page list goes into the ring with its FAST_REG.
func TestPageListsAreCopied(t *testing.T) {
	for name, tt := range map[string]struct {
		offsets []uint64
		lengths []uint32
		from    transport.Cursor
		pages   []uint64
	}{
		"whole pages":        {[]uint64{0, 3 * pageSize, pageSize}, []uint32{pageSize, pageSize, pageSize}, transport.Cursor{}, []uint64{0, 3, 1}},
		"one large piece":    {[]uint64{0}, []uint32{3 * pageSize}, transport.Cursor{}, []uint64{0, 1, 2}},
		"odd start and end":  {[]uint64{100, 3 * pageSize}, []uint32{pageSize - 100, 50}, transport.Cursor{}, []uint64{0, 3}},
		"pieces of one page": {[]uint64{512, 1024, 1536}, []uint32{512, 512, 512}, transport.Cursor{}, []uint64{0}},
		"on into the next":   {[]uint64{512, 3 * 1024}, []uint32{5 * 512, 2048}, transport.Cursor{}, []uint64{0, 1}},
		"from a position":    {[]uint64{0, 5 * pageSize}, []uint32{pageSize, 2 * pageSize}, transport.Cursor{Piece: 1, Offset: pageSize}, []uint64{6}},
		"empty piece":        {[]uint64{0, 77, 2 * pageSize}, []uint32{pageSize, 0, pageSize}, transport.Cursor{}, []uint64{0, 2}},
		"backwards":          {[]uint64{pageSize, 0}, []uint32{pageSize, pageSize}, transport.Cursor{}, []uint64{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			reg, err := b.pd.NewRegistration(transport.FastMR, 64)
			require.NoError(t, err)
			require.Equal(t, transport.FastMR, reg.Kind())
			var list []transport.Piece
			for i := range tt.offsets {
				list = append(list, b.region.Piece(tt.offsets[i], tt.lengths[i]))
			}
			ext, err := reg.Map(transport.Mapping{List: list, From: tt.from, Access: transport.LocalWrite})
			require.NoError(t, err)
			require.Equal(t, transport.Coverage(list, tt.from, 0, 12, 64, false), ext)
			_, err = b.qp.PostSend(reg.AppendInvalid(reg.AppendValid(nil, 5), 5), nil)
			require.NoError(t, err)

			ring := null.NewRing(64)
			wr, pages := ring.FastReg(len(tt.pages))
			*wr = transport.WR{Op: transport.OpFastReg, Reg: 77, KeyByte: 9, RemoteAddr: ext.IOVA, CompareAdd: ext.Len, Imm: uint32(transport.LocalWrite)}
			for i, page := range tt.pages {
				pages[i] = b.region.Addr() + page*pageSize
			}
			wr, _ = ring.Request(0)
			*wr = transport.WR{Op: transport.OpLocalInv}
			require.Equal(t, ring.Checksum(), b.dev.Ring().Checksum(), "but for its name")
			require.NoError(t, reg.Unmap())
			require.NoError(t, reg.Close())
		})
	}
}

func TestKeysOfRegistrationsAreOfOneName(t *testing.T) {
	b := open(t)
	sum := func(key transport.LKey) uint64 {
		ring := null.NewRing(4)
		wr, list := ring.Request(1)
		*wr, list[0] = transport.WR{Op: transport.OpRead, NumSGE: 1}, transport.SGE{LKey: key}
		return ring.Checksum()
	}
	var keys []transport.LKey
	for range 2 {
		reg, err := b.pd.NewRegistration(transport.FastMR, 1)
		require.NoError(t, err)
		keys = append(keys, reg.LKey(3))
		require.NotEqual(t, reg.LKey(4), reg.LKey(3))
		require.Equal(t, uint8(4), reg.RKey(4).KeyByte())
	}
	require.NotEqual(t, keys[0], keys[1])
	require.Equal(t, sum(keys[0]), sum(keys[1]))
	require.NotEqual(t, sum(keys[0]), sum(b.pd.Regions().View().Lookup(b.region.ID()).LKey))
}

// The ring begins again where a request doesn't fit any more.
func TestRingWraps(t *testing.T) {
	ring := null.NewRing(10)
	post := func(addr uint64) {
		wr, list := ring.Request(8)
		require.Len(t, list, 8)
		*wr = transport.WR{Op: transport.OpWrite, RemoteAddr: addr, NumSGE: 8}
		clear(list)
	}
	for i := range uint64(6) {
		post(i)
	}
	require.EqualValues(t, 10+9, ring.Taken())
	second := ring.Checksum()
	ring.Reset()
	require.Zero(t, ring.Taken())
	require.Zero(t, ring.Checksum())
	for i := range uint64(3) {
		post(3 + i)
	}
	require.Equal(t, second, ring.Checksum(), "of the last lap")
}

func TestWhatIsRefused(t *testing.T) {
	b := open(t)
	_, err := b.qp.PostSend([]transport.WR{{Op: transport.OpWrite}, {Op: transport.OpWrite, NumSGE: 31}}, make([]transport.SGE, 31))
	require.ErrorIs(t, err, transport.ErrTooManySGE)
	var failure *transport.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 1, failure.WR)
	_, err = b.dev.Listen(":0")
	require.ErrorIs(t, err, transport.ErrUnsupported)
	_, err = b.dev.NewCQ(0)
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = b.dev.NewRegion(transport.RegionConfig{})
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = b.pd.NewSRQ(1, 1)
	require.ErrorIs(t, err, transport.ErrUnsupported)
	_, err = b.pd.NewRegistration(transport.FastMR, 65)
	require.ErrorIs(t, err, transport.ErrUnsupported)
	_, err = b.conn.CreateQP(transport.QPConfig{})
	require.ErrorIs(t, err, transport.ErrBadState)
	require.ErrorIs(t, b.conn.Accept(transport.ConnParams{}), transport.ErrUnsupported)
	require.ErrorIs(t, b.conn.Reject(nil), transport.ErrUnsupported)
	reg, err := b.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(t, err)
	_, err = reg.Map(transport.Mapping{})
	require.ErrorIs(t, err, transport.ErrRange)
	require.ErrorIs(t, b.pd.AddRegion(b.region), transport.ErrBusy)
}

// Completions that find no room are not lost in silence.
func TestOverrun(t *testing.T) {
	b := open(t)
	for range 257 { // 200 were asked for, 256 granted
		b.qp.Complete(1)
	}
	var buf [300]transport.Completion
	n, err := b.cq.Poll(buf[:])
	require.Equal(t, 256, n)
	require.ErrorIs(t, err, transport.ErrCQOverrun)
}

func TestReceivesAreFlushed(t *testing.T) {
	b := open(t)
	n, err := b.qp.PostRecv([]transport.RecvWR{{Cookie: 1}, {Cookie: 2}, {Cookie: 3}}, nil)
	require.ErrorIs(t, err, transport.ErrQueueFull)
	require.Equal(t, 2, n)
	ended := false
	b.conn.AfterDone(func() { ended = true })
	require.NoError(t, b.conn.Disconnect())
	require.True(t, ended)
	<-b.conn.Done()
	require.ErrorIs(t, b.conn.Err(), transport.ErrDisconnected)
	require.Equal(t, transport.QPError, b.qp.State())
	got := b.poll(t)
	require.Len(t, got, 2)
	require.Equal(t, transport.StatusFlushed, got[1].Status)
	_, err = b.qp.PostRecv([]transport.RecvWR{{}}, nil)
	require.ErrorIs(t, err, transport.ErrBadState)
	_, err = b.qp.PostSend([]transport.WR{{}}, nil)
	require.ErrorIs(t, err, transport.ErrBadState)
}

func TestWaiting(t *testing.T) {
	b := open(t)
	require.NoError(t, b.cq.Arm())
	b.cq.Wake()
	b.cq.Wake()
	require.NoError(t, b.cq.Wait(context.Background()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.cq.Wait(ctx), context.DeadlineExceeded)
}

func TestPostingAllocatesNothing(t *testing.T) {
	b := open(t)
	wrs := []transport.WR{{Op: transport.OpWrite, NumSGE: 30, Flags: transport.Signaled}}
	sges := make([]transport.SGE, 30)
	var buf [4]transport.Completion
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.qp.PostSend(wrs, sges)
		b.cq.Poll(buf[:])
	}))
}
