//go:build ibverbs && linux && cgo

package ibverbs

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience bounds every wait: generous, since the guest is emulated.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv("RDMARW_HELPER") != "" {
		helper()
		return
	}
	goleak.VerifyTestMain(m)
}

// onDevices runs a test on each device of RDMARW_DEVICES, or on all there are.
// A device that is named there and missing fails the test.
func onDevices(t *testing.T, f func(t *testing.T, d *device, host string)) {
	infos, err := Devices()
	require.NoError(t, err)
	names := strings.FieldsFunc(os.Getenv("RDMARW_DEVICES"), func(r rune) bool { return r == ',' || r == ' ' })
	if len(names) == 0 {
		for _, i := range infos {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		if os.Getenv("RDMARW_GUEST") != "" {
			t.Fatal("the guest has no RDMA device")
		}
		t.Skip("no RDMA device here; run with -exec scripts/guest")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			info, err := find(name, infos)
			require.NoError(t, err)
			require.NotEmpty(t, info.Addrs, "the device's network device has no address")
			d, err := Open(name)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			f(t, d.(*device), info.Addrs[0].String())
		})
	}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// end is one end of a connection with all that it needs.
type end struct {
	t    *testing.T
	dev  *device
	pd   transport.PD
	cq   transport.CQ
	mem  *transport.Region
	conn transport.Conn
	qp   transport.QP
	info transport.ConnInfo

	sges []transport.SGE
}

const (
	memSize   = 1 << 20
	queueSize = 64
)

func newEnd(t *testing.T, d *device) *end {
	e := &end{t: t, dev: d}
	var err error
	e.pd, err = d.NewPD()
	require.NoError(t, err)
	e.cq, err = d.NewCQ(4 * queueSize)
	require.NoError(t, err)
	e.mem, err = d.NewRegion(transport.RegionConfig{Size: memSize, Access: transport.LocalWrite | transport.BindWindow})
	require.NoError(t, err)
	require.NoError(t, e.pd.AddRegion(e.mem))
	return e
}

func (e *end) close() {
	if e.conn != nil {
		require.NoError(e.t, e.conn.Close())
	}
	require.NoError(e.t, e.cq.Close())
	require.NoError(e.t, e.pd.RemoveRegion(e.mem))
	require.NoError(e.t, e.pd.Close())
	require.NoError(e.t, e.mem.Close())
}

func (e *end) config() transport.QPConfig {
	return transport.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, QueueCaps: transport.QueueCaps{
		MaxSendWR: queueSize, MaxRecvWR: queueSize, MaxSendSGE: min(4, e.dev.caps.MaxSendSGE), MaxRecvSGE: 1,
		MaxInline: min(64, e.dev.caps.MaxInline),
	}}
}

func (e *end) createQP(edit func(*transport.QPConfig)) {
	cfg := e.config()
	if edit != nil {
		edit(&cfg)
	}
	qp, err := e.conn.CreateQP(cfg)
	require.NoError(e.t, err)
	e.qp = qp
	require.Equal(e.t, transport.QPInit, qp.State())
}

// pair connects two ends over a device's own address. The first one is active.
func pair(t *testing.T, d *device, host string, params ...transport.ConnParams) (*end, *end) {
	a, b := newEnd(t, d), newEnd(t, d)
	connect(t, a, b, host, params...)
	t.Cleanup(func() {
		a.close()
		b.close()
	})
	return a, b
}

func connect(t *testing.T, a, b *end, host string, params ...transport.ConnParams) {
	connectWith(t, a, b, host, nil, params...)
}

func connectWith(t *testing.T, a, b *end, host string, edit func(*transport.QPConfig), params ...transport.ConnParams) {
	ctx := testContext(t)
	var p [2]transport.ConnParams
	copy(p[:], params)
	l, err := b.dev.Listen(net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	a.conn, err = a.dev.Resolve(ctx, l.Addr())
	require.NoError(t, err)
	a.createQP(edit)
	a.recv(queueSize)
	require.NoError(t, a.conn.Connect(p[0]))
	b.conn, err = l.Next(ctx)
	require.NoError(t, err)
	b.createQP(edit)
	b.recv(queueSize)
	require.NoError(t, b.conn.Accept(p[1]))
	a.info, err = a.conn.Established(ctx)
	require.NoError(t, err)
	b.info, err = b.conn.Established(ctx)
	require.NoError(t, err)
	require.Equal(t, transport.QPReady, a.qp.State())
	require.Equal(t, transport.QPReady, b.qp.State())
}

// recvCookie marks the receives, which lie at the end of the memory.
const (
	recvCookie = 1 << 32
	recvSize   = 1 << 10
	recvAt     = memSize - queueSize*recvSize
)

func (e *end) lkey() transport.LKey {
	return e.pd.Regions().View().Lookup(e.mem.ID()).LKey
}

func (e *end) recv(n int) {
	wrs := make([]transport.RecvWR, n)
	sges := make([]transport.SGE, n)
	for i := range wrs {
		wrs[i] = transport.RecvWR{Cookie: recvCookie + uint64(i), FirstSGE: uint32(i), NumSGE: 1}
		sges[i] = transport.SGE{Addr: e.mem.Addr() + recvAt + uint64(i)*recvSize, Len: recvSize, LKey: e.lkey()}
	}
	got, err := e.qp.PostRecv(wrs, sges)
	require.NoError(e.t, err)
	require.Equal(e.t, n, got)
}

// sge makes an SGE of part of the memory and returns its index.
func (e *end) sge(at, n int) uint32 {
	e.sges = append(e.sges, transport.SGE{Addr: e.mem.Addr() + uint64(at), Len: uint32(n), LKey: e.lkey()})
	return uint32(len(e.sges) - 1)
}

func (e *end) post(wrs ...transport.WR) {
	n, err := e.qp.PostSend(wrs, e.sges)
	require.NoError(e.t, err)
	require.Equal(e.t, len(wrs), n)
	e.sges = e.sges[:0]
}

// complete polls for n completions.
func (e *end) complete(n int) []transport.Completion {
	e.t.Helper()
	var all []transport.Completion
	var buf [16]transport.Completion
	for deadline := time.Now().Add(patience); len(all) < n; {
		got, err := e.cq.Poll(buf[:min(len(buf), n-len(all))])
		require.NoError(e.t, err)
		all = append(all, buf[:got]...)
		if got == 0 {
			require.True(e.t, time.Now().Before(deadline), "%d of %d completions: %+v", len(all), n, all)
			time.Sleep(100 * time.Microsecond)
		}
	}
	return all
}

func (e *end) completeOK(cookie uint64) transport.Completion {
	e.t.Helper()
	c := e.complete(1)[0]
	require.Equal(e.t, transport.StatusOK, c.Status, "%+v", c)
	require.Equal(e.t, cookie, c.Cookie)
	require.Equal(e.t, e.qp.Num(), c.QPN)
	return c
}

// expose registers n bytes at an offset for the peer.
func (e *end) expose(at, n int, access transport.Access) (transport.Registration, transport.Remote) {
	r, err := e.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(e.t, err)
	ext, err := r.Map(transport.Mapping{List: []transport.Piece{e.mem.Piece(uint64(at), uint32(n))}, Access: access})
	require.NoError(e.t, err)
	require.EqualValues(e.t, n, ext.Len)
	return r, transport.Remote{Addr: ext.IOVA, Len: uint32(n), Key: r.RKey(0)}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*7)
	}
}

// Completions come in the order of posting, also where the device sends WRITEs off
// and forgets them while a READ before them is on its way.
func TestCompletionsAreInOrder(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		reg, remote := b.expose(0, 1<<18, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		fill(b.mem.Bytes()[:1<<18], 3)
		for round := range 20 {
			clear(a.mem.Bytes()[:1<<18])
			read := transport.WR{Cookie: 1, Op: transport.OpRead, Flags: transport.Signaled, FirstSGE: a.sge(0, 1<<18), NumSGE: 1,
				RemoteAddr: remote.Addr, RKey: remote.Key}
			if round%2 == 1 {
				read.Flags = 0
			}
			write := transport.WR{Cookie: 2, Op: transport.OpWrite, Flags: transport.Signaled, FirstSGE: a.sge(1<<18, 8), NumSGE: 1,
				RemoteAddr: remote.Addr, RKey: remote.Key}
			a.post(read, write)
			if read.Flags != 0 {
				a.completeOK(1)
			}
			a.completeOK(2)
			require.Equal(t, b.mem.Bytes()[100:1<<18], a.mem.Bytes()[100:1<<18], "the READ is over")
		}
		require.NoError(t, reg.Close())
	})
}
