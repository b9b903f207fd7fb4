package host_test

import (
	"context"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// slowDevice is one on which it takes time to make connections.
type slowDevice struct{ transport.Device }

func (d slowDevice) Resolve(ctx context.Context, addr string) (transport.Conn, error) {
	time.Sleep(300 * time.Millisecond)
	return d.Device.Resolve(ctx, addr)
}

// TestSlowToConnect: keep alives go out while I/O queues are being connected: that may take
// longer than the timeout that the controller was told.
func TestSlowToConnect(t *testing.T) {
	r := newRig(t, simulated(t, "mlx5-kernel"), target.Config{})
	c, err := r.dial(host.Config{Device: slowDevice{r.dev}, Queues: 6, KeepAlive: time.Second})
	require.NoError(t, err)
	assert.Positive(t, c.Stats().KeepAlives)
	assert.NoError(t, c.Close())
}
