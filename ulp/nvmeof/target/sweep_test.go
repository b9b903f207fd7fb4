package target

import (
	"fmt"
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
)

// gate is a backend that notes how many requests it gets at a time, and may be shut.
type gate struct {
	backend.Backend
	sizes []int
	shut  chan struct{} // the first ones wait for it
}

func (g *gate) Submit(r *backend.Request) { g.SubmitAll([]*backend.Request{r}) }

func (g *gate) SubmitAll(rs []*backend.Request) {
	if g.sizes = append(g.sizes, len(rs)); len(g.sizes) == 1 {
		<-g.shut
	}
	for _, r := range rs {
		g.Backend.Submit(r)
	}
}

// signals counts the signaled requests of queue pairs that WRITE: of chains of targets.
type signals struct {
	mu     sync.Mutex
	of     map[*sim.QP]int
	writes map[*sim.QP]int
}

func (s *signals) post(q *sim.QP, _ uint64, wr *transport.WR) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wr.Op == transport.OpWrite {
		s.writes[q]++
	}
	if wr.Flags&transport.Signaled != 0 {
		s.of[q]++
	}
	return nil
}

// take returns the count since the last time.
func (s *signals) take() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q, k := range s.of {
		if s.writes[q] > 0 {
			n += k
		}
	}
	clear(s.of)
	return n
}

// Commands that arrive while one is carried out are handed to the backend together, and
// answered by one chain. Large ones are not kept waiting for each other.
func TestCommandsThatComeTogetherAreAnsweredTogether(t *testing.T) {
	for _, profile := range profiles {
		for _, tt := range []struct {
			bytes uint32
			sizes []int
		}{
			{4096, []int{1, 7}},
			{16384, []int{1, 4, 3}},
			{65536, []int{1, 1, 1, 1, 1, 1, 1, 1}},
		} {
			t.Run(fmt.Sprintf("%s/%d bytes", profile, tt.bytes), func(t *testing.T) {
				count := &signals{of: make(map[*sim.QP]int), writes: make(map[*sim.QP]int)}
				g := &gate{Backend: memory512(t, 4<<20), shut: make(chan struct{})}
				r := newRigOn(t, profile, sim.Config{Faults: sim.Faults{Post: count.post}}, Config{
					Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: g}}}},
				})
				l := r.host().session(1, dialConfig{}).io[0]
				var calls [8]*call
				var sent atomic.Int32
				for i := range calls {
					calls[i] = lean(t, l, tt.bytes, mrpool.WriteSink)
					calls[i].send.OnDone = func(*rw.Context) { sent.Add(1) }
				}
				count.take()
				require.NoError(t, calls[0].sendCapsule(nvme.CommandLen))
				require.Eventually(t, func() bool { return sent.Load() == 1 }, 10*time.Second, time.Millisecond)
				time.Sleep(20 * time.Millisecond) // it is in the gate, or will find the others, too
				for _, c := range calls[1:] {
					require.NoError(t, c.sendCapsule(nvme.CommandLen))
				}
				require.Eventually(t, func() bool { return sent.Load() == 8 }, 10*time.Second, time.Millisecond)
				close(g.shut)
				for _, c := range calls {
					assert.Equal(t, nvme.Success, (<-c.answered).Status)
					c.unexpose(t)
				}
				assert.Equal(t, tt.sizes, g.sizes)
				assert.Equal(t, len(tt.sizes), count.take())
			})
		}
	}
}
