package host_test

import (
	"testing"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSmallDevice: a target says what the queues of its device hold, not what it would
// like; a host that asks for more gets that.
func TestSmallDevice(t *testing.T) {
	at := place{"small", false, func(t testing.TB) (transport.Device, transport.Device, string) {
		fabric := sim.New(sim.Config{})
		large, _ := sim.LookupProfile("mlx5-kernel")
		small := large
		small.Caps.MaxRecvWR = 64
		targetDev, err := fabric.NewDevice(small, "target")
		require.NoError(t, err)
		hostDev, err := fabric.NewDevice(large, "host")
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, targetDev.Close())
			assert.NoError(t, hostDev.Close())
			assert.NoError(t, fabric.Err())
			assert.NoError(t, fabric.Close())
		})
		return targetDev, hostDev, "target:4420"
	}}
	r := newRig(t, at, target.Config{QueueDepth: 1024})
	c := r.connect(host.Config{Depth: 512})
	assert.Equal(t, uint16(31), c.Capabilities().MaxQueueEntries())
	assert.Equal(t, uint16(32), c.Identify().MaxCommands)
	_, depth := c.Queues()
	assert.Equal(t, 31, depth)
	ns, err := c.Namespace(timeout(t), 1)
	require.NoError(t, err)
	exercise(t, c, ns, 0, 1, 10)
}
