package rw_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testbed is where a test runs: two devices that reach each other, or one device
// twice.
type testbed struct {
	name string
	open func(t *testing.T) (a, b transport.Device, listen string)
}

// testbeds are profiles of the simulator, or the real devices of this machine if the
// tests were built for them (see device_test.go).
var testbeds = simBeds()

func simBeds() (beds []testbed) {
	for _, name := range simProfiles {
		beds = append(beds, simBed(name))
	}
	return beds
}

func simBed(profile string) testbed { return faultyBed(profile, sim.Faults{}) }

// faultyBed is a simulated pair of devices on which things go wrong.
func faultyBed(profile string, faults sim.Faults) testbed { return changedBed(profile, nil, faults) }

// changedBed is a simulated pair of devices that differ from their profile.
func changedBed(profile string, change func(*sim.Profile), faults sim.Faults) testbed {
	return testbed{"sim-" + profile, func(t *testing.T) (a, b transport.Device, listen string) {
		p, ok := sim.LookupProfile(profile)
		require.True(t, ok)
		if change != nil {
			change(&p)
		}
		f := sim.New(sim.Config{Seed: 1, Faults: faults})
		t.Cleanup(func() {
			require.NoError(t, f.Err(), "no device was crashed")
			require.NoError(t, f.Close())
		})
		devices := [2]transport.Device{}
		for i, name := range []string{"a", "b"} {
			d, err := f.NewDevice(p, name)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			devices[i] = d
		}
		return devices[0], devices[1], "b:0"
	}}
}

// everywhere runs a test on each testbed.
func everywhere(t *testing.T, test func(t *testing.T, p *pair)) {
	everywhereWith(t, rw.EndpointConfig{}, test)
}

func everywhereWith(t *testing.T, cfg rw.EndpointConfig, test func(t *testing.T, p *pair)) {
	for _, bed := range testbeds {
		t.Run(bed.name, func(t *testing.T) { test(t, connect(t, bed, cfg)) })
	}
}

// side is one end of a connection, with everything it takes.
type side struct {
	t      *testing.T
	dev    transport.Device
	pd     transport.PD
	pool   *mrpool.Pool
	poller *rw.Poller
	ep     *rw.Endpoint
	region *transport.Region
}

// pair is a connection between side A, which transfers, and side B, whose memory
// it reaches.
type pair struct {
	a, b   *side
	listen transport.Listener
}

// regionSize is more than any test's list needs.
const regionSize = 3 << 20

func newSide(t *testing.T, dev transport.Device) *side {
	s := &side{t: t, dev: dev}
	var err error
	s.pd, err = dev.NewPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.pd.Close()) })

	s.region, err = dev.NewRegion(transport.RegionConfig{Size: regionSize, Access: transport.LocalWrite | transport.BindWindow})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.region.Close()) })
	require.NoError(t, s.pd.AddRegion(s.region))
	t.Cleanup(func() { require.NoError(t, s.pd.RemoveRegion(s.region)) })

	s.pool = newPool(t, s.pd)

	s.poller, err = rw.NewPoller(dev, 4096, rw.PollerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.poller.Close()) })
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- s.poller.Run(ctx, nil) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-stopped, context.Canceled)
	})
	return s
}

// newPool makes a pool of what the device has, and checks at the end of the test
// that everything came back.
func newPool(t *testing.T, pd transport.PD) *mrpool.Pool {
	caps := pd.Device().Caps()
	cfg := mrpool.Config{SyncMRs: 512}
	if caps.FastReg.MaxPages > 0 {
		cfg.FastMRs = 40
	}
	if caps.Windows != transport.NoWindows {
		cfg.Windows = 8
	}
	pool, err := mrpool.New(pd, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pool.Close(), "no registration is out")
	})
	return pool
}

func connect(t *testing.T, bed testbed, cfg rw.EndpointConfig) *pair {
	if cfg.MaxSendWR == 0 {
		cfg.MaxSendWR = 512
	}
	devA, devB, addr := bed.open(t)
	p := &pair{a: newSide(t, devA), b: newSide(t, devB)}
	var err error
	p.listen, err = devB.Listen(addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.listen.Close()) })
	p.a.ep, p.b.ep = p.dial(t, cfg, cfg)
	return p
}

// dial makes one more connection from A to B. Both ends are closed with the test.
func (p *pair) dial(t *testing.T, cfgA, cfgB rw.EndpointConfig) (a, b *rw.Endpoint) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	accepted := make(chan *rw.Endpoint, 1)
	go func() {
		defer close(accepted)
		conn, err := p.listen.Next(ctx)
		if err != nil {
			t.Errorf("next: %v", err)
			return
		}
		if cfgB.Pool == nil {
			cfgB.Pool = p.b.pool
		}
		ep, err := p.b.poller.NewEndpoint(conn, cfgB)
		if err != nil {
			t.Errorf("passive endpoint: %v", err)
			conn.Close()
			return
		}
		if _, err = ep.Accept(ctx, transport.ConnParams{}); err != nil {
			t.Errorf("accept: %v", err)
		}
		accepted <- ep
	}()
	conn, err := p.a.dev.Resolve(ctx, p.listen.Addr())
	require.NoError(t, err)
	if cfgA.Pool == nil {
		cfgA.Pool = p.a.pool
	}
	a, err = p.a.poller.NewEndpoint(conn, cfgA)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	_, err = a.Connect(ctx, transport.ConnParams{})
	require.NoError(t, err)
	b = <-accepted
	require.NotNil(t, b)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return a, b
}

// within gives a context that ends well before the test does.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// await submits contexts and waits for them without failing the endpoint.
func await(t *testing.T, ep *rw.Endpoint, cs ...*rw.Context) error {
	return ep.Do(within(t, time.Minute), cs...)
}

// expose makes the list valid for the peer.
func (s *side) expose(ep *rw.Endpoint, x *rw.Exposure, list []transport.Piece, ops mrpool.RemoteOps) []transport.Remote {
	s.t.Helper()
	require.NoError(s.t, ep.Expose(x, list, ops))
	require.NoError(s.t, await(s.t, ep, &x.Grant))
	return x.Remotes()
}

func (s *side) revoke(ep *rw.Endpoint, x *rw.Exposure) {
	s.t.Helper()
	require.NoError(s.t, await(s.t, ep, &x.Revoke))
}

// fill writes a pattern that differs at every offset and for every seed, so that
// bytes in the wrong place are found.
func fill(b []byte, seed uint64) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(b)
}

// bytesOf concatenates what the pieces hold.
func bytesOf(r *transport.Region, list []transport.Piece) []byte {
	var out []byte
	for _, p := range list {
		at := p.Addr - r.Addr()
		out = append(out, r.Bytes()[at:at+uint64(p.Len)]...)
	}
	return out
}

// requireUntouched checks that nothing outside of list changed.
func requireUntouched(t *testing.T, r *transport.Region, before []byte, list []transport.Piece) {
	t.Helper()
	list = slices.SortedFunc(slices.Values(list), func(p, q transport.Piece) int { return cmp.Compare(p.Addr, q.Addr) })
	var at uint64
	check := func(end uint64) {
		if at < end && !bytes.Equal(before[at:end], r.Bytes()[at:end]) {
			t.Fatalf("bytes between %d and %d of the region changed, and nobody was allowed to", at, end)
		}
	}
	for _, p := range list {
		check(p.Addr - r.Addr())
		at = max(at, p.End()-r.Addr())
	}
	check(r.Len())
}

// scattered makes n pieces of one size, in pages of their own in a shuffled
// order.
func scattered(r *transport.Region, n int, size uint32, offset uint64) (list []transport.Piece) {
	stride := (uint64(size)+offset+4095)/4096*4096 + 4096
	for _, i := range rand.New(rand.NewPCG(3, 3)).Perm(n) {
		list = append(list, r.Piece(4096+uint64(i)*stride+offset, size))
	}
	return list
}

// cut divides a list of remote ranges further, into n uneven ones.
func cut(remote []transport.Remote, n int) (out []transport.Remote) {
	for len(remote) > 0 && len(out) < n-1 {
		r := remote[0]
		first := min(r.Len, uint32(1+len(out)*613))
		out = append(out, transport.Remote{Addr: r.Addr, Len: first, Key: r.Key})
		r.Addr, r.Len = r.Addr+uint64(first), r.Len-first
		remote[0] = r
		if r.Len == 0 {
			remote = remote[1:]
		}
	}
	return append(out, remote...)
}
