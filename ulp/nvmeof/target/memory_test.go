package target

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMemory takes and gives at random: parts don't overlap, lie within, begin on pages;
// and when all are back, there is one again.
func TestMemory(t *testing.T) {
	for _, size := range []int{page, 2 * page, 1 << 20, 8 << 20} {
		m := newMemory(size)
		require.Equal(t, size, m.largest())
		owner := make([]int, size/page)
		parts := map[int]part{}
		rng := rand.New(rand.NewPCG(1, uint64(size)))
		for i := 1; i < 5000; i++ {
			if rng.IntN(2) == 0 {
				n := uint32(1 + rng.IntN(size>>rng.IntN(8)))
				p, ok := m.take(n)
				if !ok {
					continue
				}
				require.Zero(t, p.at%page)
				require.Equal(t, n, p.size)
				require.LessOrEqual(t, int(p.at)+int(n), size)
				for j := p.at / page; j <= (p.at+n-1)/page; j++ {
					require.Zero(t, owner[j], "page %d handed out twice", j)
					owner[j] = i
				}
				parts[i] = p
			} else {
				for k, p := range parts {
					for j := p.at / page; j <= (p.at+p.size-1)/page; j++ {
						require.Equal(t, k, owner[j])
						owner[j] = 0
					}
					m.give(p)
					delete(parts, k)
					break
				}
			}
		}
		for _, p := range parts {
			m.give(p)
		}
		p, ok := m.take(uint32(size))
		require.True(t, ok, "it has not grown together again")
		_, ok = m.take(1)
		assert.False(t, ok)
		m.give(p)
		_, ok = m.take(uint32(size) + 1)
		assert.False(t, ok)
		_, ok = m.take(0)
		assert.False(t, ok)
	}
}

// TestMemoryAllocations: handing out costs none.
func TestMemoryAllocations(t *testing.T) {
	m := newMemory(1 << 20)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		a, _ := m.take(5000)
		b, _ := m.take(512)
		m.give(a)
		m.give(b)
	}))
}
