package host_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/require"
)

// TestTargetGoesWhileConnecting: at any moment of making a connection the target may go.
func TestTargetGoesWhileConnecting(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, simulated(t, profile), target.Config{})
			for range rounds(t, "HOST_KILLS", 5) {
				d := time.Duration(rand.IntN(12000)) * time.Microsecond
				gone := make(chan struct{})
				go func() {
					time.Sleep(d)
					r.shutdown()
					close(gone)
				}()
				c, err := r.dial(host.Config{Queues: 8, Depth: 4, ConnectTimeout: 2 * time.Second})
				<-gone
				if err == nil {
					require.NoError(t, c.Close())
				}
				r.serve()
			}
		})
	}
}
