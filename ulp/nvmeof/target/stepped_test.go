package target_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const steppedNQN = "nqn.2014-08.org.example:stepped"

// world is a host's device and a target on a stepped fabric: one goroutine, virtual time.
type world struct {
	fabric *sim.Fabric
	host   *sim.Device
	target *target.Target
	skew   time.Duration
}

func (w *world) now() time.Time { return time.Unix(1000, 0).Add(w.fabric.Now() + w.skew) }

// move moves everything on. When the fabric has nothing to do, time goes on by itself:
// deadlines are what is left.
func (w *world) move() error {
	if err := w.target.Poll(); err != nil {
		return err
	}
	if !w.fabric.Step() {
		if w.skew += 10 * time.Millisecond; w.skew > time.Hour {
			return errors.New("nothing happens any more")
		}
	}
	return nil
}

func newWorld(t *testing.T, profile string, cfg sim.Config) *world {
	cfg.Stepped = true
	w := &world{fabric: sim.New(cfg)}
	p, ok := sim.LookupProfile(profile)
	require.True(t, ok)
	dev, err := w.fabric.NewDevice(p, "target")
	require.NoError(t, err)
	w.host, err = w.fabric.NewDevice(p, "host")
	require.NoError(t, err)
	disk, err := backend.NewMemory(4<<20, 512)
	require.NoError(t, err)
	w.target, err = target.New(target.Config{
		Subsystems: []target.Subsystem{{NQN: steppedNQN, Namespaces: []target.Namespace{{ID: 1, Backend: disk}}}},
		Step:       w.move, Now: w.now, QueueMemory: 2 << 20, MaxTransfer: 256 << 10,
	})
	require.NoError(t, err)
	l, err := dev.Listen("target:4420")
	require.NoError(t, err)
	require.Error(t, w.target.Serve(context.Background(), dev, l), "it runs by steps")
	require.NoError(t, w.target.Attach(dev, l))
	t.Cleanup(func() {
		assert.NoError(t, w.target.Shutdown(context.Background()))
		assert.Zero(t, w.target.Stats().Controllers)
		assert.NoError(t, l.Close())
		assert.NoError(t, dev.Close())
		assert.NoError(t, w.host.Close())
		assert.NoError(t, w.fabric.Err())
		assert.NoError(t, w.fabric.Close())
		assert.NoError(t, disk.Close())
	})
	return w
}

func (w *world) connect(t *testing.T) (*host.Controller, *host.Namespace) {
	c, err := host.Connect(context.Background(), "target:4420", steppedNQN, host.Config{
		Device: w.host, HostID: [16]byte{1}, Depth: 8, Queues: 2, Step: w.move, Now: w.now,
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	ns, err := c.Namespace(context.Background(), 1)
	require.NoError(t, err)
	return c, ns
}

// TestStepped: host and target in one goroutine, in virtual time, and the same each time: the
// fabric's logs of two runs of a seed are the same to the byte.
func TestStepped(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel", "mlx5-kernel"} {
		t.Run(profile, func(t *testing.T) {
			var logs [2]bytes.Buffer
			for i := range logs {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					w := newWorld(t, profile, sim.Config{Seed: 7, Log: &logs[i]})
					c, ns := w.connect(t)
					useNamespace(t, c, ns)
				})
			}
			assert.NotEmpty(t, logs[0].Bytes())
			assert.True(t, bytes.Equal(logs[0].Bytes(), logs[1].Bytes()), "two runs of one seed differ")
		})
	}
}

// useNamespace writes and reads in several sizes.
func useNamespace(t *testing.T, c *host.Controller, ns *host.Namespace) {
	m, err := c.NewRegion(256 << 10)
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, c.RemoveRegion(m))
		assert.NoError(t, m.Close())
	}()
	for k := range 10 {
		n := 512 << (k % 9)
		for j := range n {
			m.Bytes()[j] = byte(j*k + 1)
		}
		want := bytes.Clone(m.Bytes()[:n])
		require.NoError(t, ns.Write(context.Background(), uint64(k), m.Piece(0, uint32(n))))
		clear(m.Bytes())
		require.NoError(t, ns.Read(context.Background(), uint64(k), m.Piece(0, uint32(n))))
		require.True(t, bytes.Equal(want, m.Bytes()[:n]))
	}
	require.NoError(t, ns.Flush(context.Background()))
}

// TestSteppedSilence: in virtual time, a host whose device dies is found out by its keep
// alive timeout, and what it had is free again.
func TestSteppedSilence(t *testing.T) {
	for _, profile := range []string{"rxe", "siw"} {
		t.Run(profile, func(t *testing.T) {
			w := newWorld(t, profile, sim.Config{Seed: 3})
			c, ns := w.connect(t)
			useNamespace(t, c, ns)
			require.Equal(t, 3, w.target.Stats().Queues)
			w.host.Kill()
			before := w.now()
			for w.target.Stats().Queues > 0 {
				require.NoError(t, w.move())
			}
			assert.LessOrEqual(t, w.now().Sub(before), 20*time.Second)
			assert.Zero(t, w.target.Stats().Controllers)
		})
	}
}

// TestSteppedLoss: connections that are cut are made anew, and the data is right.
func TestSteppedLoss(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel", "mlx5-kernel"} {
		t.Run(profile, func(t *testing.T) {
			w := newWorld(t, profile, sim.Config{Seed: 11})
			c, ns := w.connect(t)
			for range 3 {
				useNamespace(t, c, ns)
				// The target's end fails; the host finds out, and comes back.
				for _, conn := range w.target.Connections() {
					require.NoError(t, conn.Disconnect())
				}
			}
			useNamespace(t, c, ns)
			assert.Equal(t, 1, w.target.Stats().Controllers)
		})
	}
}
