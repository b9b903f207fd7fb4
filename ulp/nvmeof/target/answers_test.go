package target

import (
	"sync"
	"testing"
	"time"

	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Responses take turns, in the order in which they were ready.
func TestResponsesTakeTurns(t *testing.T) {
	a := answers{limit: 2}
	s := make([]slot, 4)
	require.True(t, a.enter(&s[0]))
	require.True(t, a.enter(&s[1]))
	require.False(t, a.enter(&s[2]))
	require.False(t, a.enter(&s[3]))
	require.Empty(t, a.next(nil))
	a.leave()
	require.Equal(t, []*slot{&s[2]}, a.next(nil))
	a.leave()
	require.Equal(t, []*slot{&s[3]}, a.next(nil))
	a.leave()
	a.leave()
	require.Zero(t, a.out)
	require.True(t, a.enter(&s[0]))
}

// While they are held, responses gather, and come as many at a time as may be under way.
func TestResponsesGather(t *testing.T) {
	a := answers{limit: 3}
	s := make([]slot, 5)
	require.True(t, a.enter(&s[0]))
	a.hold()
	for i := range s[1:] {
		require.False(t, a.enter(&s[1+i]))
	}
	require.Equal(t, []*slot{&s[1], &s[2]}, a.next(nil))
	require.False(t, a.enter(&s[0]), "still held")
	require.Empty(t, a.next(nil), "the limit")
	for range 3 {
		a.leave()
	}
	require.Equal(t, []*slot{&s[3], &s[4], &s[0]}, a.next(nil))
	for range 3 {
		a.leave()
	}
	require.True(t, a.enter(&s[0]), "not held any more")
	require.Nil(t, a.owed.head)
}

// Of n receives, so many are left when all responses that may be under way are, that a host
// finds one for each command that it may have outstanding.
func TestResponsesLeaveReceives(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{})
			r.host().session(2, dialConfig{})
			r.Target.mu.Lock()
			defer r.Target.mu.Unlock()
			require.Len(t, r.queues, 3)
			for _, q := range r.queues {
				assert.Positive(t, q.answers.limit)
				assert.GreaterOrEqual(t, len(q.slots)-q.answers.limit, q.entries)
			}
		})
	}
}

// Many commands at a time are all answered where only one response may be under way; and a
// queue that ends with responses kept back ends.
func TestOneResponseAtATime(t *testing.T) {
	for _, profile := range append(profiles, realDevices()...) {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{})
			s := r.host().session(1, dialConfig{})
			r.Target.mu.Lock()
			for _, q := range r.queues {
				q.answers.mu.Lock()
				q.answers.limit = 1
				q.answers.mu.Unlock()
			}
			r.Target.mu.Unlock()
			var hosts sync.WaitGroup
			for i := range 16 {
				hosts.Go(func() { exercise(t, s.io[0], uint64(i)*64, 64, 1, 9, 10) })
			}
			hosts.Wait()

			var failed sync.WaitGroup
			for range 16 {
				failed.Go(func() {
					for {
						if _, err := s.io[0].do(blocks(nvme.Read, 0, 8), nvme.TargetToHost, make([]byte, 4096)); err != nil {
							return
						}
					}
				})
			}
			r.Target.mu.Lock()
			for _, q := range r.queues {
				q.fail(ErrClosed)
			}
			r.Target.mu.Unlock()
			failed.Wait()
			require.Eventually(t, func() bool { return r.Stats().Queues == 0 }, 20*time.Second, time.Millisecond)
		})
	}
}
