package host_test

import (
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
)

// TestTimesThatCantBe: KATO has 32 bits of milliseconds; and where negative means nothing,
// it is refused.
func TestTimesThatCantBe(t *testing.T) {
	r := newRig(t, simulated(t, "mlx5-kernel"), target.Config{})
	for _, cfg := range []host.Config{
		{KeepAlive: (1<<32 + 1) * time.Millisecond}, {CommandTimeout: -1}, {ConnectTimeout: -1}, {ReconnectDelay: -1}, {CancelGrace: -1},
	} {
		_, err := r.dial(cfg)
		assert.ErrorIs(t, err, transport.ErrInvalid, "%+v", cfg)
	}
}
