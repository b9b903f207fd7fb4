package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testNQN  = "nqn.2014-08.org.example:disk"
	testHost = "nqn.2014-08.org.example:host"
)

// profiles are the simulated devices whose ways differ: windows and direct READs; keys made
// by calls, and a sink of the queue's own; fast registration of sinks; hardware that wants
// remote write access for them.
var profiles = []string{"rxe", "siw", "siw-kernel", "mlx5-kernel", "cxgb4"}

// rig is a target on one simulated device, and devices for hosts.
type rig struct {
	*Target
	t     testing.TB
	dev   transport.Device
	addr  string
	hosts int
	real  bool // devices of this machine
	// open opens a device: another one of the fabric, or a real one once more.
	open func(name string) transport.Device
}

// newRig serves a memory namespace of 4 MiB in blocks of 512 bytes, and another in blocks
// of 4096, unless cfg has subsystems. When the test ends, nothing may be left.
func newRig(t testing.TB, profile string, cfg Config) *rig {
	t.Helper()
	return newRigOn(t, profile, sim.Config{}, cfg)
}

// newRigOn is newRig on a fabric of one's own making, if the profile is a simulated one.
func newRigOn(t testing.TB, profile string, simulated sim.Config, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t}
	listen := "target:4420"
	if prof, ok := sim.LookupProfile(profile); ok {
		fabric := sim.New(simulated)
		t.Cleanup(func() {
			assert.NoError(t, fabric.Err())
			assert.NoError(t, fabric.Close())
		})
		r.open = func(name string) transport.Device {
			dev, err := fabric.NewDevice(prof, name)
			require.NoError(t, err)
			return dev
		}
	} else {
		r.open, listen = openReal(t, profile)
		r.real = true
	}
	dev := r.open("target")
	r.dev = dev
	var err error
	if cfg.Subsystems == nil {
		cfg.Subsystems = []Subsystem{{NQN: testNQN, Namespaces: []Namespace{
			{ID: 1, Backend: memory512(t, 4<<20)}, {ID: 2, Backend: memory4096(t, 4<<20)},
		}}}
	}
	if os.Getenv("TARGET_LOG") != "" && cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	r.Target, err = New(cfg)
	require.NoError(t, err)
	l, err := dev.Listen(listen)
	require.NoError(t, err)
	r.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- r.Serve(context.Background(), dev, l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		assert.NoError(t, r.Shutdown(ctx))
		select {
		case err := <-served:
			assert.ErrorIs(t, err, ErrClosed)
		case <-time.After(20 * time.Second):
			t.Error("Serve does not return")
		}
		assert.Zero(t, r.Stats().Controllers)
		assert.Zero(t, r.Stats().Queues)
		assert.NoError(t, l.Close())
		assert.NoError(t, dev.Close())
	})
	return r
}

func memory512(t testing.TB, size int64) backend.Backend  { return newMemoryBackend(t, size, 512) }
func memory4096(t testing.TB, size int64) backend.Backend { return newMemoryBackend(t, size, 4096) }

func newMemoryBackend(t testing.TB, size int64, block int) backend.Backend {
	b, err := backend.NewMemory(size, block)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

// initiator is a host: a device with a poller.
type initiator struct {
	r      *rig
	dev    transport.Device
	poller *rw.Poller
	nqn    string
	id     [16]byte
}

// host makes one.
func (r *rig) host() *initiator {
	r.hosts++
	dev := r.open(fmt.Sprintf("host%d", r.hosts))
	var err error
	h := &initiator{r: r, dev: dev, nqn: testHost, id: [16]byte{1, byte(r.hosts)}}
	h.poller, err = rw.NewPoller(dev, min(1<<14, dev.Caps().MaxCQE), rw.PollerConfig{})
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.poller.Run(ctx, nil) }()
	r.t.Cleanup(func() {
		cancel()
		assert.ErrorIs(r.t, <-ended, context.Canceled)
		assert.NoError(r.t, h.poller.Close())
		assert.NoError(r.t, dev.Close())
	})
	return h
}

// line is a host's end of a queue.
type line struct {
	h      *initiator
	ep     *rw.Endpoint
	region *transport.Region
	pool   *mrpool.Pool
	qid    uint16
	accept nvme.ConnAccept
	calls  []*call
	free   chan *call
	recvs  []reception
	capLen int // in-capsule bytes that are sent at most
	room   int // data bytes of each call
	once   sync.Once

	good, bad atomic.Int64 // answers so far, whatever they were to
}

// call is room for one command.
type call struct {
	l        *line
	cid      uint16
	at       uint64 // of the capsule in the region
	dataAt   uint64
	capsule  []byte
	data     []byte
	x        rw.Exposure
	send     rw.Context
	exposed  bool
	offered  bool
	keyDead  bool
	answered chan nvme.Completion
}

type reception struct {
	ctx  rw.Context
	at   uint64
	list [1]transport.Piece
}

// dialConfig is what tests do otherwise than hosts.
type dialConfig struct {
	entries int // 0: 32
	room    int // data bytes of each command; 0: 64 KiB
	request func(*nvme.ConnRequest)
	private []byte // instead of a request
	params  transport.ConnParams
}

// dial connects a queue pair, without the Connect command.
func (h *initiator) dial(qid uint16, cfg dialConfig) (*line, error) {
	t := h.r.t
	if cfg.entries == 0 {
		cfg.entries = 32
	}
	if cfg.room == 0 {
		cfg.room = 64 << 10
	}
	const capLen = 8192
	n := cfg.entries
	l := &line{h: h, qid: qid, free: make(chan *call, n), capLen: capLen, room: cfg.room}
	stride := nvme.CommandLen + capLen
	dataBase := (n*(stride+nvme.CompletionLen) + page - 1) &^ (page - 1)
	region, err := h.dev.NewRegion(transport.RegionConfig{Size: dataBase + n*cfg.room, Access: transport.LocalWrite | transport.BindWindow})
	require.NoError(t, err)
	l.region = region
	sizes, err := rw.Size(rw.Workload{Exposures: n, Bytes: uint64(cfg.room), Sends: n, Recvs: n}, h.dev.Caps(), rw.Policy{}, 2)
	require.NoError(t, err)
	l.pool, err = mrpool.NewIsolated(h.dev, mrpool.Config{FastMRs: sizes.FastMRs, SyncMRs: sizes.SyncMRs + n, Windows: sizes.Windows}, region)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := h.dev.Resolve(ctx, h.r.addr)
	require.NoError(t, err)
	l.ep, err = h.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: l.pool, QueueCaps: transport.QueueCaps{
		MaxSendWR: sizes.MaxSendWR + 8, MaxRecvWR: n, MaxSendSGE: 2, MaxRecvSGE: 1}})
	require.NoError(t, err)
	l.recvs = make([]reception, n)
	for i := range n {
		c := &call{
			l: l, cid: uint16(i), at: uint64(i * stride), dataAt: uint64(dataBase + i*cfg.room), answered: make(chan nvme.Completion, 4),
		}
		c.capsule = region.Bytes()[c.at : c.at+uint64(stride)]
		c.data = region.Bytes()[c.dataAt : c.dataAt+uint64(cfg.room)]
		l.calls = append(l.calls, c)
		l.free <- c
		rc := &l.recvs[i]
		rc.at = uint64(n*stride + i*nvme.CompletionLen)
		rc.list[0] = region.Piece(rc.at, nvme.CompletionLen)
		rc.ctx.OnDone = func(*rw.Context) { l.heard(rc) }
		require.NoError(t, l.ep.PrepareRecv(&rc.ctx, rc.list[:]))
		require.NoError(t, l.ep.PostRecv(&rc.ctx))
	}
	req := nvme.ConnRequest{QueueID: qid, RecvQueueSize: uint16(n), SendQueueSize: uint16(n - 1)}
	if cfg.request != nil {
		cfg.request(&req)
	}
	cfg.params.PrivateData = cfg.private
	if cfg.private == nil {
		cfg.params.PrivateData = make([]byte, nvme.ConnRequestLen)
		req.Encode(cfg.params.PrivateData)
	}
	info, err := l.ep.Connect(ctx, cfg.params)
	t.Cleanup(l.close)
	if err != nil {
		return nil, err
	}
	require.NoError(t, l.accept.Decode(info.PrivateData), "accept without private data: Linux says \"could not add new controller\"")
	return l, nil
}

func (l *line) close() {
	l.once.Do(func() {
		t := l.h.r.t
		assert.NoError(t, l.ep.Close())
		assert.NoError(t, l.pool.Close())
		assert.NoError(t, l.region.Close())
	})
}

// heard takes a response in.
func (l *line) heard(rc *reception) {
	if rc.ctx.Err() != nil {
		return
	}
	var e nvme.Completion
	err := e.Decode(l.region.Bytes()[rc.at : rc.at+uint64(rc.ctx.Received().Len)])
	invalidated := rc.ctx.Received().Invalidated
	if l.ep.PrepareRecv(&rc.ctx, rc.list[:]) != nil || l.ep.PostRecv(&rc.ctx) != nil || err != nil {
		return
	}
	if e.Status == nvme.Success {
		l.good.Add(1)
	} else {
		l.bad.Add(1)
	}
	if int(e.CID) < len(l.calls) {
		c := l.calls[e.CID]
		c.keyDead = invalidated != nil
		select {
		case c.answered <- e:
		default: // hostile tests send the same CID again and again
		}
	}
}

var errGone = errors.New("connection ended before an answer")

// expose describes the call's first n bytes of data by a keyed descriptor.
func (c *call) expose(n uint32, ops mrpool.RemoteOps) (nvme.Descriptor, error) {
	if err := c.l.ep.Expose(&c.x, []transport.Piece{c.l.region.Piece(c.dataAt, n)}, ops); err != nil {
		return nvme.Descriptor{}, err
	}
	c.exposed, c.offered = true, c.x.OfferInvalidation()
	r := c.x.Remotes()[0]
	d := nvme.Descriptor{Addr: r.Addr, Len: r.Len, Key: uint32(r.Key), Type: nvme.SGLKeyed}
	if c.offered {
		d.Type = nvme.SGLKeyedInvalidate
	}
	return d, nil
}

// start sends the command, behind what makes its key valid, with extra bytes of the
// capsule behind it.
func (c *call) start(cmd *nvme.Command, extra int) error {
	cmd.CID = c.cid
	cmd.Encode(c.capsule)
	return c.sendCapsule(nvme.CommandLen + extra)
}

func (c *call) sendCapsule(n int) error {
	err := c.l.ep.PrepareSend(&c.send, rw.Message{Local: []transport.Piece{c.l.region.Piece(c.at, uint32(n))}})
	if err != nil {
		return err
	}
	if c.exposed {
		return c.l.ep.Submit(&c.x.Grant, &c.send)
	}
	return c.l.ep.Submit(&c.send)
}

// wait waits for the answer, and makes the key dead.
func (c *call) wait() (nvme.Completion, error) {
	var e nvme.Completion
	var err error
	for giveUp := time.Now().Add(30 * time.Second); ; {
		select {
		case e = <-c.answered:
		case <-c.l.ep.Conn().Done():
			select {
			case e = <-c.answered:
			case <-time.After(2 * time.Millisecond):
				err = errGone
			}
		case <-time.After(20 * time.Millisecond):
			switch {
			case c.l.ep.Err() != nil: // of this side's doing; the connection doesn't know yet
				err = errGone
			case time.Now().After(giveUp):
				err = errors.New("no answer")
			default:
				continue
			}
		}
		break
	}
	if c.exposed {
		c.exposed = false
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if e := c.l.ep.Do(ctx, &c.x.Revoke); e != nil && err == nil {
			err = e
		}
	}
	return e, err
}

// do sends a command with n bytes of data, described by a key, and waits. buf goes to the
// target, or gets what comes from it.
func (l *line) do(cmd nvme.Command, dir nvme.Direction, buf []byte) (nvme.Completion, error) {
	c := <-l.free
	defer func() { l.free <- c }()
	cmd.Flags = nvme.FlagSGL
	cmd.SGL = nvme.Descriptor{Type: nvme.SGLKeyed}
	if len(buf) > 0 {
		ops := mrpool.WriteSink
		if dir == nvme.HostToTarget {
			ops = mrpool.ReadSource
			copy(c.data, buf)
		}
		var err error
		if cmd.SGL, err = c.expose(uint32(len(buf)), ops); err != nil {
			return nvme.Completion{}, err
		}
	}
	if err := c.start(&cmd, 0); err != nil {
		return nvme.Completion{}, err
	}
	e, err := c.wait()
	if err == nil && dir == nvme.TargetToHost {
		copy(buf, c.data)
	}
	return e, err
}

// doInline sends a command with its data in the capsule.
func (l *line) doInline(cmd nvme.Command, buf []byte) (nvme.Completion, error) {
	c := <-l.free
	defer func() { l.free <- c }()
	cmd.Flags = nvme.FlagSGL
	cmd.SGL = nvme.Descriptor{Len: uint32(len(buf)), Type: nvme.SGLOffset}
	copy(c.capsule[nvme.CommandLen:], buf)
	if err := c.start(&cmd, len(buf)); err != nil {
		return nvme.Completion{}, err
	}
	return c.wait()
}

// connectData is that of a host.
func (h *initiator) connectData(cntlid uint16, subsystem string) []byte {
	b := make([]byte, nvme.ConnectDataLen)
	(&nvme.ConnectData{HostID: h.id, ControllerID: cntlid, Subsystem: subsystem, Host: h.nqn}).Encode(b)
	return b
}

// session is a connected host: admin queue and I/O queues.
type session struct {
	testing.TB
	h      *initiator
	admin  *line
	io     []*line
	cntlid uint16
}

// admin connects the admin queue to a subsystem, and enables the controller as Linux does.
func (h *initiator) admin(subsystem string, keepAlive time.Duration) *session {
	t := h.r.t
	t.Helper()
	l, err := h.dial(0, dialConfig{})
	require.NoError(t, err)
	s := &session{TB: t, h: h, admin: l}
	connect := nvme.Connect{SQSize: 31, KeepAlive: uint32(keepAlive / time.Millisecond)}
	e, err := l.do(connect.Command(), nvme.HostToTarget, h.connectData(nvme.AnyController, subsystem))
	require.NoError(t, err)
	require.Equal(t, nvme.Success, e.Status)
	s.cntlid = uint16(e.Result)
	caps := nvme.Capabilities(s.get(nvme.PropCAP, true))
	require.True(t, caps.NVMCommandSet())
	s.set(nvme.CCEntrySizes)
	require.Zero(t, s.get(nvme.PropCSTS, false))
	s.set(nvme.CCEntrySizes | nvme.CCEnable)
	require.True(t, nvme.ControllerStatus(s.get(nvme.PropCSTS, false)).Ready())
	return s
}

// session connects a host as Linux does: admin queue, then I/O queues.
func (h *initiator) session(queues int, cfg dialConfig) *session {
	t := h.r.t
	t.Helper()
	s := h.admin(testNQN, 0)
	e, err := s.admin.do(nvme.Command{Opcode: nvme.SetFeatures, CDW10: uint32(nvme.FeatQueues), CDW11: nvme.Queues(queues)}, nvme.NoData, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, nvme.QueueCount(uint32(e.Result)), queues)
	for i := range queues {
		l, e, err := s.join(uint16(i+1), cfg)
		require.NoError(t, err)
		require.Equal(t, nvme.Success, e.Status)
		s.io = append(s.io, l)
	}
	return s
}

// join connects an I/O queue, with its data in the capsule as Linux does.
func (s *session) join(qid uint16, cfg dialConfig) (*line, nvme.Completion, error) {
	l, err := s.h.dial(qid, cfg)
	if err != nil {
		return nil, nvme.Completion{}, err
	}
	connect := nvme.Connect{QueueID: qid, SQSize: uint16(len(l.calls) - 1)}
	e, err := l.doInline(connect.Command(), s.h.connectData(s.cntlid, testNQN))
	return l, e, err
}

func (s *session) get(p nvme.Property, wide bool) uint64 {
	s.Helper()
	e, err := s.admin.do((&nvme.PropertyAccess{Wide: wide, Property: p}).Command(nvme.PropertyGet), nvme.NoData, nil)
	require.NoError(s, err)
	require.Equal(s, nvme.Success, e.Status)
	return e.Result
}

func (s *session) set(cc nvme.Configuration) {
	s.Helper()
	e, err := s.admin.do((&nvme.PropertyAccess{Property: nvme.PropCC, Value: uint64(cc)}).Command(nvme.PropertySet), nvme.NoData, nil)
	require.NoError(s, err)
	require.Equal(s, nvme.Success, e.Status)
}

func (s *session) identify(cns nvme.CNS, nsid uint32) ([]byte, nvme.Status) {
	s.Helper()
	b := make([]byte, nvme.IdentifyLen)
	e, err := s.admin.do(nvme.Command{Opcode: nvme.Identify, NSID: nsid, CDW10: uint32(cns)}, nvme.TargetToHost, b)
	require.NoError(s, err)
	return b, e.Status
}

// blocks makes a command about blocks of namespace 1.
func blocks(op nvme.Opcode, lba uint64, n uint32) nvme.Command {
	c := nvme.Command{Opcode: op, NSID: 1}
	c.SetBlocks(lba, n)
	return c
}

func (s *session) must(l *line, cmd nvme.Command, dir nvme.Direction, buf []byte) nvme.Completion {
	s.Helper()
	e, err := l.do(cmd, dir, buf)
	require.NoError(s, err)
	require.Equal(s, nvme.Success, e.Status, "%+v", cmd)
	return e
}

// timeout is longer than anything takes.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
