package rw_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// steppedConfig describes two connected endpoints on a stepped fabric.
type steppedConfig struct {
	profile sim.Profile
	seed    uint64
	log     io.Writer
	faults  sim.Faults
	// idle: what A posts completes, and nothing moves.
	idle bool

	policy rw.Policy
	pool   mrpool.Config
	queues transport.QueueCaps
	depth  int // of READs; zero: all that the devices have
	// isolated: a protection domain for this connection alone.
	isolated bool
	// reserve is the share of each kind of registration that is set aside.
	reserve int
	// slots of staging memory, and their size. Zero: none.
	slots, slot int
	// sinks: the memory is a persistent sink of READs, too.
	sinks bool
	// memory is the size of each side's region in bytes.
	memory int
}

// stepped is a pair of endpoints that move when the test says so, in one
// goroutine, so that a seed determines a run.
type stepped struct {
	t      rapid.TB
	fabric *sim.Fabric
	ends   [2]*end
	listen transport.Listener
	skew   time.Duration // that the clock of deadlines is ahead of the fabric's
	// tick, if not nil, is called after each step.
	tick func()
}

// end is one side of it.
type end struct {
	s      *stepped
	sim    *sim.Device
	dev    *witness
	pd     transport.PD
	pool   *mrpool.Pool
	poller *rw.Poller
	ep     *rw.Endpoint
	// region is the memory, readOnly some that nothing may be written to.
	region, readOnly *transport.Region
	staging          *rw.Staging
	stagingMemory    *transport.Region
	unmap            func()

	done []*rw.Context // in the order they ended
}

func newStepped(t rapid.TB, cfg steppedConfig) *stepped {
	s := &stepped{t: t, fabric: sim.New(sim.Config{Seed: cfg.seed, Stepped: true, Log: cfg.log, Faults: cfg.faults})}
	for i, name := range []string{"a", "b"} {
		s.ends[i] = s.newEnd(name, &cfg, cfg.idle && i == 0)
	}
	a, b := s.ends[0], s.ends[1]
	ctx := context.Background()
	var err error
	s.listen, err = b.dev.Listen("b:0")
	require.NoError(t, err)
	conn, err := a.dev.Resolve(ctx, s.listen.Addr())
	require.NoError(t, err)
	a.attach(conn, &cfg)
	params := transport.ConnParams{InitiatorDepth: cfg.depth, ResponderResources: cfg.depth}
	require.NoError(t, conn.Connect(params))
	conn, err = s.listen.Next(ctx)
	require.NoError(t, err)
	b.attach(conn, &cfg)
	_, err = b.ep.Accept(ctx, params)
	require.NoError(t, err)
	_, err = a.ep.Established(ctx)
	require.NoError(t, err)
	return s
}

func (s *stepped) now() time.Time { return time.Unix(0, 0).Add(s.fabric.Now() + s.skew) }

func (s *stepped) newEnd(name string, cfg *steppedConfig, idle bool) *end {
	t := s.t
	e := &end{s: s}
	var err error
	e.sim, err = s.fabric.NewDevice(cfg.profile, name)
	require.NoError(t, err)
	e.dev = watch(e.sim, idle)
	if cfg.idle { // most of it will never be touched
		e.region, e.unmap = wrapped(t, e.dev, cfg.memory)
	} else {
		e.region, err = e.dev.NewRegion(transport.RegionConfig{Size: cfg.memory, Access: transport.LocalWrite | transport.BindWindow})
		require.NoError(t, err)
	}
	e.readOnly, err = e.dev.NewRegion(transport.RegionConfig{Size: 64 << 10, Access: transport.BindWindow})
	require.NoError(t, err)
	regions := []*transport.Region{e.region, e.readOnly}
	if cfg.slots > 0 {
		e.stagingMemory, err = e.dev.NewRegion(transport.RegionConfig{Size: cfg.slots * cfg.slot, Access: transport.LocalWrite})
		require.NoError(t, err)
		regions = append(regions, e.stagingMemory)
	}
	if cfg.isolated {
		e.pool, err = mrpool.NewIsolated(e.dev, cfg.pool, regions...)
		require.NoError(t, err)
		e.pd = e.pool.PD()
	} else {
		e.pd, err = e.dev.NewPD()
		require.NoError(t, err)
		for _, r := range regions {
			require.NoError(t, e.pd.AddRegion(r))
		}
		e.pool, err = mrpool.New(e.pd, cfg.pool)
		require.NoError(t, err)
	}
	if cfg.slots > 0 {
		e.staging, err = rw.NewStaging(e.pool, e.stagingMemory, cfg.slot)
		require.NoError(t, err)
	}
	if cfg.sinks {
		require.NoError(t, e.pool.AddSink(e.region))
	}
	for _, r := range e.dev.regs {
		r.lasting = r.valid
	}
	e.poller, err = rw.NewPoller(e.dev, 4096, rw.PollerConfig{Workers: -1, Now: s.now})
	require.NoError(t, err)
	return e
}

// wrapped makes a region of address space that takes no memory before it is
// written to.
func wrapped(t rapid.TB, dev transport.Device, size int) (r *transport.Region, unmap func()) {
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	require.NoError(t, err)
	r, err = dev.WrapRegion(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), size, transport.LocalWrite|transport.BindWindow, nil)
	require.NoError(t, err)
	return r, func() { require.NoError(t, syscall.Munmap(mem)) }
}

func (e *end) attach(conn transport.Conn, cfg *steppedConfig) {
	var err error
	e.ep, err = e.poller.NewEndpoint(conn, rw.EndpointConfig{
		Pool: e.pool, QueueCaps: cfg.queues, Policy: cfg.policy, Staging: e.staging, Reserve: cfg.reserve, DrainTimeout: time.Second,
	})
	require.NoError(e.s.t, err)
}

// poll takes in what happened on one side, and reports whether anything ended.
func (e *end) poll() bool {
	var buf [16]*rw.Context
	before := len(e.done)
	for {
		n, err := e.poller.Poll(buf[:])
		require.NoError(e.s.t, err)
		e.done = append(e.done, buf[:n]...)
		if n < len(buf) {
			return len(e.done) > before
		}
	}
}

func (s *stepped) step() bool {
	moved := s.fabric.Step()
	if s.tick != nil {
		s.tick()
	}
	return moved
}

// until polls and steps until done, or until nothing is left to happen, deadlines
// included.
func (s *stepped) until(done func() bool) bool {
	late := 0
	for {
		moved := s.ends[0].poll()
		moved = s.ends[1].poll() || moved
		switch {
		case done():
			return true
		case moved:
		case s.step():
			late = 0
		case late < 3: // at the next poll, deadlines are over
			s.skew += 2 * time.Second
			late++
		default:
			return false
		}
	}
}

// charges are what operations take from an endpoint and its pool, and give back.
type charges struct {
	sendWRs, reads int
	out, reserved  [transport.NumRegistrationKinds]int
}

func (e *end) charged() (h charges) {
	h.sendWRs, h.reads = e.ep.Credits()
	for kind := range transport.NumRegistrationKinds {
		s := e.pool.Stats(kind)
		h.out[kind], h.reserved[kind] = s.Out+s.Broken, s.Reserved
	}
	return h
}

// closeEndpoints closes both endpoints, and drives them there.
func (s *stepped) closeEndpoints() {
	for _, e := range s.ends {
		e.ep.StartClose()
	}
	closed := func() bool {
		for _, e := range s.ends {
			select {
			case <-e.ep.Closed():
			default:
				return false
			}
		}
		return true
	}
	require.True(s.t, s.until(closed), "endpoints that were closed come to an end")
	for _, e := range s.ends {
		require.NoError(s.t, e.ep.Close())
		e.poll()
	}
}

// close takes everything down, and checks that nothing was left behind and that no
// rule was broken. The endpoints are closed already.
func (s *stepped) close() {
	t := s.t
	require.NoError(t, s.listen.Close())
	for _, e := range s.ends {
		require.Zero(t, len(e.dev.living()), "registrations that a peer may still use")
		require.NoError(t, e.poller.Close())
		if e.staging != nil {
			require.NoError(t, e.staging.Close())
		}
		require.NoError(t, e.pool.Close(), "no registration is out")
		regions := []*transport.Region{e.region, e.readOnly}
		if e.stagingMemory != nil {
			regions = append(regions, e.stagingMemory)
		}
		if !e.pool.Isolated() {
			for _, r := range regions {
				require.NoError(t, e.pd.RemoveRegion(r))
			}
			require.NoError(t, e.pd.Close())
		}
		for _, r := range regions {
			require.NoError(t, r.Close())
		}
		if e.unmap != nil {
			e.unmap()
		}
		require.NoError(t, e.dev.Close())
	}
	require.NoError(t, s.fabric.Err(), "no device was crashed")
	require.NoError(t, s.fabric.Close())
	s.requireRules()
}

func (s *stepped) requireRules() {
	for _, e := range s.ends {
		require.NoError(s.t, errors.Join(e.dev.breaches...), "rules of any plan")
	}
}
