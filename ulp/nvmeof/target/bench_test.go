package target

import (
	"context"
	"fmt"
	"testing"

	"rdmarw/mrpool"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/require"
)

// lean is a call whose memory stays exposed, so that the host's side of an I/O costs next to
// nothing and allocates nothing.
func lean(t testing.TB, l *line, n uint32, ops mrpool.RemoteOps) *call {
	c := <-l.free
	var err error
	d, err := c.expose(n, ops)
	require.NoError(t, err)
	require.NoError(t, l.ep.Do(context.Background(), &c.x.Grant))
	c.exposed = false // by start: it is exposed already
	d.Type = nvme.SGLKeyed
	cmd := blocks(nvme.Read, 0, n>>9)
	cmd.Flags, cmd.CID, cmd.SGL = nvme.FlagSGL, c.cid, d
	if ops == mrpool.ReadSource {
		cmd.Opcode = nvme.Write
	}
	cmd.Encode(c.capsule)
	return c
}

func (c *call) unexpose(t testing.TB) {
	require.NoError(t, c.l.ep.Do(context.Background(), &c.x.Revoke))
	c.l.free <- c
}

// TestNoAllocations: a read and a write, from the capsule's arrival to the end of the
// response, allocate nothing in steady state: neither at the target nor at the host, nor in
// the fabric between them.
func TestNoAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	for _, profile := range []string{"rxe", "siw", "siw-kernel"} {
		for _, size := range []uint32{512, 4096, 65536} {
			for name, ops := range map[string]mrpool.RemoteOps{"read": mrpool.WriteSink, "write": mrpool.ReadSource} {
				t.Run(fmt.Sprintf("%s/%s/%d", profile, name, size), func(t *testing.T) {
					r := newRig(t, profile, Config{})
					l := r.host().session(1, dialConfig{}).io[0]
					c := lean(t, l, size, ops)
					io := func() {
						if err := c.sendCapsule(nvme.CommandLen); err != nil {
							t.Fatal(err)
						}
						if e := <-c.answered; e.Status != nvme.Success {
							t.Fatal(e.Status)
						}
					}
					for range 2 * 64 { // each slot once
						io()
					}
					require.Zero(t, testing.AllocsPerRun(500, io))
					c.unexpose(t)
				})
			}
		}
	}
}

// BenchmarkIO does reads and writes of 4 KiB on a simulated device, with a memory backend:
// what host, fabric and target take of one or more CPUs for each, and what they allocate.
func BenchmarkIO(b *testing.B) {
	for _, profile := range []string{"rxe", "siw"} {
		for name, ops := range map[string]mrpool.RemoteOps{"read": mrpool.WriteSink, "write": mrpool.ReadSource} {
			for _, depth := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%s/depth=%d", profile, name, depth), func(b *testing.B) {
					l := newRig(b, profile, Config{}).host().session(1, dialConfig{}).io[0]
					calls := make([]*call, depth)
					for i := range calls {
						calls[i] = lean(b, l, 4096, ops)
						require.NoError(b, calls[i].sendCapsule(nvme.CommandLen))
					}
					b.ReportAllocs()
					b.SetBytes(4096)
					for i := 0; b.Loop(); i++ {
						c := calls[i%depth]
						if e := <-c.answered; e.Status != nvme.Success {
							b.Fatal(e.Status)
						}
						if err := c.sendCapsule(nvme.CommandLen); err != nil {
							b.Fatal(err)
						}
					}
					for _, c := range calls {
						<-c.answered
						c.unexpose(b)
					}
				})
			}
		}
	}
}
