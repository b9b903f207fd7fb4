package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nqn = "nqn.2014-08.org.example:disk"

// place is where a host and a target can meet.
type place struct {
	name string
	real bool
	// open makes a target's and a host's device, and says where to listen. Whatever a test
	// does, nothing may be left of it when they are closed.
	open func(t testing.TB) (targetDev, hostDev transport.Device, addr string)
}

// profiles are simulated devices whose ways differ: windows; keys made by calls; fast
// registration with and without READ_WITH_INV.
var profiles = []string{"rxe", "siw", "siw-kernel", "mlx5-kernel"}

// everywhere runs a test on those, and on the real devices that there are.
func everywhere(t *testing.T, test func(t *testing.T, at place)) {
	all := realPlaces()
	for _, name := range profiles {
		all = append(all, simulated(t, name))
	}
	for _, at := range all {
		t.Run(at.name, func(t *testing.T) { test(t, at) })
	}
}

func simulated(t testing.TB, name string) place {
	profile, ok := sim.LookupProfile(name)
	require.True(t, ok, name)
	return place{name, false, func(t testing.TB) (targetDev, hostDev transport.Device, addr string) {
		fabric := sim.New(sim.Config{})
		targetDev, err := fabric.NewDevice(profile, "target")
		require.NoError(t, err)
		hostDev, err = fabric.NewDevice(profile, "host")
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, targetDev.Close())
			assert.NoError(t, hostDev.Close())
			assert.NoError(t, fabric.Err())
			assert.NoError(t, fabric.Close())
		})
		return targetDev, hostDev, "target:4420"
	}}
}

// rig is a target, and a device to connect to it from.
type rig struct {
	t    testing.TB
	dev  transport.Device // the host's
	addr string
	cfg  target.Config
	*service
	targetDev transport.Device
	listener  transport.Listener
}

// service is one life of the target.
type service struct {
	*target.Target
	served chan error
}

// newRig serves two namespaces in memory: 8 MiB in blocks of 512 bytes, and of 4096.
func newRig(t testing.TB, at place, cfg target.Config) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg}
	r.targetDev, r.dev, r.addr = at.open(t)
	if r.cfg.Subsystems == nil {
		r.cfg.Subsystems = []target.Subsystem{{NQN: nqn, Serial: "rdmarw1", Namespaces: []target.Namespace{
			{ID: 1, Backend: memory(t, 512)}, {ID: 7, Backend: memory(t, 4096)},
		}}}
	}
	if os.Getenv("NVMEOF_LOG") != "" {
		r.cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	l, err := r.targetDev.Listen(r.addr)
	require.NoError(t, err)
	r.listener, r.addr = l, l.Addr()
	r.serve()
	t.Cleanup(func() {
		r.shutdown()
		assert.NoError(t, l.Close())
	})
	return r
}

func memory(t testing.TB, block int) backend.Backend {
	b, err := backend.NewMemory(8<<20, block)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

// serve begins a life of the target.
func (r *rig) serve() {
	tgt, err := target.New(r.cfg)
	require.NoError(r.t, err)
	s := &service{tgt, make(chan error, 1)}
	go func() { s.served <- tgt.Serve(context.Background(), r.targetDev, r.listener) }()
	r.service = s
}

// shutdown ends it. Nothing may be left.
func (r *rig) shutdown() {
	if r.service == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	assert.NoError(r.t, r.Shutdown(ctx))
	select {
	case err := <-r.served:
		assert.ErrorIs(r.t, err, target.ErrClosed)
	case <-ctx.Done():
		r.t.Error("Serve does not return")
	}
	assert.Zero(r.t, r.Stats().Controllers)
	assert.Zero(r.t, r.Stats().Queues)
	r.service = nil
}

// connect connects a host, and closes it when the test ends.
func (r *rig) connect(cfg host.Config) *host.Controller {
	r.t.Helper()
	c, err := r.dial(cfg)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, c.Close()) })
	return c
}

func (r *rig) dial(cfg host.Config) (*host.Controller, error) {
	if cfg.Device == nil {
		cfg.Device = r.dev
	}
	if os.Getenv("NVMEOF_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return host.Connect(timeout(r.t), r.addr, nqn, cfg)
}

// timeout is longer than anything takes, on emulated machines too.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func region(t testing.TB, c *host.Controller, size int) *transport.Region {
	t.Helper()
	m, err := c.NewRegion(size)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.RemoveRegion(m))
		assert.NoError(t, m.Close())
	})
	return m
}

// eventually waits for what happens by itself.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, fmt.Sprintf("%s: not after a minute", what))
		}
	}
}
