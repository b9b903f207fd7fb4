package target

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostileCapsules is how many capsules each profile gets. TARGET_HOSTILE says another number.
func hostileCapsules(t *testing.T) int {
	n := 1000
	if s := os.Getenv("TARGET_HOSTILE"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	return n
}

// strictBackend fails the test where it is given something that a backend must not see.
type strictBackend struct {
	backend.Backend
	t *testing.T
	n atomic.Uint64
}

func (s *strictBackend) Submit(r *backend.Request) {
	s.n.Add(1)
	g := s.Geometry()
	if err := g.Check(r); err != nil {
		s.t.Errorf("a backend was given what is out of its range: %v", err)
	}
	s.Backend.Submit(r)
}

// secret is what the namespace of the other host is full of.
var secret = []byte("nobody else must see this, ever.")

// TestHostile: a host sends spoiled capsules, to admin and I/O queues, connected or not. Each
// is answered, or is the end of that host's connection. Another host's I/O goes on, and
// nothing of its data gets to the first.
func TestHostile(t *testing.T) {
	const victimNQN = "nqn.2014-08.org.example:other"
	for _, profile := range append(profiles, realDevices()...) {
		t.Run(profile, func(t *testing.T) {
			open := &strictBackend{Backend: memory512(t, 1<<20), t: t}
			closed := &strictBackend{Backend: memory4096(t, 4<<20), t: t}
			r := newRig(t, profile, Config{
				MaxTransfer: 64 << 10, QueueMemory: 256 << 10,
				Subsystems: []Subsystem{
					{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: open}, {ID: 2, Backend: memory4096(t, 1<<20)}}},
					{NQN: victimNQN, Namespaces: []Namespace{{ID: 2, Backend: closed}}, Hosts: []string{"nqn.2014-08.org.example:other-host"}},
				},
			})
			other := r.host()
			other.nqn = "nqn.2014-08.org.example:other-host"
			v := other.admin(victimNQN, 0)
			connect := nvme.Connect{QueueID: 1, SQSize: 31}
			l, err := other.dial(1, dialConfig{})
			require.NoError(t, err)
			e, err := l.doInline(connect.Command(), other.connectData(v.cntlid, victimNQN))
			require.NoError(t, err)
			require.Equal(t, nvme.Success, e.Status)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() { verify(t, l, stop) })
			a := &attacker{t: t, h: r.host(), rng: rand.New(rand.NewPCG(7, uint64(len(profile))))}
			a.attack(hostileCapsules(t))
			close(stop)
			wg.Wait()
			t.Logf("%d spoiled capsules; with the good ones between them: %d answers of success, %d of an error; %d connections ended; %d backend requests, %d of the other host",
				a.sent, a.good, a.bad, a.ended, open.n.Load(), closed.n.Load())
			assert.Positive(t, a.good)
			assert.Positive(t, a.bad)
			assert.Positive(t, a.ended)
			require.Eventually(t, func() bool { return r.Stats().Controllers == 1 }, 20*time.Second, time.Millisecond, "the other host's is what is left")
			require.NoError(t, l.ep.Err())
		})
	}
}

// verify writes and reads secrets until it is told to stop.
func verify(t *testing.T, l *line, stop <-chan struct{}) {
	buf := bytes.Repeat(secret, 8192/len(secret))
	got := make([]byte, len(buf))
	for i := uint64(0); ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		lba := i * 2 % 1024
		cmd := blocks(nvme.Write, lba, 2)
		cmd.NSID = 2
		buf[0] = byte(i)
		e, err := l.do(cmd, nvme.HostToTarget, buf)
		if !assert.NoError(t, err) || !assert.Equal(t, nvme.Success, e.Status) {
			return
		}
		cmd.Opcode = nvme.Read
		e, err = l.do(cmd, nvme.TargetToHost, got)
		if !assert.NoError(t, err) || !assert.Equal(t, nvme.Success, e.Status) || !assert.True(t, bytes.Equal(buf, got)) {
			return
		}
	}
}

// attacker is a host that makes mistakes.
type attacker struct {
	t   *testing.T
	h   *initiator
	rng *rand.Rand

	sent, ended int
	good, bad   int64 // answers, those to markers among them
}

// attack sends n capsules, by as many connections as it takes.
func (a *attacker) attack(n int) {
	for a.sent < n {
		admin, io, err := a.connect()
		if !assert.NoError(a.t, err) {
			return
		}
		on, idle := admin, io
		if a.rng.IntN(4) > 0 && io != nil {
			on, idle = io, admin
		}
		for range 50 {
			if a.sent >= n || !a.batch(on) {
				break
			}
		}
		if on.ep.Err() != nil {
			a.ended++
		}
		for _, l := range []*line{on, idle} {
			if l != nil {
				a.good += l.good.Load()
				a.bad += l.bad.Load()
				assert.False(a.t, bytes.Contains(l.region.Bytes(), secret), "another host's data got here")
				l.close()
			}
		}
	}
}

// connect makes an admin queue, and mostly an I/O queue; now and then they stay unconnected.
func (a *attacker) connect() (admin, io *line, err error) {
	cfg := dialConfig{entries: 16, room: 16 << 10}
	if admin, err = a.h.dial(0, cfg); err != nil || a.rng.IntN(8) == 0 {
		return admin, nil, err
	}
	connect := nvme.Connect{SQSize: 15}
	e, err := admin.do(connect.Command(), nvme.HostToTarget, a.h.connectData(nvme.AnyController, testNQN))
	if err != nil || e.Status != nvme.Success {
		return admin, nil, fmt.Errorf("connect: %w", errors.Join(err, e.Status))
	}
	cntlid := uint16(e.Result)
	for _, cc := range []nvme.Configuration{nvme.CCEntrySizes, nvme.CCEntrySizes | nvme.CCEnable} {
		if _, err := admin.do((&nvme.PropertyAccess{Property: nvme.PropCC, Value: uint64(cc)}).Command(nvme.PropertySet), nvme.NoData, nil); err != nil {
			return admin, nil, err
		}
	}
	if io, err = a.h.dial(1, cfg); err != nil || a.rng.IntN(8) == 0 {
		return admin, io, err
	}
	connect.QueueID = 1
	e, err = io.doInline(connect.Command(), a.h.connectData(cntlid, testNQN))
	if err == nil && e.Status != nvme.Success {
		err = e.Status
	}
	return admin, io, err
}

// batch sends a few spoiled capsules, and then a good one, whose answer says that all were
// looked at. It reports false when the connection has ended.
func (a *attacker) batch(l *line) bool {
	k := 1 + a.rng.IntN(6)
	used := l.calls[:k]
	marker := l.calls[k]
	before := l.good.Load() + l.bad.Load()
	for _, c := range used {
		drop(c)
		n := a.spoil(c)
		a.sent++
		if c.sendCapsule(n) != nil {
			return false
		}
	}
	drop(marker)
	cmd := nvme.Command{Opcode: nvme.KeepAlive, Flags: nvme.FlagSGL, NSID: 1, SGL: nvme.Descriptor{Type: nvme.SGLKeyed}}
	if l.qid > 0 {
		cmd.Opcode = nvme.Flush
	}
	alive := marker.start(&cmd, 0) == nil
	if alive {
		_, err := marker.wait()
		if err != nil && !errors.Is(err, errGone) {
			a.t.Errorf("neither answered nor ended: %v", err)
		}
		alive = err == nil
	}
	// Those that READ or WRITE may take longer than the marker. Asynchronous event requests
	// stay unanswered for ever.
	for i := 0; alive && i < 20 && l.good.Load()+l.bad.Load() < before+int64(k)+1; i++ {
		time.Sleep(50 * time.Microsecond)
	}
	for _, c := range used {
		if c.exposed {
			c.exposed = false
			if err := l.ep.Do(timeout(a.t), &c.x.Revoke); err != nil {
				alive = false
			}
		}
	}
	return alive && l.ep.Err() == nil
}

func drop(c *call) {
	for {
		select {
		case <-c.answered:
		default:
			return
		}
	}
}

// spoil writes a capsule that is good but for a few things, and returns its length.
func (a *attacker) spoil(c *call) int {
	rng := a.rng
	pick := func(all ...uint32) uint32 { return all[rng.IntN(len(all))] }
	cmd := nvme.Command{Flags: nvme.FlagSGL, NSID: pick(1, 1, 1, 2), CID: c.cid}
	var length uint32
	ops := mrpool.WriteSink
	if c.l.qid == 0 {
		cmd.Opcode = nvme.Opcode(pick(uint32(nvme.Fabrics), uint32(nvme.Identify), uint32(nvme.GetLogPage), uint32(nvme.GetFeatures),
			uint32(nvme.SetFeatures), uint32(nvme.Abort), uint32(nvme.AsyncEvent), rng.Uint32()&0xFF))
		cmd.CDW10, cmd.CDW11 = pick(0, 1, 2, 3, 7, 0xF, 0x70, rng.Uint32()), pick(0, 1, rng.Uint32())
		length = pick(0, 64, 512, 1024, 4096)
	} else {
		cmd.Opcode = nvme.Opcode(pick(uint32(nvme.Read), uint32(nvme.Write), uint32(nvme.Compare), uint32(nvme.WriteZeroes),
			uint32(nvme.DatasetManagement), uint32(nvme.Flush), uint32(nvme.Fabrics), rng.Uint32()&0xFF))
		n := 1 + rng.Uint32N(16)
		cmd.SetBlocks(uint64(rng.Uint32N(2000)), n)
		length = n << 9
		switch cmd.Opcode {
		case nvme.Write, nvme.Compare:
			ops = mrpool.ReadSource
		case nvme.DatasetManagement:
			ops, cmd.CDW10, length = mrpool.ReadSource, n-1, n*nvme.RangeLen
			cmd.CDW11 = nvme.DSMDeallocate
		case nvme.Flush, nvme.WriteZeroes:
			length = 0
		}
	}
	cmd.SGL = nvme.Descriptor{Type: nvme.SGLKeyed}
	extra := 0
	switch {
	case rng.IntN(3) == 0:
		cmd.SGL = nvme.Descriptor{Len: length, Type: nvme.SGLOffset}
		extra = int(min(length, 4096))
	case length > 0:
		if d, err := c.expose(length, ops); err == nil {
			cmd.SGL = d
		}
	}
	offered := cmd.SGL.Key
	for range rng.IntN(3) {
		switch rng.IntN(12) {
		case 0:
			cmd.SGL.Type = uint8(pick(0, 1, 0x10, 0x20, 0x31, 0x40, 0x41, 0x4F, 0x5F, rng.Uint32()))
		case 1:
			cmd.SGL.Len = pick(0, 1, length+1, length-1, 2*length, 0xFFFFFF, 0xFFFFFFFF, rng.Uint32())
		case 2:
			cmd.SGL.Addr += uint64(pick(1, 0xFFFFFFFF, 4096, length))
		case 3:
			cmd.SGL.Addr = []uint64{0, ^uint64(0), ^uint64(0) - uint64(length), rng.Uint64()}[rng.IntN(4)]
		case 4:
			cmd.SGL.Key ^= pick(1, 0x100, 0xFF, rng.Uint32())
		case 5:
			cmd.Flags = uint8(pick(0, 0x41, 0x80, 0xC0, rng.Uint32()))
		case 6:
			cmd.NSID = pick(0, 2, 3, nvme.AllNamespaces, rng.Uint32())
		case 7:
			cmd.CDW12 = pick(0, 0xFFFF, nvme.FUA, 0xFFFFFFFF, rng.Uint32())
		case 8:
			cmd.CDW10, cmd.CDW11 = rng.Uint32(), pick(0, 1, 0xFFFFFFFF, rng.Uint32())
		case 9:
			cmd.CID = uint16(rng.Uint32())
		case 10:
			cmd.Opcode = nvme.Opcode(rng.Uint32())
		case 11:
			extra = rng.IntN(4097)
		}
	}
	for i := range c.capsule[nvme.CommandLen:] {
		if i%64 == 0 {
			c.capsule[nvme.CommandLen+i] = byte(rng.Uint32())
		}
	}
	if cmd.SGL.Type == nvme.SGLKeyedInvalidate && (!c.offered || cmd.SGL.Key != offered) && c.l.h.r.real {
		// Who has a window invalidated that isn't valid crashes his own kernel on rxe, and on
		// siw loses his memory's registration: that is the tests' machine as well.
		cmd.SGL.Type = nvme.SGLKeyed
	}
	cmd.Encode(c.capsule)
	n := nvme.CommandLen + extra
	switch rng.IntN(300) {
	case 0:
		n = rng.IntN(nvme.CommandLen)
	case 1:
		n = nvme.CommandLen + 4096 + 1 + rng.IntN(4000)
	}
	if c.l.qid == 0 && rng.IntN(20) > 0 {
		n = nvme.CommandLen // more doesn't fit there, and ends the connection
	}
	return n
}
