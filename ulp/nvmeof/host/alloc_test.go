package host_test

import (
	"context"
	"testing"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAllocs: in steady state an I/O allocates nothing, on devices that register by work
// requests. The stepped fabric and the fake target are part of what is measured.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newStepped(t, "mlx5-kernel", sim.Config{})
	c, ns := s.connect(s.config())
	m := region(t, c, 64<<10)
	list := []transport.Piece{m.Piece(0, 16<<10)}
	small := []transport.Piece{m.Piece(0, 512)}
	done := false
	var q host.Request
	q.OnDone = func(*host.Request) { done = true }
	for name, io := range map[string]host.IO{
		"read": {Op: host.Read, Data: list}, "write": {Op: host.Write, Data: list}, "in capsule": {Op: host.Write, Data: small}, "flush": {Op: host.Flush},
	} {
		one := func() {
			done = false
			if ns.Prepare(&q, io) != nil || c.Submit(&q) != nil {
				return
			}
			for !done {
				c.Poll()
				s.move()
			}
		}
		for range 100 {
			one()
		}
		require.True(t, done)
		require.NoError(t, q.Err())
		assert.Zero(t, testing.AllocsPerRun(500, one), "%s, submitted", name)
	}
	ctx := context.Background()
	wait := func() {
		if err := ns.Read(ctx, 0, list...); err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		wait()
	}
	assert.Zero(t, testing.AllocsPerRun(500, wait), "a call that waits")
}
