package host_test

import (
	"bytes"
	"fmt"
	"testing"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExtremes: the smallest and largest of what can be configured, at both ends.
func TestExtremes(t *testing.T) {
	for _, profile := range profiles {
		for i, test := range []struct {
			host   host.Config
			target target.Config
		}{
			{host.Config{Depth: 1}, target.Config{QueueDepth: 2, IOQueues: 1, Connections: 2, Controllers: 1}},
			{host.Config{Depth: 1024, Queues: 3}, target.Config{QueueDepth: 4096, IOQueues: 2, QueueMemory: 16 << 20}},
			{host.Config{MaxTransfer: 16<<20 - 4096}, target.Config{MaxTransfer: 8 << 20}},
			{host.Config{MaxTransfer: 8 << 20}, target.Config{MaxTransfer: 8192, InCapsule: -1}},
			{host.Config{MaxTransfer: 4096}, target.Config{MaxTransfer: 8 << 20, InCapsule: 1 << 20, QueueDepth: 8}},
			{host.Config{MaxTransfer: 5000}, target.Config{InCapsule: 1}},
		} {
			t.Run(fmt.Sprint(profile, "/", i), func(t *testing.T) {
				r := newRig(t, simulated(t, profile), test.target)
				c := r.connect(test.host)
				for _, id := range []uint32{1, 7} {
					ns, err := c.Namespace(timeout(t), id)
					require.NoError(t, err)
					const size = 4 << 20
					m := region(t, c, size+4096)
					at := ns.BlockSize() % 4096 // not on a page where that can be
					b := m.Bytes()[at : at+size]
					for i := range b {
						b[i] = byte(i ^ i>>8 ^ i>>16)
					}
					want := bytes.Clone(b)
					require.NoError(t, ns.Write(timeout(t), 0, m.Piece(uint64(at), size)))
					clear(b)
					require.NoError(t, ns.Read(timeout(t), 0, m.Piece(uint64(at), size)))
					assert.True(t, bytes.Equal(want, b))
					require.NoError(t, ns.Compare(timeout(t), 0, m.Piece(uint64(at), size)))
					require.NoError(t, ns.Discard(timeout(t), nvmeRanges(256)...))
					got := make([]byte, 3*4096)
					_, err = ns.ReadAt(got, 100)
					require.NoError(t, err)
					assert.True(t, bytes.Equal(make([]byte, len(got)), got), "discarded memory reads as zeros")
				}
			})
		}
	}
}

// nvmeRanges are n ranges of 8 blocks, one behind the other.
func nvmeRanges(n int) (all []nvme.Range) {
	for i := range n {
		all = append(all, nvme.Range{LBA: uint64(8 * i), Blocks: 8})
	}
	return all
}

// TestRegionWithoutWindows: what would fail on some devices, at the first command, is refused
// on all of them.
func TestRegionWithoutWindows(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c := r.connect(host.Config{})
		m, err := r.dev.NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
		require.NoError(t, err)
		assert.ErrorIs(t, c.AddRegion(m), transport.ErrAccess)
		assert.NoError(t, m.Close(), "nothing keeps it")
	})
}
