package host_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEachRequestOnce: requests that are submitted again from where they end, while the
// target goes and comes back, and then the controller is closed: each that was taken is
// given back once.
func TestEachRequestOnce(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, simulated(t, profile), target.Config{})
			for round := range rounds(t, "HOST_CHURN", 3) {
				c, err := r.dial(host.Config{Queues: 2, Depth: 4, ReconnectDelay: time.Millisecond})
				require.NoError(t, err)
				ns, err := c.Namespace(timeout(t), 1)
				require.NoError(t, err)
				m := region(t, c, 12*8192)
				var taken, back atomic.Int64
				var closing atomic.Bool
				var wg sync.WaitGroup
				requests := make([]host.Request, 12)
				for i := range requests {
					q := &requests[i]
					idle := make(chan struct{}, 1)
					q.OnDone = func(q *host.Request) {
						back.Add(1)
						idle <- struct{}{}
					}
					wg.Go(func() {
						for k := 0; ; k++ {
							io := host.IO{Op: host.Read, LBA: uint64(16 * i), Data: []transport.Piece{m.Piece(uint64(i)*8192, 8192)}}
							if k%3 == 0 {
								io.Op = host.Write
							}
							if k%5 == 0 {
								io.Data[0].Len = 512
							}
							require.NoError(t, ns.Prepare(q, io))
							taken.Add(1)
							switch err := c.Submit(q); {
							case err == nil:
								<-idle
							case errors.Is(err, host.ErrClosed):
								taken.Add(-1)
								return
							default:
								taken.Add(-1)
								assert.True(t, errors.Is(err, host.ErrFull) || errors.Is(err, host.ErrLost), err)
								if closing.Load() && errors.Is(err, host.ErrLost) {
									return
								}
								time.Sleep(50 * time.Microsecond)
							}
						}
					})
				}
				time.Sleep(time.Duration(round%7) * time.Millisecond)
				if round%2 == 0 {
					r.shutdown()
					r.serve()
					time.Sleep(time.Duration(round%5) * time.Millisecond)
				}
				closing.Store(true)
				require.NoError(t, c.Close())
				wg.Wait()
				assert.Equal(t, taken.Load(), back.Load())
			}
		})
	}
}
