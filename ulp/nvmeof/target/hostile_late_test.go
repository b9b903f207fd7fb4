package target

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"rdmarw/ulp/nvmeof/backend"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lateBackend ends requests some time later, in another goroutine; some of them fail.
type lateBackend struct {
	backend.Backend
	wg sync.WaitGroup
}

func (b *lateBackend) Submit(r *backend.Request) {
	b.wg.Go(func() {
		if d := rand.IntN(300); d > 50 {
			time.Sleep(time.Duration(d) * time.Microsecond)
		}
		if rand.IntN(50) == 0 {
			r.Done(r, backend.ErrRead)
			return
		}
		b.Backend.Submit(r)
	})
}

// TestHostileLate: several hosts with spoiled capsules at a time, on a backend that is slow:
// connections end with requests under way.
func TestHostileLate(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			late := &lateBackend{Backend: &strictBackend{Backend: memory512(t, 1<<20), t: t}}
			t.Cleanup(late.wg.Wait)
			r := newRig(t, profile, Config{
				MaxTransfer: 64 << 10, QueueMemory: 128 << 10,
				Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: late}, {ID: 2, Backend: memory4096(t, 1<<20)}}}},
			})
			var wg sync.WaitGroup
			attackers := make([]*attacker, 3)
			for i := range attackers {
				attackers[i] = &attacker{t: t, h: r.host(), rng: rand.New(rand.NewPCG(uint64(i), uint64(len(profile))))}
				wg.Go(func() { attackers[i].attack(hostileCapsules(t) / 8) })
			}
			wg.Wait()
			for i, a := range attackers {
				assert.Positive(t, a.ended, fmt.Sprint("attacker ", i))
			}
			require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)
			assert.Zero(t, r.Stats().Controllers)
		})
	}
}
