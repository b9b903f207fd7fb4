//go:build ibverbs && linux && cgo

package ibverbs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

// Waits that are over while they doze, about when they park, and after: none sleeps over its event,
// nor over a Wake, whichever way the one before had gone. With one processor all of them park.
func TestWaitsOfAllLengths(t *testing.T) {
	delay := func(r *rand.Rand) time.Duration {
		if r.IntN(2) == 0 {
			return dozeTime*time.Millisecond + time.Duration(r.IntN(100)-50)*time.Microsecond
		}
		return time.Duration(r.IntN(3*dozeTime*1000)) * time.Microsecond
	}
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, _ := pair(t, d, host)
		r := rand.New(rand.NewPCG(1, 2))
		for _, procs := range []int{1, 2, 8} {
			t.Run(fmt.Sprint(procs, " processors"), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				dst := make([]transport.Completion, 4)
				for i := range 300 {
					after, posted := delay(r), make(chan error, 1)
					if r.IntN(3) == 0 {
						go func() {
							time.Sleep(after)
							a.cq.Wake()
							posted <- nil
						}()
						require.NoError(t, a.cq.Wait(ctx), "round %d: a Wake", i)
						require.NoError(t, <-posted)
						continue
					}
					require.NoError(t, a.cq.Arm())
					go func() {
						time.Sleep(after)
						_, err := a.qp.PostSend([]transport.WR{{Op: transport.OpWrite, Flags: transport.Signaled}}, nil)
						posted <- err
					}()
					for n := 0; n == 0; {
						require.NoError(t, a.cq.Wait(ctx), "round %d: a completion", i)
						var err error
						n, err = a.cq.Poll(dst)
						require.NoError(t, err)
						if n == 0 {
							require.NoError(t, a.cq.Arm())
							n, err = a.cq.Poll(dst)
							require.NoError(t, err)
						}
					}
					require.Equal(t, transport.StatusOK, dst[0].Status)
					require.NoError(t, <-posted)
				}
			})
		}
	})
	require.Zero(t, dozing.Load(), "all are awake")
}

// One processor is left to other goroutines, however many wait.
func TestDozersLeaveAProcessor(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		x, err := d.NewCQ(4)
		require.NoError(t, err)
		defer x.Close()
		q := x.(*cq)
		dozed := func(procs, others int) bool {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			defer dozing.Add(-dozing.Add(int32(others)))
			q.parking.entered = true // as after a long wait: who dozes leaves
			q.Wake()
			require.NoError(t, q.Wait(context.Background()))
			return !q.parking.entered
		}
		require.False(t, dozed(1, 0))
		require.True(t, dozed(2, 0))
		require.False(t, dozed(2, 1))
		require.True(t, dozed(8, 6))
		require.False(t, dozed(8, 7))
		require.False(t, dozed(8, 100))
	})
}
