package target

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file are what other targets got wrong when Linux's host first came to
// them.

// TestTrapReceivesBeforeAccept: a host may fill its whole queue as soon as it hears of the
// acceptance, and whenever it has seen a response.
func TestTrapReceivesBeforeAccept(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			h := newRig(t, profile, Config{}).host()
			l, err := h.dial(0, dialConfig{})
			require.NoError(t, err)
			assert.Equal(t, uint16(32), l.accept.RecvQueueSize)
			for range 10 {
				for _, c := range l.calls {
					require.NoError(t, c.start(&nvme.Command{Opcode: nvme.KeepAlive, Flags: nvme.FlagSGL, SGL: nvme.Descriptor{Type: nvme.SGLKeyed}}, 0))
				}
				for _, c := range l.calls {
					e, err := c.wait()
					require.NoError(t, err)
					require.Equal(t, nvme.CommandSequence|nvme.DNR, e.Status, "Connect comes first")
				}
			}
		})
	}
}

// TestTrapFlagsAndEmptySGL: commands carry 0x40 and nothing else in their flags, and a
// zero-length keyed descriptor where there is no data.
func TestTrapFlagsAndEmptySGL(t *testing.T) {
	s := newRig(t, "rxe", Config{}).host().session(1, dialConfig{})
	for _, l := range []*line{s.admin, s.io[0]} {
		op := nvme.KeepAlive
		if l != s.admin {
			op = nvme.Flush
		}
		for _, test := range []struct {
			flags, sgl uint8
			want       nvme.Status
		}{
			{0x40, nvme.SGLKeyed, nvme.Success},
			{0x40, nvme.SGLKeyedInvalidate, nvme.Success}, // nothing to invalidate
			{0x40, 0, nvme.SGLTypeInvalid | nvme.DNR},
			{0x00, nvme.SGLKeyed, nvme.InvalidField | nvme.DNR},
			{0x41, nvme.SGLKeyed, nvme.InvalidField | nvme.DNR},
			{0x80, nvme.SGLKeyed, nvme.InvalidField | nvme.DNR},
		} {
			c := <-l.free
			cmd := nvme.Command{Opcode: op, Flags: test.flags, NSID: 1, SGL: nvme.Descriptor{Type: test.sgl}}
			require.NoError(t, c.start(&cmd, 0))
			e, err := c.wait()
			require.NoError(t, err)
			assert.Equal(t, test.want, e.Status, "%+v", test)
			assert.Equal(t, c.cid, e.CID)
			assert.Equal(t, l.qid, e.SQID)
			l.free <- c
		}
	}
}

// TestTrapAcceptPrivateData: an I/O queue's acceptance has it too. (line.accept is decoded
// of what came; without it dial fails.)
func TestTrapAcceptPrivateData(t *testing.T) {
	s := newRig(t, "siw", Config{}).host().session(2, dialConfig{entries: 16})
	for _, l := range s.io {
		assert.Equal(t, uint16(16), l.accept.RecvQueueSize)
	}
}

// TestTrapQueuesPromised: what Set Features promises can be connected, and no more.
func TestTrapQueuesPromised(t *testing.T) {
	s := newRig(t, "rxe", Config{IOQueues: 3}).host().session(0, dialConfig{})
	e := s.must(s.admin, nvme.Command{Opcode: nvme.SetFeatures, CDW10: uint32(nvme.FeatQueues), CDW11: nvme.Queues(64)}, nvme.NoData, nil)
	require.Equal(t, 3, nvme.QueueCount(uint32(e.Result)))
	for qid := range uint16(3) {
		_, e, err := s.join(qid+1, dialConfig{})
		require.NoError(t, err)
		assert.Equal(t, nvme.Success, e.Status)
	}
	_, _, err := s.join(4, dialConfig{})
	var rejected *transport.RejectedError
	require.ErrorAs(t, err, &rejected)
	var why nvme.ConnReject
	require.NoError(t, why.Decode(rejected.PrivateData))
	assert.Equal(t, nvme.RejectQueueID, why.Reason)
}

// TestTrapKeepAlive: it is answered, it counts, other commands count as well; and a host
// that is silent loses its controller, and nobody else does.
func TestTrapKeepAlive(t *testing.T) {
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(0, clock.Load()) }
	r := newRig(t, "rxe", Config{Now: now})
	other := r.host().session(1, dialConfig{})
	s := r.host().admin(testNQN, time.Second)
	l, e, err := s.join(1, dialConfig{})
	require.NoError(t, err)
	require.Equal(t, nvme.Success, e.Status)
	for range 3 {
		clock.Add(int64(700 * time.Millisecond))
		s.must(s.admin, nvme.Command{Opcode: nvme.KeepAlive}, nvme.NoData, nil)
		r.expire(now())
		clock.Add(int64(700 * time.Millisecond))
		s.must(l, blocks(nvme.Read, 0, 1), nvme.TargetToHost, make([]byte, 512))
		r.expire(now())
	}
	assert.Equal(t, 2, r.Stats().Controllers)
	clock.Add(int64(time.Second + 1))
	for _, x := range []*line{s.admin, l} {
		select {
		case <-x.ep.Conn().Done():
		case <-time.After(20 * time.Second):
			t.Fatal("it is still there")
		}
	}
	other.must(other.io[0], blocks(nvme.Read, 0, 1), nvme.TargetToHost, make([]byte, 512))
	require.Eventually(t, func() bool { return r.Stats().Controllers == 1 }, 20*time.Second, time.Millisecond)
}

// TestTrapLogLength: NUMD has 32 bits, in two halves, and one more is added: it never
// becomes zero, and nothing is written behind the host's buffer.
func TestTrapLogLength(t *testing.T) {
	s := newRig(t, "rxe", Config{}).host().session(0, dialConfig{})
	for _, cdw := range [][2]uint32{{0xFFFF0000, 0xFFFF}, {0, 1}, {0x00800000, 0}} {
		c := <-s.admin.free
		for i := range c.data {
			c.data[i] = 0xEE
		}
		cmd := nvme.Command{Opcode: nvme.GetLogPage, Flags: nvme.FlagSGL, NSID: nvme.AllNamespaces, CDW10: cdw[0] | uint32(nvme.LogHealth), CDW11: cdw[1]}
		var err error
		cmd.SGL, err = c.expose(512, mrpool.WriteSink)
		require.NoError(t, err)
		require.NoError(t, c.start(&cmd, 0))
		e, err := c.wait()
		require.NoError(t, err)
		assert.Equal(t, nvme.SGLLengthInvalid|nvme.DNR, e.Status)
		assert.Equal(t, len(c.data), bytes.Count(c.data, []byte{0xEE}))
		s.admin.free <- c
	}
	page := make([]byte, nvme.HealthLen)
	s.must(s.admin, (&nvme.LogRequest{Page: nvme.LogHealth, Length: nvme.HealthLen}).Command(0), nvme.TargetToHost, page)
}

// TestTrapReset: CC.EN=0 leaves the queues where they are, answers CSTS, refuses I/O; and a
// fresh Connect works while the old queues are still there.
func TestTrapReset(t *testing.T) {
	r := newRig(t, "rxe", Config{})
	h := r.host()
	s := h.session(1, dialConfig{})
	s.set(nvme.CCEntrySizes)
	assert.Zero(t, s.get(nvme.PropCSTS, false), "not ready")
	e, err := s.io[0].do(blocks(nvme.Read, 0, 1), nvme.TargetToHost, make([]byte, 512))
	require.NoError(t, err)
	assert.Equal(t, nvme.CommandSequence|nvme.DNR, e.Status)
	s.must(s.admin, nvme.Command{Opcode: nvme.KeepAlive}, nvme.NoData, nil)
	fresh := h.session(1, dialConfig{})
	assert.NotEqual(t, s.cntlid, fresh.cntlid)
	fresh.must(fresh.io[0], blocks(nvme.Read, 0, 1), nvme.TargetToHost, make([]byte, 512))
	s.admin.close()
	select {
	case <-s.io[0].ep.Conn().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("an I/O queue outlives its admin queue")
	}
	fresh.must(fresh.io[0], blocks(nvme.Read, 0, 1), nvme.TargetToHost, make([]byte, 512))
}

// TestTrapShutdownStatus: CSTS.SHST says that the shutdown is complete, or Linux says
// "Device shutdown incomplete; abort shutdown".
func TestTrapShutdownStatus(t *testing.T) {
	s := newRig(t, "rxe", Config{}).host().session(0, dialConfig{})
	s.set(nvme.CCEntrySizes | nvme.CCEnable | nvme.CCShutdownNormal)
	assert.Equal(t, nvme.CSTSReady|nvme.CSTSShutdownComplete, nvme.ControllerStatus(s.get(nvme.PropCSTS, false)))
}

// TestTrapUnknownPages: Invalid Field rather than success, for log pages and features that
// there aren't, and for features with a buffer.
func TestTrapUnknownPages(t *testing.T) {
	s := newRig(t, "rxe", Config{}).host().session(0, dialConfig{})
	for _, page := range []nvme.LogPage{0, nvme.LogChangedNS, 0x0C, nvme.LogDiscovery, 0xC0} {
		e, err := s.admin.do((&nvme.LogRequest{Page: page, Length: 512}).Command(0), nvme.TargetToHost, make([]byte, 512))
		require.NoError(t, err)
		assert.Equal(t, nvme.InvalidField|nvme.DNR, e.Status, page)
	}
	e, err := s.admin.do(nvme.Command{Opcode: nvme.GetFeatures, CDW10: uint32(nvme.FeatHostID)}, nvme.TargetToHost, make([]byte, 16))
	require.NoError(t, err)
	assert.Equal(t, nvme.InvalidField|nvme.DNR, e.Status)
}

// TestTrapZeroBased: what is zero-based is, in the private data, in Connect, and in NLB.
func TestTrapZeroBased(t *testing.T) {
	r := newRig(t, "rxe", Config{QueueDepth: 16})
	h := r.host()
	for _, test := range []struct {
		hsqsize uint16
		ok      bool
	}{{0, false}, {1, true}, {15, true}, {16, false}} {
		_, err := h.dial(1, dialConfig{entries: 16, request: func(q *nvme.ConnRequest) { q.SendQueueSize = test.hsqsize }})
		assert.Equal(t, test.ok, err == nil, "hsqsize %d: %v", test.hsqsize, err)
	}
	s := h.session(0, dialConfig{})
	assert.Equal(t, uint16(15), nvme.Capabilities(s.get(nvme.PropCAP, true)).MaxQueueEntries())
	for _, test := range []struct {
		sqsize uint16
		want   nvme.Status
	}{{0, nvme.ConnectInvalidParam}, {8, nvme.ConnectInvalidParam}, {7, nvme.Success}} {
		l, err := h.dial(1, dialConfig{entries: 8})
		require.NoError(t, err)
		connect := nvme.Connect{QueueID: 1, SQSize: test.sqsize}
		e, err := l.doInline(connect.Command(), h.connectData(s.cntlid, testNQN))
		require.NoError(t, err)
		assert.Equal(t, test.want, e.Status.Code())
		if test.want == nvme.Success {
			s.must(l, blocks(nvme.Read, 0, 1), nvme.TargetToHost, make([]byte, 512))
		} else {
			assert.Equal(t, uint64(nvme.ConnectAtSQSize), e.Result)
		}
		l.close()
	}
}

// TestTrapCapsuleSize: IOCCSZ is never below what a command takes, without in-capsule data
// too; and Connect data comes by a key then.
func TestTrapCapsuleSize(t *testing.T) {
	r := newRig(t, "rxe", Config{InCapsule: -1})
	s := r.host().session(0, dialConfig{})
	b, _ := s.identify(nvme.CNSController, 0)
	var id nvme.Controller
	require.NoError(t, id.Decode(b))
	assert.Equal(t, uint32(4), id.CommandCapsule)
	assert.Zero(t, id.SGLS&nvme.SGLSOffset)
	l, err := s.h.dial(1, dialConfig{})
	require.NoError(t, err)
	connect := nvme.Connect{QueueID: 1, SQSize: 31}
	s.must(l, connect.Command(), nvme.HostToTarget, s.h.connectData(s.cntlid, testNQN))
	s.must(l, blocks(nvme.Write, 0, 8), nvme.HostToTarget, make([]byte, 4096))
	// A message that is longer than what was announced doesn't fit its receive.
	_, err = l.doInline(blocks(nvme.Write, 0, 8), make([]byte, 4096))
	assert.Error(t, err)
}

// TestTrapPaddedPrivateData: the CM hands over more than the host sent.
func TestTrapPaddedPrivateData(t *testing.T) {
	h := newRig(t, "rxe", Config{}).host()
	private := make([]byte, 56)
	(&nvme.ConnRequest{SendQueueSize: 31, RecvQueueSize: 32}).Encode(private)
	_, err := h.dial(0, dialConfig{private: private})
	assert.NoError(t, err)
	for _, test := range []struct {
		private []byte
		want    nvme.RejectReason
	}{
		{private[:1], nvme.RejectSendQueueSize}, // padded with zeros: a queue of one entry
		{append([]byte{1, 0}, private[2:32]...), nvme.RejectRecordFormat},
		{append([]byte{0, 0, 0, 0, 0, 0}, private[6:32]...), nvme.RejectRecvQueueSize},
	} {
		_, err := h.dial(0, dialConfig{private: test.private})
		var rejected *transport.RejectedError
		require.ErrorAs(t, err, &rejected)
		var why nvme.ConnReject
		require.NoError(t, why.Decode(rejected.PrivateData))
		assert.Equal(t, test.want, why.Reason)
	}
}

// TestTrapNoReads: a host that lets nobody READ is told so at once, rather than when its
// Connect data can't be fetched.
func TestTrapNoReads(t *testing.T) {
	h := newRig(t, "rxe", Config{}).host()
	_, err := h.dial(0, dialConfig{params: transport.ConnParams{ResponderResources: -1}})
	var rejected *transport.RejectedError
	require.ErrorAs(t, err, &rejected)
	var why nvme.ConnReject
	require.NoError(t, why.Decode(rejected.PrivateData))
	assert.Equal(t, nvme.RejectIRD, why.Reason)
}

// TestTrapBogusInvalidation: the key that a command offers is invalidated, exactly when it
// is offered; an error doesn't change that.
func TestTrapBogusInvalidation(t *testing.T) {
	r := newRig(t, "rxe", Config{})
	l := r.host().session(1, dialConfig{}).io[0]
	c := <-l.free
	for _, offer := range []bool{true, false, true} {
		for _, lba := range []uint64{0, 1 << 40} {
			cmd := blocks(nvme.Read, lba, 1)
			cmd.Flags = nvme.FlagSGL
			var err error
			cmd.SGL, err = c.expose(512, mrpool.WriteSink)
			require.NoError(t, err)
			require.True(t, c.offered)
			if !offer {
				cmd.SGL.Type = nvme.SGLKeyed
			}
			require.NoError(t, c.start(&cmd, 0))
			e, err := c.wait()
			require.NoError(t, err)
			assert.Equal(t, lba != 0, e.Status != nvme.Success)
			// A command that is refused before its descriptor was looked at invalidates
			// nothing: the host does it itself then, as Linux does.
			assert.Equal(t, offer && lba == 0, c.keyDead)
		}
	}
	assert.NoError(t, l.ep.Err())
}

// TestShutdown: what is under way is completed and answered, what comes afterwards is not.
func TestShutdown(t *testing.T) {
	slow := newSlowBackend(t)
	r := newRig(t, "rxe", Config{Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: slow}}}}})
	s := r.host().session(1, dialConfig{})
	l := s.io[0]
	a, b := <-l.free, <-l.free
	cmd := blocks(nvme.Flush, 0, 1)
	cmd.Flags, cmd.SGL.Type = nvme.FlagSGL, nvme.SGLKeyed
	require.NoError(t, a.start(&cmd, 0))
	<-slow.arrived
	done := make(chan error, 1)
	go func() { done <- r.Shutdown(context.Background()) }()
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.closing
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, b.start(&cmd, 0))
	select {
	case err := <-done:
		t.Fatal("shut down with a command under way", err)
	case <-time.After(50 * time.Millisecond):
	}
	slow.release <- struct{}{}
	e, err := a.wait()
	require.NoError(t, err)
	assert.Equal(t, nvme.Success, e.Status)
	_, err = b.wait()
	assert.ErrorIs(t, err, errGone)
	require.NoError(t, <-done)
	assert.ErrorIs(t, r.Serve(context.Background(), r.dev, nil), ErrClosed)
}

// TestShutdownCutsOff: a backend that doesn't answer can't keep connections from being ended,
// but its buffers are its own until it does.
func TestShutdownCutsOff(t *testing.T) {
	slow := newSlowBackend(t)
	r := newRig(t, "rxe", Config{Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: slow}}}}})
	s := r.host().session(1, dialConfig{})
	c := <-s.io[0].free
	cmd := blocks(nvme.Flush, 0, 1)
	cmd.Flags, cmd.SGL.Type = nvme.FlagSGL, nvme.SGLKeyed
	require.NoError(t, c.start(&cmd, 0))
	<-slow.arrived
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Shutdown(ctx) }()
	_, err := c.wait()
	assert.ErrorIs(t, err, errGone)
	slow.release <- struct{}{}
	assert.ErrorIs(t, <-done, context.DeadlineExceeded)
}

// TestAbort: an asynchronous event request can be aborted; what is executed ends by itself.
func TestAbort(t *testing.T) {
	s := newRig(t, "rxe", Config{}).host().session(0, dialConfig{})
	held := <-s.admin.free
	cmd := nvme.Command{Opcode: nvme.AsyncEvent, Flags: nvme.FlagSGL, SGL: nvme.Descriptor{Type: nvme.SGLKeyed}}
	require.NoError(t, held.start(&cmd, 0))
	e := s.must(s.admin, nvme.Command{Opcode: nvme.Abort, CDW10: uint32(held.cid+1) << 16}, nvme.NoData, nil)
	assert.Equal(t, uint64(1), e.Result, "there is no such command")
	e = s.must(s.admin, nvme.Command{Opcode: nvme.Abort, CDW10: uint32(held.cid) << 16}, nvme.NoData, nil)
	assert.Zero(t, e.Result)
	e, err := held.wait()
	require.NoError(t, err)
	assert.Equal(t, nvme.AbortRequested, e.Status)
	e = s.must(s.admin, nvme.Command{Opcode: nvme.Abort, CDW10: 7<<16 | 1}, nvme.NoData, nil)
	assert.Equal(t, uint64(1), e.Result)
	// One that is still held when the connection ends goes with it.
	require.NoError(t, held.start(&cmd, 0))
	s.must(s.admin, nvme.Command{Opcode: nvme.KeepAlive}, nvme.NoData, nil)
}

// TestMemoryRunsOut: commands wait their turn for memory, and all are done.
func TestMemoryRunsOut(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{MaxTransfer: 64 << 10, QueueMemory: 128 << 10})
			l := r.host().session(1, dialConfig{room: 64 << 10}).io[0]
			for round := range 4 {
				ends := make(chan error, len(l.calls))
				for i := range l.calls {
					go func() {
						buf := bytes.Repeat([]byte{byte(i + round)}, 64<<10)
						e, err := l.do(blocks(nvme.Write, uint64(i)*128, 128), nvme.HostToTarget, buf)
						if err == nil && e.Status == nvme.Success {
							e, err = l.do(blocks(nvme.Compare, uint64(i)*128, 128), nvme.HostToTarget, buf)
						}
						if err == nil && e.Status != nvme.Success {
							err = e.Status
						}
						ends <- err
					}()
				}
				for range l.calls {
					require.NoError(t, <-ends)
				}
			}
			assert.Positive(t, r.Stats().Waits)
		})
	}
}

// TestHandshakeTimeout: who connects and says nothing is sent away.
func TestHandshakeTimeout(t *testing.T) {
	var clock atomic.Int64
	r := newRig(t, "rxe", Config{Now: func() time.Time { return time.Unix(0, clock.Load()) }})
	l, err := r.host().dial(0, dialConfig{})
	require.NoError(t, err)
	clock.Add(int64(10*time.Second + 1))
	select {
	case <-l.ep.Conn().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it is still there")
	}
	require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 10*time.Second, time.Millisecond)
}

// TestConnectionLimit: who only connects can't use up the memory; and what has ended makes
// room again.
func TestConnectionLimit(t *testing.T) {
	r := newRig(t, "rxe", Config{Connections: 3})
	h := r.host()
	lines := make([]*line, 3)
	for i := range lines {
		var err error
		lines[i], err = h.dial(0, dialConfig{})
		require.NoError(t, err)
	}
	_, err := h.dial(0, dialConfig{})
	var rejected *transport.RejectedError
	require.ErrorAs(t, err, &rejected)
	var why nvme.ConnReject
	require.NoError(t, why.Decode(rejected.PrivateData))
	assert.Equal(t, nvme.RejectNoResources, why.Reason)
	lines[0].close()
	require.Eventually(t, func() bool { return r.Stats().Queues == 2 }, 20*time.Second, time.Millisecond)
	_, err = h.dial(0, dialConfig{})
	assert.NoError(t, err)
}

// TestHostList: only hosts on the list may connect, or see the subsystem.
func TestHostList(t *testing.T) {
	b := memory512(t, 1<<20)
	r := newRig(t, "rxe", Config{Subsystems: []Subsystem{
		{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: b}}, Hosts: []string{"nqn.2014-08.org.example:friend"}},
	}})
	h := r.host()
	l, err := h.dial(0, dialConfig{})
	require.NoError(t, err)
	connect := nvme.Connect{SQSize: 31}
	e, err := l.do(connect.Command(), nvme.HostToTarget, h.connectData(nvme.AnyController, testNQN))
	require.NoError(t, err)
	assert.Equal(t, nvme.ConnectInvalidHost|nvme.DNR, e.Status)
	discover := func(h *initiator) uint64 {
		s := h.admin(nvme.DiscoveryNQN, 0)
		b := make([]byte, 1024)
		s.must(s.admin, (&nvme.LogRequest{Page: nvme.LogDiscovery, Length: 1024}).Command(0), nvme.TargetToHost, b)
		var header nvme.DiscoveryHeader
		require.NoError(t, header.Decode(b))
		if header.Records > 0 {
			b = make([]byte, 2048)
			s.must(s.admin, (&nvme.LogRequest{Page: nvme.LogDiscovery, Length: 2048}).Command(0), nvme.TargetToHost, b)
			var e nvme.DiscoveryEntry
			require.NoError(t, e.Decode(b[1024:]))
			assert.Equal(t, "target", e.Address)
			assert.Equal(t, "4420", e.Service)
			assert.Equal(t, nvme.ProviderRoCEv2, e.Provider)
		}
		return header.Records
	}
	assert.Zero(t, discover(h))
	friend := r.host()
	friend.nqn = "nqn.2014-08.org.example:friend"
	assert.Equal(t, uint64(1), discover(friend))
	friend.session(1, dialConfig{})
}
