package target

import (
	"bytes"
	"testing"
	"time"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sinkKey is the key that the host of an I/O queue sees in READ requests.
func (r *rig) sinkKey() (q *queue, key transport.RKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.queues {
		if x.id == 1 {
			q = x
		}
	}
	return q, transport.RKey(q.arena.pool.PD().Regions().View().Lookup(q.region.ID()).LKey)
}

// One host writes to its disk and goes. Another, that may not see that disk, comes within
// spareLife, and gets the arena. On siw nothing checks the right to READ, the sink's key is
// that of the whole region and is seen by the host in each READ request, and the passive
// side answers READs whatever it was accepted with: it must find nothing of the first host's.
func TestNextHostSeesNothingOfTheLast(t *testing.T) {
	const nqnA, nqnB = "nqn.2014-08.org.example:a", "nqn.2014-08.org.example:b"
	r := newRig(t, "siw", Config{Subsystems: []Subsystem{
		{NQN: testNQN, Hosts: []string{nqnA, nqnB}, Namespaces: []Namespace{{ID: 1, Backend: memory512(t, 4<<20)}, {ID: 2, Backend: memory4096(t, 4<<20)}}},
	}})
	secret := bytes.Repeat([]byte("the secret of host A, who has gone"), 2000)[:64<<10]
	a := r.host()
	a.nqn = nqnA
	s := a.session(1, dialConfig{})
	s.must(s.io[0], blocks(nvme.Write, 0, 128), nvme.HostToTarget, secret)
	s.io[0].close()
	s.admin.close()
	require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)

	b := r.host()
	b.nqn = nqnB
	s = b.session(1, dialConfig{})
	l := s.io[0]
	// What host B sees in the READ request for its own data: key and address of the sink.
	s.must(l, blocks(nvme.Write, 1024, 1), nvme.HostToTarget, make([]byte, 512))
	q, seen := r.sinkKey()
	sink := q.region.Addr() + q.base
	got := make([]byte, 0, 64<<10)
	c := <-l.free
	for off := 0; off < 64<<10; off += 4096 {
		err := l.ep.Read(timeout(t), []transport.Piece{l.region.Piece(c.dataAt, 4096)},
			transport.Remote{Addr: sink + uint64(off), Len: 4096, Key: seen})
		if err != nil {
			t.Log("READ refused:", err)
			return
		}
		got = append(got, c.data[:4096]...)
	}
	l.free <- c
	require.False(t, bytes.Contains(got, []byte("the secret of host A")), "host B has READ: %q...", got[4096:4096+60])
}

// A hostile host on siw kills the registration of its queue's region by a SEND_WITH_INV, as
// the README says it can, and goes. That costs nobody but itself: the next host is served.
func TestKilledRegionIsNotTheNextHosts(t *testing.T) {
	r := newRig(t, "siw", Config{})
	s := r.host().session(1, dialConfig{})
	l := s.io[0]
	s.must(l, blocks(nvme.Write, 1024, 1), nvme.HostToTarget, make([]byte, 512)) // shows the key
	_, seen := r.sinkKey()
	c := <-l.free
	var kill rw.Context
	require.NoError(t, l.ep.PrepareSend(&kill, rw.Message{Local: []transport.Piece{l.region.Piece(c.at, nvme.CommandLen)}, Invalidate: seen, HasInvalidate: true}))
	l.ep.Do(timeout(t), &kill)
	l.free <- c
	l.close()
	s.admin.close()
	require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)

	h := r.host()
	failed := 0
	for range 5 { // others come, each within a second
		s := h.admin(testNQN, 0)
		l, _, err := s.join(1, dialConfig{})
		if err == nil {
			_, err = l.do(blocks(nvme.Write, 0, 1), nvme.HostToTarget, make([]byte, 512))
		}
		if err != nil {
			failed++
			t.Log(err)
		}
		if l != nil {
			l.close()
		}
		s.admin.close()
		require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)
	}
	assert.Zero(t, failed, "of 5 hosts that did nothing wrong couldn't work")
}
