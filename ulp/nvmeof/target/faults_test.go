package target_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSteppedFaults: both ends on devices that fail now and then, from many seeds. What was
// answered with success is right, and nothing is left of what failed.
func TestSteppedFaults(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel", "mlx5-kernel"} {
		t.Run(profile, func(t *testing.T) {
			reconnects := uint64(0)
			for seed := range uint64(12) {
				w := newWorld(t, profile, sim.Config{Seed: seed, Faults: sim.Faults{Chances: sim.Chances{Error: 0.003, Loss: 0.002, Death: 0.001, Delay: 0.01}}})
				c, err := host.Connect(context.Background(), "target:4420", steppedNQN, host.Config{
					Device: w.host, HostID: [16]byte{1}, Depth: 4, Queues: 2, Step: w.move, Now: w.now,
					ReconnectDelay: 10 * time.Millisecond,
				})
				if err != nil {
					continue // that can happen as well
				}
				ns, err := c.Namespace(context.Background(), 1)
				if err != nil {
					assert.NoError(t, c.Close())
					continue
				}
				m, err := c.NewRegion(64 << 10)
				require.NoError(t, err)
				for k := range 40 {
					n := uint32(512 << (k % 8))
					want := bytes.Repeat([]byte{byte(k + 1)}, int(n))
					copy(m.Bytes(), want)
					if ns.Write(context.Background(), uint64(k), m.Piece(0, n)) != nil {
						break
					}
					clear(m.Bytes())
					if ns.Read(context.Background(), uint64(k), m.Piece(0, n)) != nil {
						break
					}
					require.Equal(t, want, m.Bytes()[:n], "seed %d", seed)
				}
				reconnects += c.Stats().Reconnects
				assert.NoError(t, c.Close())
				assert.NoError(t, m.Close())
				for end := w.now().Add(time.Minute); w.target.Stats().Queues > 0 && w.now().Before(end); {
					require.NoError(t, w.move())
				}
				assert.Zero(t, w.target.Stats().Queues, "seed %d", seed)
				assert.Zero(t, w.target.Stats().Controllers, "seed %d", seed)
			}
			assert.Positive(t, reconnects)
		})
	}
}
