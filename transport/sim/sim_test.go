package sim

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"rdmarw/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// side is one end of a test's connection.
type side struct {
	t      testing.TB
	dev    *Device
	pd     transport.PD
	cq     transport.CQ // sends
	rcq    transport.CQ // receives
	conn   *Conn
	qp     *QP
	region *transport.Region
}

// piece is a range of the side's region as an SGE.
func (s *side) sge(off uint64, n uint32) transport.SGE {
	e := s.pd.Regions().View().Lookup(s.region.ID())
	require.NotNil(s.t, e)
	return transport.SGE{Addr: e.Addr + off, Len: n, LKey: e.LKey}
}

// sink is a range that a READ may land in: iWARP hardware needs a right that
// regions don't have.
func (s *side) sink(off uint64, n uint32) transport.SGE {
	s.t.Helper()
	if !s.dev.caps.ReadSinkNeedsRemoteWrite {
		return s.sge(off, n)
	}
	r := s.expose(off, n, transport.LocalWrite|transport.RemoteWrite)
	return transport.SGE{Addr: s.region.Addr() + off, Len: n, LKey: r.LKey(0)}
}

func (s *side) mem(off, n int) []byte { return s.region.Bytes()[off : off+n] }

// expose registers a range with a synchronous MR.
func (s *side) expose(off uint64, n uint32, access transport.Access) transport.Registration {
	s.t.Helper()
	r, err := s.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(s.t, err)
	_, err = r.Map(transport.Mapping{List: []transport.Piece{s.region.Piece(off, n)}, Access: access})
	require.NoError(s.t, err)
	return r
}

// post posts a chain that must be accepted.
func (s *side) post(wrs []transport.WR, sges ...transport.SGE) {
	s.t.Helper()
	n, err := s.qp.PostSend(wrs, sges)
	require.NoError(s.t, err)
	require.Equal(s.t, len(wrs), n)
}

// one posts a signaled request of at most one SGE.
func (s *side) one(wr transport.WR, sges ...transport.SGE) {
	s.t.Helper()
	wr.Flags |= transport.Signaled
	wr.NumSGE = uint16(len(sges))
	s.post([]transport.WR{wr}, sges...)
}

func (s *side) recv(cookie uint64, sges ...transport.SGE) {
	s.t.Helper()
	_, err := s.qp.PostRecv([]transport.RecvWR{{Cookie: cookie, NumSGE: uint16(len(sges))}}, sges)
	require.NoError(s.t, err)
}

// poll takes what is there.
func (s *side) poll(cq transport.CQ) (all []transport.Completion) {
	s.t.Helper()
	var buf [8]transport.Completion
	for {
		n, err := cq.Poll(buf[:])
		require.NoError(s.t, err)
		all = append(all, buf[:n]...)
		if n == 0 {
			return all
		}
	}
}

// completions drains the fabric and takes what has arrived at the send CQ.
func (s *side) completions() []transport.Completion {
	s.t.Helper()
	s.dev.fabric.Settle(settleTime)
	return s.poll(s.cq)
}

func (s *side) receives() []transport.Completion {
	s.t.Helper()
	s.dev.fabric.Settle(settleTime)
	return s.poll(s.rcq)
}

// settleTime is longer than any latency and shorter than any timeout.
const settleTime = 500 * time.Microsecond

// statuses lists the statuses of completions.
func statuses(cs []transport.Completion) (list []transport.Status) {
	for _, c := range cs {
		list = append(list, c.Status)
	}
	return list
}

// wait blocks until a completion arrives, in either mode.
func (s *side) wait(cq transport.CQ) transport.Completion {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var one [1]transport.Completion
	for {
		n, err := cq.Poll(one[:])
		require.NoError(s.t, err)
		if n == 1 {
			return one[0]
		}
		require.NoError(s.t, cq.Arm())
		if n, _ := cq.Poll(one[:]); n == 1 {
			return one[0]
		}
		require.NoError(s.t, cq.Wait(ctx))
	}
}

// option changes what newPair makes.
type option func(*pairConfig)

type pairConfig struct {
	cfg    Config
	a, b   Profile
	caps   transport.QueueCaps
	cqe    int
	params transport.ConnParams
	size   int
}

func profile(t testing.TB, name string) Profile {
	p, ok := LookupProfile(name)
	require.True(t, ok, name)
	return p
}

func defaults(t testing.TB, name string) pairConfig {
	p := profile(t, name)
	sges := min(4, p.Caps.MaxSendSGE)
	return pairConfig{
		cfg: Config{Seed: 1, Stepped: true}, a: p, b: p, cqe: 1024, size: 1 << 16,
		caps: transport.QueueCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: sges, MaxRecvSGE: sges, MaxInline: 64},
	}
}

// newPair connects two devices of a profile: a is active, b passive.
func newPair(t testing.TB, name string, opts ...option) (a, b *side) {
	t.Helper()
	c := defaults(t, name)
	for _, o := range opts {
		o(&c)
	}
	f := New(c.cfg)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return connectPair(t, f, &c)
}

func connectPair(t testing.TB, f *Fabric, c *pairConfig) (a, b *side) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	a, b = newSide(t, f, c.a, "a", c), newSide(t, f, c.b, "b", c)
	l, err := b.dev.Listen("b:7471")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	conn, err := a.dev.Resolve(ctx, "b:7471")
	require.NoError(t, err)
	a.create(conn, c)
	require.NoError(t, a.conn.Connect(c.params))
	incoming, err := l.Next(ctx)
	require.NoError(t, err)
	b.create(incoming, c)
	require.NoError(t, b.conn.Accept(c.params))
	_, err = a.conn.Established(ctx)
	require.NoError(t, err)
	_, err = b.conn.Established(ctx)
	require.NoError(t, err)
	return a, b
}

func newSide(t testing.TB, f *Fabric, p Profile, name string, c *pairConfig) *side {
	t.Helper()
	d, err := f.NewDevice(p, name)
	require.NoError(t, err)
	s := &side{t: t, dev: d}
	s.pd, err = d.NewPD()
	require.NoError(t, err)
	s.cq, err = d.NewCQ(c.cqe)
	require.NoError(t, err)
	s.rcq, err = d.NewCQ(c.cqe)
	require.NoError(t, err)
	access := transport.LocalWrite
	if p.Caps.Windows != transport.NoWindows {
		access |= transport.BindWindow
	}
	s.region, err = d.NewRegion(transport.RegionConfig{Size: c.size, Access: access})
	require.NoError(t, err)
	require.NoError(t, s.pd.AddRegion(s.region))
	return s
}

func (s *side) create(conn transport.Conn, c *pairConfig) {
	s.t.Helper()
	s.conn = conn.(*Conn)
	qp, err := s.conn.CreateQP(transport.QPConfig{PD: s.pd, SendCQ: s.cq, RecvCQ: s.rcq, QueueCaps: c.caps})
	require.NoError(s.t, err)
	s.qp = qp.(*QP)
}

// both runs a test in both modes on all profiles.
func both(t *testing.T, test func(t *testing.T, name string, mode option)) {
	for _, p := range Profiles() {
		t.Run(p.Name+"/stepped", func(t *testing.T) { test(t, p.Name, func(*pairConfig) {}) })
		t.Run(p.Name+"/free", func(t *testing.T) {
			test(t, p.Name, func(c *pairConfig) { c.cfg.Stepped = false })
		})
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i)*7
	}
}

func TestSendLandsInTheReceive(t *testing.T) {
	both(t, func(t *testing.T, name string, mode option) {
		a, b := newPair(t, name, mode)
		fill(a.mem(0, 100), 3)
		b.recv(77, b.sge(0, 50), b.sge(1000, 100))
		a.one(transport.WR{Op: transport.OpSend, Cookie: 5}, a.sge(0, 40), a.sge(40, 60))
		require.Equal(t, transport.Completion{Cookie: 5, QPN: a.qp.Num()}, a.wait(a.cq))
		require.Equal(t, transport.Completion{Cookie: 77, QPN: b.qp.Num(), ByteLen: 100, Flags: transport.Receive}, b.wait(b.rcq))
		require.Equal(t, a.mem(0, 50), b.mem(0, 50))
		require.Equal(t, a.mem(50, 50), b.mem(1000, 50))
	})
}

func TestWriteAndReadMoveExactlyTheRange(t *testing.T) {
	both(t, func(t *testing.T, name string, mode option) {
		a, b := newPair(t, name, mode)
		fill(a.mem(0, 4096), 9)
		r := b.expose(100, 3000, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		before := bytes.Clone(b.mem(0, 8192))
		a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + 100, RKey: r.RKey(0)}, a.sge(10, 3000))
		require.Equal(t, transport.StatusOK, a.wait(a.cq).Status)
		a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr() + 100, RKey: r.RKey(0)}, a.sink(5000, 3000))
		require.Equal(t, transport.StatusOK, a.wait(a.cq).Status)
		require.Equal(t, a.mem(10, 3000), b.mem(100, 3000))
		require.Equal(t, before[:100], b.mem(0, 100))
		require.Equal(t, before[3100:], b.mem(3100, 8192-3100))
		require.Equal(t, a.mem(10, 3000), a.mem(5000, 3000))
	})
}

func TestUnmappedKeyIsDead(t *testing.T) {
	both(t, func(t *testing.T, name string, mode option) {
		a, b := newPair(t, name, mode)
		r := b.expose(0, 64, transport.RemoteRead)
		key := r.RKey(0)
		require.NotZero(t, key)
		require.NoError(t, r.Unmap())
		require.Zero(t, r.RKey(0))
		a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 64))
		require.Equal(t, a.dev.Profile().RefusedRead, a.wait(a.cq).Status)
		require.Equal(t, transport.QPError, a.qp.State())
	})
}
