package target

import (
	"math"
	"testing"

	"rdmarw/ulp/nvmeof/target/internal/core"

	"github.com/stretchr/testify/assert"
)

// TestHeadGoesRound: the head of a submission queue goes from entry to entry, whatever the
// size of the queue, and after 2^32 responses too.
func TestHeadGoesRound(t *testing.T) {
	for _, entries := range []int{2, 31, 32, 100, 128} {
		q := &queue{joined: &core.Joined{Entries: entries}}
		q.association.Store(&association{})
		for _, from := range []uint64{0, math.MaxUint32 - 200} {
			q.head.Store(from)
			last := int(q.nextHead())
			for range 400 {
				head := int(q.nextHead())
				if !assert.Equal(t, (last+1)%entries, head, "%d entries", entries) {
					break
				}
				last = head
			}
		}
	}
}
