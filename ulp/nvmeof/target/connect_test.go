package target

import (
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConnectTwiceAtOnce: of several Connects on one connection, each sent before the others
// are answered, one succeeds; and no controller is left of the others.
func TestConnectTwiceAtOnce(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{})
			h := r.host()
			l, err := h.dial(0, dialConfig{})
			require.NoError(t, err)
			const n = 8
			for _, c := range l.calls[:n] {
				copy(c.data, h.connectData(nvme.AnyController, testNQN))
				cmd := (&nvme.Connect{SQSize: 31}).Command()
				cmd.SGL, err = c.expose(nvme.ConnectDataLen, mrpool.ReadSource)
				require.NoError(t, err)
				require.NoError(t, c.start(&cmd, 0))
			}
			succeeded := 0
			for _, c := range l.calls[:n] {
				e, err := c.wait()
				require.NoError(t, err)
				if e.Status == nvme.Success {
					succeeded++
				} else {
					assert.Equal(t, nvme.CommandSequence|nvme.DNR, e.Status)
				}
			}
			assert.Equal(t, 1, succeeded)
			assert.Equal(t, 1, r.Stats().Controllers)
			l.close()
			require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)
			assert.Zero(t, r.Stats().Controllers)
		})
	}
}

// TestJoinTwiceAtOnce: an I/O queue that is sent into two controllers at once is in one, and
// leaves its place in that when it ends.
func TestJoinTwiceAtOnce(t *testing.T) {
	r := newRig(t, "rxe", Config{})
	h := r.host()
	a, b := h.session(0, dialConfig{}), h.session(0, dialConfig{})
	l, err := h.dial(1, dialConfig{})
	require.NoError(t, err)
	succeeded := 0
	for i, s := range []*session{a, b} {
		c := l.calls[i]
		copy(c.data, h.connectData(s.cntlid, testNQN))
		cmd := (&nvme.Connect{QueueID: 1, SQSize: 31}).Command()
		cmd.SGL, err = c.expose(nvme.ConnectDataLen, mrpool.ReadSource)
		require.NoError(t, err)
		require.NoError(t, c.start(&cmd, 0))
	}
	for _, c := range l.calls[:2] {
		e, err := c.wait()
		require.NoError(t, err)
		if e.Status == nvme.Success {
			succeeded++
		}
	}
	assert.Equal(t, 1, succeeded)
	l.close()
	require.Eventually(t, func() bool { return r.Stats().Queues == 2 }, 20*time.Second, time.Millisecond)
	for _, s := range []*session{a, b} {
		_, e, err := s.join(1, dialConfig{})
		require.NoError(t, err)
		assert.Equal(t, nvme.Success, e.Status, "queue 1 is free")
	}
}

// TestDiscoveredAdminQueue: what the discovery log says of admin queues isn't about I/O
// queues: 32 entries at least (NVMe-oF 1.1, 5.3), and as many as it says can be had.
func TestDiscoveredAdminQueue(t *testing.T) {
	for _, depth := range []int{8, 1024} {
		r := newRig(t, "rxe", Config{QueueDepth: depth})
		h := r.host()
		s := h.admin(nvme.DiscoveryNQN, 0)
		b := make([]byte, nvme.DiscoveryHeaderLen+nvme.DiscoveryEntryLen)
		s.must(s.admin, (&nvme.LogRequest{Page: nvme.LogDiscovery, Length: uint64(len(b))}).Command(0), nvme.TargetToHost, b)
		var e nvme.DiscoveryEntry
		require.NoError(t, e.Decode(b[nvme.DiscoveryHeaderLen:]))
		assert.GreaterOrEqual(t, e.AdminQueueSize, uint16(32))
		_, err := h.dial(0, dialConfig{entries: int(e.AdminQueueSize), room: page})
		assert.NoError(t, err, "an admin queue of %d entries", e.AdminQueueSize)
	}
}

// TestConnectIsASignOfLife: there are hosts that send their first keep alive when all I/O
// queues are connected, however long that takes.
func TestConnectIsASignOfLife(t *testing.T) {
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(0, clock.Load()) }
	r := newRig(t, "rxe", Config{Now: now})
	s := r.host().admin(testNQN, time.Second)
	for qid := range uint16(4) {
		clock.Add(int64(700 * time.Millisecond))
		_, e, err := s.join(qid+1, dialConfig{})
		require.NoError(t, err)
		require.Equal(t, nvme.Success, e.Status)
		r.expire(now())
	}
	assert.Equal(t, 1, r.Stats().Controllers)
	s.must(s.admin, nvme.Command{Opcode: nvme.KeepAlive}, nvme.NoData, nil)
}
