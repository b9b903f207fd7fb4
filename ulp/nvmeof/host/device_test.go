package host_test

import (
	"errors"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeviceGone: the device of either end dies without a word, or is unplugged, with
// requests under way: they end, and so does everything else.
func TestDeviceGone(t *testing.T) {
	for name, gone := range map[string]func(host, target *sim.Device){
		"the host's dies": func(h, _ *sim.Device) { h.Kill() }, "the target's dies": func(_, d *sim.Device) { d.Kill() },
		"the host's is unplugged": func(h, _ *sim.Device) { h.Remove() }, "the target's is unplugged": func(_, d *sim.Device) { d.Remove() },
	} {
		for _, profile := range []string{"siw", "mlx5-kernel"} {
			t.Run(name+"/"+profile, func(t *testing.T) {
				t.Parallel() // they wait, mostly
				r := newRig(t, simulated(t, profile), target.Config{})
				c := r.connect(host.Config{LossTimeout: 200 * time.Millisecond, ReconnectDelay: 10 * time.Millisecond, CommandTimeout: time.Second,
					KeepAlive: time.Second, ConnectTimeout: time.Second})
				ns, err := c.Namespace(timeout(t), 1)
				require.NoError(t, err)
				m := region(t, c, 4*8192)
				ended := make(chan error, 4)
				requests := make([]host.Request, 4)
				for i := range requests {
					q := &requests[i]
					q.OnDone = func(q *host.Request) {
						if q.Err() != nil {
							ended <- q.Err()
							return
						}
						io := host.IO{Op: host.Read, Data: []transport.Piece{m.Piece(uint64(i)*8192, 8192)}}
						if err := ns.Prepare(q, io); err != nil {
							ended <- err
						} else if err := c.Submit(q); err != nil {
							ended <- err
						}
					}
					q.OnDone(q)
				}
				time.Sleep(5 * time.Millisecond)
				gone(r.dev.(*sim.Device), r.targetDev.(*sim.Device))
				for range requests {
					select {
					case err := <-ended:
						// Or what Submit can't expose memory by.
						assert.True(t, errors.Is(err, host.ErrLost) || errors.Is(err, transport.ErrDeviceRemoved), err)
					case <-time.After(time.Minute):
						require.Fail(t, "a request doesn't end")
					}
				}
				assert.ErrorIs(t, ns.Flush(timeout(t)), host.ErrLost)
			})
		}
	}
}

// TestLossTimeoutOfTheDead: nobody says that the target is gone, and connecting to it takes
// until that is given up: LossTimeout holds for that, too.
func TestLossTimeoutOfTheDead(t *testing.T) {
	r := newRig(t, simulated(t, "mlx5-kernel"), target.Config{})
	c := r.connect(host.Config{KeepAlive: 500 * time.Millisecond, LossTimeout: 500 * time.Millisecond, ReconnectDelay: 50 * time.Millisecond})
	ns, err := c.Namespace(timeout(t), 1)
	require.NoError(t, err)
	m := region(t, c, 8192)
	r.targetDev.(*sim.Device).Kill()
	begun := time.Now()
	assert.ErrorIs(t, ns.Read(timeout(t), 0, m.Piece(0, 8192)), host.ErrLost)
	assert.Less(t, time.Since(begun), 5*time.Second, "half of ConnectTimeout")
	t.Log(time.Since(begun), c.Err())
}
