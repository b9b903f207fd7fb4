package host_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIdentify(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c := r.connect(host.Config{Queues: 3, Depth: 16})
		id := c.Identify()
		assert.Equal(t, nqn, id.Subsystem)
		assert.Equal(t, "rdmarw1", id.Serial)
		queues, depth := c.Queues()
		assert.Equal(t, 3, queues)
		assert.Equal(t, 16, depth)
		ids, err := c.Namespaces(timeout(t))
		require.NoError(t, err)
		assert.Equal(t, []uint32{1, 7}, ids)
		ns, err := c.Namespace(timeout(t), 7)
		require.NoError(t, err)
		assert.Equal(t, 4096, ns.BlockSize())
		assert.EqualValues(t, 8<<20, ns.Size())
		_, err = c.Namespace(timeout(t), 2)
		assert.ErrorIs(t, err, nvme.InvalidNamespace)
		vs, err := c.Property(timeout(t), nvme.PropVS)
		require.NoError(t, err)
		assert.Equal(t, id.Version, nvme.Version(vs))
		_, err = c.Health(timeout(t))
		assert.NoError(t, err)
		_, err = c.Feature(timeout(t), nvme.FeatQueues)
		assert.NoError(t, err)
		_, err = c.Feature(timeout(t), 0xEE)
		assert.ErrorIs(t, err, nvme.InvalidField)
		_, err = c.KeepAlive(timeout(t))
		assert.NoError(t, err)
	})
}

func TestDiscover(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		entries, err := host.Discover(timeout(t), r.addr, host.Config{Device: r.dev})
		require.NoError(t, err)
		found := false
		for _, e := range entries {
			found = found || e.NQN == nqn && e.Subsystem == nvme.EntryNVM && e.Transport == nvme.TransportRDMA
		}
		assert.True(t, found, "%+v", entries)
	})
}

func TestRefused(t *testing.T) {
	at := simulated(t, "mlx5-kernel")
	var log lockedBuffer
	r := newRig(t, at, target.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx := timeout(t)
	_, err := host.Connect(ctx, r.addr, "nqn.2014-08.org.example:other", host.Config{Device: r.dev})
	assert.ErrorIs(t, err, nvme.ConnectInvalidParam)
	assert.ErrorContains(t, err, "has no subsystem of that name, or doesn't admit this host; host.Discover lists those that it shows)")
	for _, told := range []string{"subsystem=nqn.2014-08.org.example:other", "hostnqn=nqn.2014-08.org.nvmexpress:uuid:", `parameter="subsystem NQN"`} {
		assert.Contains(t, log.String(), told, "the target's log")
	}
	var failed *host.CommandError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, nvme.InvalidParam(nvme.ConnectAtSubsystem, true), failed.Result)
	_, err = host.Connect(ctx, r.addr, "disk", host.Config{Device: r.dev})
	assert.ErrorContains(t, err, "no NQN")
	_, err = host.Connect(ctx, "target:1", nqn, host.Config{Device: r.dev})
	assert.Error(t, err)
	for _, cfg := range []host.Config{{}, {Device: r.dev, Depth: -1}, {Device: r.dev, Queues: 5000}, {Device: r.dev, MaxTransfer: 1},
		{Device: r.dev, HostNQN: "me"}} {
		_, err := host.Connect(ctx, r.addr, nqn, cfg)
		assert.ErrorIs(t, err, transport.ErrInvalid)
	}
}

// lockedBuffer is written to by one goroutine and read by another.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestWrongParameter: what a controller says of a Connect that it doesn't like is put into
// words.
func TestWrongParameter(t *testing.T) {
	for _, test := range []struct {
		status nvme.Status
		result uint64
		want   string
	}{
		{nvme.ConnectInvalidParam, nvme.InvalidParam(nvme.ConnectAtHost, true), "(parameter: host NQN nqn.2014-08.org.example:me)"},
		{nvme.ConnectInvalidHost, nvme.InvalidParam(nvme.ConnectAtHost, true), "(parameter: host NQN nqn.2014-08.org.example:me)"},
		{nvme.ConnectInvalidParam, nvme.InvalidParam(nvme.ConnectAtSQSize, false), "(parameter: queue size)"},
		{nvme.ConnectInvalidParam, nvme.InvalidParam(300, true), "(parameter: byte 300 of the data)"},
		{nvme.ControllerBusy, nvme.InvalidParam(300, true), "controller busy (0x181)"},
	} {
		s := newStepped(t, "mlx5-kernel", sim.Config{})
		s.answer = func(_ *nvme.Command, a *fakeAnswer) bool {
			a.Status, a.Result = test.status, test.result
			return true
		}
		cfg := s.config()
		cfg.HostNQN = "nqn.2014-08.org.example:me"
		_, err := host.Connect(context.Background(), "target:4420", nqn, cfg)
		assert.ErrorIs(t, err, test.status)
		assert.True(t, strings.HasSuffix(err.Error(), test.want), err)
	}
}

// TestData: random commands of several goroutines, each in its own part of a
// namespace, against a model.
func TestData(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c := r.connect(host.Config{Queues: 2, Depth: 4, MaxTransfer: 128 << 10})
		var wg sync.WaitGroup
		for _, id := range []uint32{1, 7} {
			ns, err := c.Namespace(timeout(t), id)
			require.NoError(t, err)
			for i := range 4 {
				wg.Go(func() { exercise(t, c, ns, uint64(i), 4, 40) })
			}
		}
		wg.Wait()
		s := c.Stats()
		assert.Positive(t, s.InCapsule)
		assert.Positive(t, s.Exposed)
		offered := r.dev.Caps().CompletionReportsInv && (r.dev.Caps().RemoteInv[transport.FastMR] == transport.InvWorks ||
			r.dev.Caps().RemoteInv[transport.Window] == transport.InvWorks)
		if offered {
			assert.Equal(t, s.Exposed, s.RemoteInvalidated, "the target invalidates every key that it is asked to")
		} else {
			assert.Zero(t, s.RemoteInvalidated)
		}
	})
}

// exercise uses part i of n of a namespace.
func exercise(t *testing.T, c *host.Controller, ns *host.Namespace, i, n uint64, rounds int) {
	ctx := timeout(t)
	block := uint64(ns.BlockSize())
	blocks := uint64(ns.Size()) / block / n
	base := i * blocks
	rng := rand.New(rand.NewPCG(i, uint64(ns.ID())))
	model := make([]byte, blocks*block)
	memory := region(t, c, 512<<10)
	if !assert.NoError(t, ns.WriteZeroes(ctx, base, blocks)) {
		return
	}
	for range rounds {
		lba := rng.Uint64N(blocks)
		k := 1 + rng.Uint64N(min(blocks-lba, 256<<10/block))
		if rng.IntN(2) == 0 {
			k = min(k, 8)
		}
		m := model[lba*block : (lba+k)*block]
		list, fill, got := pieces(rng, memory, len(m), int(block))
		ok := true
		switch op := rng.IntN(9); op {
		case 0, 1, 2:
			for i := range m {
				m[i] = byte(rng.Uint32())
			}
			fill(m)
			if op == 0 {
				ok = assert.NoError(t, ns.WriteDurably(ctx, base+lba, list...))
			} else {
				ok = assert.NoError(t, ns.Write(ctx, base+lba, list...))
			}
		case 3, 4, 5:
			fill(make([]byte, len(m)))
			ok = assert.NoError(t, ns.Read(ctx, base+lba, list...)) && assert.True(t, bytes.Equal(m, got()))
		case 6:
			fill(m)
			ok = assert.NoError(t, ns.Compare(ctx, base+lba, list...))
			memory.Bytes()[list[0].Addr-memory.Addr()]++
			ok = ok && assert.ErrorIs(t, ns.Compare(ctx, base+lba, list...), nvme.CompareFailure)
		case 7:
			clear(m)
			ok = assert.NoError(t, ns.WriteZeroes(ctx, base+lba, k)) && assert.NoError(t, ns.Flush(ctx))
		case 8:
			ok = exerciseCopies(t, ns, rng, m, int64((base+lba)*block))
		}
		if !ok {
			return
		}
	}
}

// exerciseCopies uses ReadAt, from any byte on, and WriteAt.
func exerciseCopies(t *testing.T, ns *host.Namespace, rng *rand.Rand, m []byte, off int64) bool {
	for i := range m {
		m[i] = byte(rng.Uint32())
	}
	n, err := ns.WriteAt(m, off)
	if !assert.NoError(t, err) || !assert.Equal(t, len(m), n) {
		return false
	}
	from := rng.IntN(len(m))
	got := make([]byte, 1+rng.IntN(len(m)-from))
	n, err = ns.ReadAt(got, off+int64(from))
	if err == io.EOF && off+int64(from+n) == ns.Size() {
		err = nil
	}
	return assert.NoError(t, err) && assert.Equal(t, len(got), n) && assert.True(t, bytes.Equal(m[from:from+n], got))
}

// pieces cuts n bytes into a list of whole blocks here and there in memory, and
// returns functions to fill it, and to look at it.
func pieces(rng *rand.Rand, memory *transport.Region, n, block int) (list []transport.Piece, fill func([]byte), got func() []byte) {
	at := 0
	var places []int
	for left := n; left > 0; {
		k := left
		if rng.IntN(2) == 0 {
			k = block * (1 + rng.IntN(left/block))
		}
		places = append(places, at)
		list = append(list, memory.Piece(uint64(at), uint32(k)))
		left -= k
		at += k + block*rng.IntN(2)
		if at+left+block > int(memory.Len()) {
			at -= block // no more room for gaps
		}
	}
	fill = func(data []byte) {
		for i, p := range list {
			data = data[copy(memory.Bytes()[places[i]:places[i]+int(p.Len)], data):]
		}
	}
	got = func() (data []byte) {
		for i, p := range list {
			data = append(data, memory.Bytes()[places[i]:places[i]+int(p.Len)]...)
		}
		return data
	}
	return list, fill, got
}

// TestNoWindows: registrations by calls in place of windows, and nothing is invalidated
// remotely.
func TestNoWindows(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, simulated(t, name), target.Config{})
			c := r.connect(host.Config{NoWindows: true})
			ns, err := c.Namespace(timeout(t), 1)
			require.NoError(t, err)
			exercise(t, c, ns, 0, 4, 20)
			assert.Positive(t, c.Stats().Exposed)
			if name == "rxe" {
				assert.Zero(t, c.Stats().RemoteInvalidated)
			}
		})
	}
}

func TestBounds(t *testing.T) {
	r := newRig(t, simulated(t, "rxe"), target.Config{})
	c := r.connect(host.Config{})
	ctx := timeout(t)
	ns, err := c.Namespace(ctx, 1)
	require.NoError(t, err)
	m := region(t, c, 1<<20)
	end := uint64(ns.Size()) / 512
	assert.ErrorIs(t, ns.Read(ctx, 0), transport.ErrInvalid)
	assert.ErrorIs(t, ns.Read(ctx, 0, m.Piece(0, 100)), host.ErrUnaligned)
	assert.ErrorIs(t, ns.Read(ctx, 0, m.Piece(0, 256), m.Piece(4096, 256)), host.ErrUnaligned, "one window can't cover both")
	assert.ErrorIs(t, ns.Read(ctx, end, m.Piece(0, 512)), nvme.LBAOutOfRange)
	assert.ErrorIs(t, ns.Read(ctx, ^uint64(0), m.Piece(0, 512)), nvme.LBAOutOfRange)
	assert.ErrorIs(t, ns.Write(ctx, end-1, m.Piece(0, 1024)), nvme.LBAOutOfRange)
	assert.ErrorIs(t, ns.Read(ctx, 0, m.Piece(1<<20-512, 1024)), transport.ErrRange)
	assert.ErrorIs(t, ns.WriteZeroes(ctx, end-1, 2), nvme.LBAOutOfRange)
	assert.NoError(t, ns.WriteZeroes(ctx, 0, 0))
	assert.ErrorIs(t, ns.Discard(ctx), transport.ErrInvalid)
	assert.NoError(t, ns.Discard(ctx, nvme.Range{LBA: 0, Blocks: 8}, nvme.Range{LBA: 100, Blocks: 1}))
	_, err = ns.ReadAt(make([]byte, 10), ns.Size())
	assert.Equal(t, io.EOF, err)
	n, err := ns.ReadAt(make([]byte, 10), ns.Size()-3)
	assert.Equal(t, 3, n)
	assert.Equal(t, io.EOF, err)
	_, err = ns.ReadAt(make([]byte, 10), -1)
	assert.ErrorIs(t, err, transport.ErrInvalid)
	_, err = ns.WriteAt(make([]byte, 512), 100)
	assert.ErrorIs(t, err, host.ErrUnaligned)
	_, err = ns.WriteAt(make([]byte, 512), ns.Size())
	assert.ErrorIs(t, err, nvme.LBAOutOfRange)
	_, err = ns.WriteAt(make([]byte, 512), -512)
	assert.ErrorIs(t, err, nvme.LBAOutOfRange)

	var q host.Request
	assert.ErrorIs(t, c.Submit(&q), host.ErrNotPrepared)
	assert.ErrorIs(t, ns.Prepare(&q, host.IO{Op: host.Read, Data: []transport.Piece{m.Piece(0, 512), m.Piece(4096, 512)}}), host.ErrTooLarge)
	assert.ErrorIs(t, ns.Prepare(&q, host.IO{Op: 0x77}), transport.ErrInvalid)
	data := []transport.Piece{m.Piece(0, 512)}
	err = ns.Prepare(&q, host.IO{LBA: 3, Data: data})
	assert.ErrorIs(t, err, transport.ErrInvalid, "what isn't said isn't a flush")
	assert.ErrorContains(t, err, "without Op")
	for _, io := range []host.IO{
		{Op: host.Flush, Data: data}, {Op: host.Flush, LBA: 3}, {Op: host.Flush, Blocks: 1}, {Op: host.Flush, FUA: true},
		{Op: host.WriteZeroes, Blocks: 1, Data: data}, {Op: host.WriteZeroes}, {Op: host.Read, Blocks: 1},
	} {
		assert.ErrorIs(t, ns.Prepare(&q, io), transport.ErrInvalid, "%+v", io)
	}
	assert.ErrorIs(t, ns.Prepare(&q, host.IO{Op: host.WriteZeroes, Blocks: 1<<16 + 1}), host.ErrTooLarge)
	assert.NoError(t, ns.Read(ctx, 0, m.Piece(0, 1<<20)), "all is well still")
}

func TestOpNames(t *testing.T) {
	for op, want := range map[host.Op]string{0: "operation 0", host.Read: "read", host.WriteZeroes: "write zeroes", host.Flush: "flush", 6: "operation 6"} {
		assert.Equal(t, want, op.String())
	}
}

// TestSubmit: many requests under way at once, none of them waited for by a goroutine.
func TestSubmit(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c := r.connect(host.Config{Queues: 2, Depth: 8})
		ns, err := c.Namespace(timeout(t), 1)
		require.NoError(t, err)
		const size = 8192
		m := region(t, c, 17*size)
		done := make(chan *host.Request, 17)
		requests := make([]host.Request, 17)
		send := func(q *host.Request, op host.Op, i int) error {
			q.OnDone = func(q *host.Request) { done <- q }
			require.NoError(t, ns.Prepare(q, host.IO{Op: op, LBA: uint64(i * size / 512), Data: []transport.Piece{m.Piece(uint64(i*size), size)}}))
			return c.Submit(q)
		}
		for i := range m.Bytes() {
			m.Bytes()[i] = byte(i / 7)
		}
		for _, op := range []host.Op{host.Write, host.Read} {
			if op == host.Read {
				clear(m.Bytes())
			}
			for i := range 16 {
				require.NoError(t, send(&requests[i], op, i))
			}
			for range 16 {
				assert.NoError(t, (<-done).Err())
			}
			assert.ErrorIs(t, c.Submit(&requests[0]), host.ErrNotPrepared, "it is over")
		}
		other := r.connect(host.Config{Queues: 1, Depth: 8})
		require.NoError(t, ns.Prepare(&requests[0], host.IO{Op: host.Read, Data: []transport.Piece{m.Piece(0, size)}}))
		assert.ErrorIs(t, other.Submit(&requests[0]), host.ErrNotPrepared, "for another controller")
		for i, b := range m.Bytes()[:16*size] {
			if byte(i/7) != b {
				require.Fail(t, "other data", "at %d", i)
			}
		}
	})
}

// TestReconnect: the target goes away, with commands under way, and comes back.
func TestReconnect(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c := r.connect(host.Config{Queues: 2, Depth: 8, ReconnectDelay: 10 * time.Millisecond})
		ns, err := c.Namespace(timeout(t), 1)
		require.NoError(t, err)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				m := region(t, c, 16<<10)
				for k := uint64(0); ; k++ {
					select {
					case <-stop:
						return
					default:
					}
					for j := range m.Bytes() {
						m.Bytes()[j] = byte(k) + byte(i)
					}
					lba := uint64(i) * 64
					if !assert.NoError(t, ns.Write(timeout(t), lba, m.Piece(0, 16<<10))) {
						return
					}
					clear(m.Bytes())
					if !assert.NoError(t, ns.Read(timeout(t), lba, m.Piece(0, 16<<10))) {
						return
					}
					want := bytes.Repeat([]byte{byte(k) + byte(i)}, 16<<10)
					if !bytes.Equal(want, m.Bytes()) {
						again := make([]byte, 16<<10)
						_, err := ns.ReadAt(again, int64(lba)*512)
						assert.Fail(t, "other data", "writer %d, write %d: %x at %d, and when read again %x (%v)",
							i, k, m.Bytes()[:8], differs(want, m.Bytes()), again[:8], err)
						return
					}
				}
			})
		}
		for life := range 3 {
			before := c.Stats().Commands
			eventually(t, "commands", func() bool { return c.Stats().Commands > before+20 })
			r.shutdown()
			r.serve()
			eventually(t, "a new connection", func() bool { return c.Stats().Reconnects > uint64(life) })
		}
		close(stop)
		wg.Wait()
		assert.NoError(t, c.Err())
	})
}

// differs returns where two slices begin to differ.
func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// TestLost: a target that doesn't come back.
func TestLost(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c := r.connect(host.Config{LossTimeout: -1})
		ns, err := c.Namespace(timeout(t), 1)
		require.NoError(t, err)
		m := region(t, c, 4096)
		r.shutdown()
		assert.ErrorIs(t, ns.Read(timeout(t), 0, m.Piece(0, 4096)), host.ErrLost)
		eventually(t, "the end", func() bool { return c.Err() != nil })
		var q host.Request
		require.NoError(t, ns.Prepare(&q, host.IO{Op: host.Flush}))
		assert.ErrorIs(t, c.Submit(&q), host.ErrLost)
		_, err = ns.ReadAt(make([]byte, 10), 0)
		assert.ErrorIs(t, err, host.ErrLost)
	})
}

func TestKeepAlive(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		timeout := 500 * time.Millisecond
		if at.real { // an emulated machine may stop for as long as that
			timeout = 4 * time.Second
		}
		c := r.connect(host.Config{KeepAlive: timeout})
		eventually(t, "keep alives", func() bool { return c.Stats().KeepAlives >= 3 })
		assert.Zero(t, c.Stats().Reconnects)
		assert.NoError(t, c.Err())
		assert.Equal(t, 1, r.Stats().Controllers)
	})
}

// TestClose: with commands under way, and twice.
func TestClose(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		c, err := r.dial(host.Config{Depth: 4})
		require.NoError(t, err)
		ns, err := c.Namespace(timeout(t), 1)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				buf := make([]byte, 64<<10)
				for {
					if _, err := ns.ReadAt(buf, 0); err != nil {
						assert.ErrorIs(t, err, host.ErrClosed)
						return
					}
				}
			})
		}
		eventually(t, "commands", func() bool { return c.Stats().Commands > 50 })
		require.NoError(t, c.Close())
		wg.Wait()
		assert.NoError(t, c.Close())
		_, err = c.Namespaces(timeout(t))
		assert.ErrorIs(t, err, host.ErrClosed)
		eventually(t, "no controllers", func() bool { return r.Stats().Controllers == 0 })
	})
}

// TestManyHosts: several controllers, of one device.
func TestManyHosts(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		var wg sync.WaitGroup
		for i := range 4 {
			c := r.connect(host.Config{Depth: 4, HostNQN: fmt.Sprintf("nqn.2014-08.org.example:host%d", i)})
			ns, err := c.Namespace(timeout(t), 1)
			require.NoError(t, err)
			wg.Go(func() { exercise(t, c, ns, uint64(i), 4, 20) })
		}
		wg.Wait()
		assert.Equal(t, 4, r.Stats().Controllers)
	})
}
