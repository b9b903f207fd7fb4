package host

import (
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSlots(t *testing.T) {
	for _, n := range []int{1, 2, 31, 32, 33, maxDepth} {
		s := newSlots(n)
		_, ok := s.answer(0)
		assert.False(t, ok, "nothing is under way")
		seen := map[uint16]bool{}
		for i := range n {
			cid := s.begin(i)
			assert.False(t, seen[cid])
			seen[cid] = true
		}
		for cid := range 1 << 16 {
			i, ok := s.answer(uint16(cid))
			assert.Equal(t, seen[uint16(cid)], ok)
			if ok {
				assert.Less(t, i, n)
			}
			_, ok = s.answer(uint16(cid))
			assert.False(t, ok, "twice")
		}
	}
}

// TestSlotsAgain: an answer to an earlier use isn't taken for one to the next, for as
// many uses as CIDs last; and no CID is the one that means none.
func TestSlotsAgain(t *testing.T) {
	for _, n := range []int{1, 31, maxDepth} {
		s := newSlots(n)
		i := n - 1
		last := s.begin(i)
		for range 100000 {
			assert.True(t, s.cancel(i))
			assert.False(t, s.cancel(i))
			cid := s.begin(i)
			require.NotEqual(t, last, cid)
			require.NotEqual(t, uint16(0xFFFF), cid)
			_, ok := s.answer(last)
			require.False(t, ok)
			last = cid
		}
	}
}

// TestReach: for any list, the commands that it is split into cover it all, in order,
// in whole blocks.
func TestReach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := uint64(1) << rapid.SampledFrom([]int{9, 12}).Draw(t, "shift")
		r := reach{most: 4096 * rapid.Uint64Range(1, 64).Draw(t, "most"), fast: rapid.Bool().Draw(t, "fast"),
			pages: rapid.IntRange(2, 64).Draw(t, "pages"), shift: 12, gaps: rapid.Bool().Draw(t, "gaps")}
		var list []transport.Piece
		var bytes []uint64 // the address of each block's start and such, byte by byte would be slow
		at := uint64(1 << 20)
		for range rapid.IntRange(1, 6).Draw(t, "pieces") {
			at += 512 * rapid.Uint64Range(0, 9).Draw(t, "gap")
			n := block * rapid.Uint64Range(1, 40).Draw(t, "blocks")
			list = append(list, transport.Piece{Addr: at, Len: uint32(n), Region: 1})
			for k := uint64(0); k < n; k += 512 {
				bytes = append(bytes, at+k)
			}
			at += n
		}
		var got []uint64
		left := length(list)
		for from := (transport.Cursor{}); left > 0; {
			n, next := r.covers(list, from, block)
			if n == 0 {
				// Only where registrations end within a block: gaps on page borders.
				require.True(t, r.fast)
				return
			}
			require.Zero(t, n%block)
			require.LessOrEqual(t, n, r.most)
			part := slice(nil, list, from, n)
			require.Equal(t, n, length(part))
			for _, p := range part {
				for k := uint64(0); k < uint64(p.Len); k += 512 {
					got = append(got, p.Addr+k)
				}
			}
			from, left = next, left-n
		}
		require.Equal(t, bytes, got)
	})
}
