package host_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/require"
)

// fake is a controller of the smallest kind, which can be told to misbehave. Nothing of
// it runs by itself: step does what there is to do, so that it works on a stepped
// fabric, too.
type fake struct {
	t      testing.TB
	dev    transport.Device
	listen transport.Listener
	poller *rw.Poller
	pool   *mrpool.Pool
	disk   *transport.Region // namespace 1, in blocks of 512 bytes
	queues []*fakeQueue

	// answer, if not nil, is asked before a command is answered: it may change the
	// completion and the key to invalidate, or swallow the answer (false).
	answer func(cmd *nvme.Command, a *fakeAnswer) bool
	// data, if not nil, may change the data of an Identify.
	data func(cmd *nvme.Command, page []byte)
	// ignore: nothing is received any more.
	ignore bool
}

// fakeAnswer is what a command is about to be answered with.
type fakeAnswer struct {
	nvme.Completion
	bytes      int // of the message
	invalidate transport.RKey
	invalidates,
	twice bool
}

type fakeQueue struct {
	f        *fake
	ep       *rw.Endpoint
	up       bool
	memory   *transport.Region
	commands []*fakeCommand
}

// fakeCommand is a receive and what answers it.
type fakeCommand struct {
	q           *fakeQueue
	at          int // in memory: a capsule, and behind it what goes out
	recv, data  rw.Context
	send, again rw.Context
	cmd         nvme.Command
	a           fakeAnswer
	// Lists that contexts were prepared with: the tests count allocations.
	capsule, local, out [1]transport.Piece
	remote              [1]transport.Remote
	chain               [2]*rw.Context
	onFetched           func(*rw.Context)
}

const (
	fakeDepth   = 64
	fakeCapsule = nvme.CommandLen + 4096
	fakeStride  = 16 << 10 // a capsule, an answer, 4 KiB of data
	fakeDisk    = 1 << 20
)

func newFake(t testing.TB, dev transport.Device, addr string, now func() time.Time) *fake {
	f := &fake{t: t, dev: dev}
	var err error
	f.listen, err = dev.Listen(addr)
	require.NoError(t, err)
	f.poller, err = rw.NewPoller(dev, 32000, rw.PollerConfig{Workers: -1, Now: now})
	require.NoError(t, err)
	f.disk, err = dev.NewRegion(transport.RegionConfig{Size: fakeDisk, Access: transport.LocalWrite})
	require.NoError(t, err)
	caps, cfg := dev.Caps(), mrpool.Config{SyncMRs: 256}
	if caps.FastReg.MaxPages > 0 {
		cfg.FastMRs = 256
	}
	f.pool, err = mrpool.NewIsolated(dev, cfg, f.disk)
	require.NoError(t, err)
	return f
}

// over is a ctx that makes nobody wait.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// step does what there is to do.
func (f *fake) step() {
	if conn, err := f.listen.Next(over); err == nil {
		f.accept(conn)
	}
	for _, q := range f.queues {
		if !q.up {
			_, err := q.ep.Established(over)
			q.up = err == nil
		}
	}
	if f.ignore {
		return
	}
	var done [16]*rw.Context
	for n := len(done); n == len(done); {
		var err error
		n, err = f.poller.Poll(done[:])
		require.NoError(f.t, err)
	}
}

func (f *fake) accept(conn transport.Conn) {
	t := f.t
	q := &fakeQueue{f: f}
	var err error
	q.memory, err = f.dev.NewRegion(transport.RegionConfig{Size: fakeDepth * fakeStride, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, f.pool.PD().AddRegion(q.memory))
	q.ep, err = f.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: f.pool, QueueCaps: transport.QueueCaps{
		MaxSendWR: 512, MaxRecvWR: fakeDepth, MaxSendSGE: 1, MaxRecvSGE: 1,
	}})
	require.NoError(t, err)
	for i := range fakeDepth {
		c := &fakeCommand{q: q, at: i * fakeStride}
		c.recv.OnDone, c.onFetched = c.received, c.fetched
		q.commands = append(q.commands, c)
		c.post()
	}
	private := make([]byte, nvme.ConnAcceptLen)
	(&nvme.ConnAccept{RecvQueueSize: fakeDepth}).Encode(private)
	require.NoError(t, conn.Accept(transport.ConnParams{PrivateData: private}))
	f.queues = append(f.queues, q)
}

func (c *fakeCommand) post() {
	q := c.q
	c.capsule[0] = q.memory.Piece(uint64(c.at), fakeCapsule)
	must(q.f.t, q.ep.PrepareRecv(&c.recv, c.capsule[:]))
	if err := q.ep.PostRecv(&c.recv); err != nil {
		return // the queue is over
	}
}

// must is require.NoError, without an allocation.
func must(t testing.TB, err error) {
	if err != nil {
		require.NoError(t, err)
	}
}

func (c *fakeCommand) received(r *rw.Context) {
	if r.Err() != nil {
		return
	}
	q, f := c.q, c.q.f
	capsule := q.memory.Bytes()[c.at : c.at+r.Received().Len]
	cmd, a := &c.cmd, &c.a
	must(f.t, cmd.Decode(capsule))
	*a = fakeAnswer{Completion: nvme.Completion{CID: cmd.CID}, bytes: nvme.CompletionLen}
	if cmd.SGL.Type == nvme.SGLKeyedInvalidate {
		a.invalidates, a.invalidate = true, transport.RKey(cmd.SGL.Key)
	}
	out := c.at + 8192
	page := q.memory.Bytes()[out : out+4096]
	toHost := transport.Piece{} // data of the answer
	c.remote[0] = transport.Remote{Addr: cmd.SGL.Addr, Len: cmd.SGL.Len, Key: transport.RKey(cmd.SGL.Key)}
	data := f.disk.Piece(cmd.LBA()*512, cmd.SGL.Len)
	switch {
	case cmd.Opcode == nvme.Fabrics && cmd.FabricsType() == nvme.ConnectType:
		a.Result = 1
	case cmd.Opcode == nvme.Fabrics && cmd.FabricsType() == nvme.PropertyGet:
		var p nvme.PropertyAccess
		must(f.t, p.Parse(cmd))
		switch p.Property {
		case nvme.PropCAP:
			a.Result = uint64(nvme.MakeCapabilities(fakeDepth-1, 1))
		case nvme.PropCSTS:
			a.Result = uint64(nvme.CSTSReady | nvme.CSTSShutdownComplete)
		}
	case cmd.Opcode == nvme.Fabrics:
	case len(f.queues) > 0 && q == f.admin(q) && cmd.Opcode == nvme.Identify:
		clear(page)
		switch nvme.CNS(cmd.CDW10) {
		case nvme.CNSController:
			(&nvme.Controller{ControllerID: 1, SGLS: nvme.SGLSSupported | nvme.SGLSKeyed | nvme.SGLSOffset, CommandCapsule: fakeCapsule / 16,
				Subsystem: nqn, MDTS: 5, Namespaces: 1}).Encode(page)
		case nvme.CNSActiveList:
			nvme.EncodeActive(page, []uint32{1})
		default:
			(&nvme.Namespace{Size: fakeDisk / 512, Formats: []nvme.LBAFormat{{Shift: 9}}}).Encode(page)
		}
		if f.data != nil {
			f.data(cmd, page)
		}
		toHost = q.memory.Piece(uint64(out), 4096)
	case q == f.admin(q) && cmd.Opcode == nvme.SetFeatures:
		a.Result = uint64(cmd.CDW11)
	case q == f.admin(q): // keep alive
	case cmd.Opcode == nvme.Read:
		toHost = data
	case cmd.Opcode == nvme.Write && cmd.SGL.Type == nvme.SGLOffset:
		copy(f.disk.Bytes()[cmd.LBA()*512:], capsule[nvme.CommandLen:])
	case cmd.Opcode == nvme.Write:
		// What is READ is in its place when the context is over.
		c.data.OnDone = c.onFetched
		c.local[0] = data
		must(f.t, q.ep.Prepare(&c.data, rw.Transfer{Op: rw.Read, Local: c.local[:], Remote: c.remote[:]}))
		q.ep.Submit(&c.data)
		return
	}
	if toHost.Len == 0 {
		c.reply(false)
		return
	}
	c.data.OnDone = ignored
	c.local[0] = toHost
	must(f.t, q.ep.Prepare(&c.data, rw.Transfer{Op: rw.Write, Local: c.local[:], Remote: c.remote[:]}))
	c.reply(true)
}

func (c *fakeCommand) fetched(d *rw.Context) {
	if d.Err() == nil {
		c.reply(false)
	}
}

func ignored(*rw.Context) {}

// admin is the admin queue of the same controller: the fake has one host at a time.
func (f *fake) admin(q *fakeQueue) *fakeQueue {
	first := f.queues[0]
	for _, x := range f.queues {
		if x.ep.Err() == nil {
			first = x
			break
		}
	}
	return first
}

// reply sends the answer, behind the data if there is some.
func (c *fakeCommand) reply(data bool) {
	q, f, a := c.q, c.q.f, &c.a
	if f.answer != nil && !f.answer(&c.cmd, a) {
		return
	}
	at := uint64(c.at + fakeCapsule)
	a.Encode(q.memory.Bytes()[at:])
	c.out[0] = q.memory.Piece(at, uint32(a.bytes))
	message := rw.Message{Local: c.out[:]}
	if a.invalidates && f.dev.Caps().SendWithInv {
		message.HasInvalidate, message.Invalidate = true, a.invalidate
	}
	c.post() // before the host can send another command
	must(f.t, q.ep.PrepareSend(&c.send, message))
	c.chain = [2]*rw.Context{&c.data, &c.send}
	chain := c.chain[:]
	if !data {
		chain = chain[1:]
	}
	if q.ep.Submit(chain...) != nil {
		return // it is over
	}
	if a.twice {
		message.HasInvalidate = false
		must(f.t, q.ep.PrepareSend(&c.again, message))
		q.ep.Submit(&c.again)
	}
}

// close ends it; drive makes what there is move.
func (f *fake) close(drive func()) {
	f.ignore = false
	for _, q := range f.queues {
		q.ep.StartClose()
	}
	for _, q := range f.queues {
		for closed := false; !closed; {
			select {
			case <-q.ep.Closed():
				closed = true
			default:
				drive()
			}
		}
		require.NoError(f.t, q.ep.Close())
		f.step()
		require.NoError(f.t, f.pool.PD().RemoveRegion(q.memory))
		require.NoError(f.t, q.memory.Close())
	}
	require.NoError(f.t, f.poller.Close())
	require.NoError(f.t, f.pool.Close())
	require.NoError(f.t, f.disk.Close())
	require.NoError(f.t, f.listen.Close())
}

// stepped is a fake and a host's device on a stepped fabric: one goroutine, virtual
// time, the same each time.
type stepped struct {
	*fake
	fabric *sim.Fabric
	host   *sim.Device
	skew   time.Duration
}

func newStepped(t testing.TB, profile string, cfg sim.Config) *stepped {
	cfg.Stepped = true
	s := &stepped{fabric: sim.New(cfg)}
	p, ok := sim.LookupProfile(profile)
	require.True(t, ok)
	dev, err := s.fabric.NewDevice(p, "target")
	require.NoError(t, err)
	s.host, err = s.fabric.NewDevice(p, "host")
	require.NoError(t, err)
	s.fake = newFake(t, dev, "target:4420", s.now)
	t.Cleanup(func() {
		s.fake.close(func() { s.move() })
		require.NoError(t, dev.Close())
		require.NoError(t, s.host.Close())
		require.NoError(t, s.fabric.Err())
		require.NoError(t, s.fabric.Close())
	})
	return s
}

func (s *stepped) now() time.Time { return time.Unix(1000, 0).Add(s.fabric.Now() + s.skew) }

var errStuck = errors.New("nothing happens any more")

// move is a host's Config.Step. When the fabric has nothing to do, time goes on by
// itself: deadlines are what is left.
func (s *stepped) move() error {
	s.fake.step()
	if !s.fabric.Step() {
		if s.skew += 10 * time.Millisecond; s.skew > time.Hour {
			return errStuck
		}
	}
	return nil
}
