package sim

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"rdmarw/transport"
)

// busyRun is a workload with real concurrency: requests of all kinds in both
// directions on several connections at once, and an error in the end.
func busyRun(t *testing.T, name string, seed uint64) (log string) {
	var buf bytes.Buffer
	a, b, c := strangers(t, name, func(c *pairConfig) { c.cfg.Seed = seed; c.cfg.Log = &buf })
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	ra := a.expose(0, 8192, remoteRW)
	rb := b.expose(0, 8192, remoteRW)
	sa, sb := a.sink(0, 64), b.sink(0, 64)
	var pairs [][2]*side
	for range 3 {
		x, y := *a, *b
		x.dial("b:1", c, transport.ConnParams{})
		in, err := l.Next(t.Context())
		require.NoError(t, err)
		y.create(in, c)
		require.NoError(t, y.conn.Accept(transport.ConnParams{}))
		_, err = x.conn.Established(t.Context())
		require.NoError(t, err)
		pairs = append(pairs, [2]*side{&x, &y})
	}
	for i := range 10 {
		for _, p := range pairs {
			p[0].recv(uint64(i), a.sge(8192, 64))
			p[1].recv(uint64(i), b.sge(8192, 64))
			for j, s := range p {
				peer, r, sink := b, rb, sa
				if j == 1 {
					peer, r, sink = a, ra, sb
				}
				s.post([]transport.WR{
					{Op: transport.OpWrite, RemoteAddr: peer.region.Addr(), RKey: r.RKey(0), NumSGE: 1},
					{Op: transport.OpRead, RemoteAddr: peer.region.Addr(), RKey: r.RKey(0), FirstSGE: 1, NumSGE: 1, Flags: transport.Signaled},
					{Op: transport.OpSend, NumSGE: 1, Flags: transport.Signaled},
				}, s.sge(0, 64), sink)
			}
		}
		for range i * 3 {
			a.dev.fabric.Step()
		}
	}
	pairs[0][0].post([]transport.WR{{Op: transport.OpRead, RKey: 1, NumSGE: 1}}, a.sge(0, 64))
	a.dev.fabric.Drain()
	a.poll(a.cq)
	b.poll(b.rcq)
	return buf.String()
}

func TestOneSeedIsOneScheduleByteForByte(t *testing.T) {
	for _, p := range Profiles() {
		first := busyRun(t, p.Name, 1)
		require.Greater(t, len(first), 10000)
		require.Equal(t, first, busyRun(t, p.Name, 1))
		require.NotEqual(t, first, busyRun(t, p.Name, 2))
	}
}

func TestFaultPlan(t *testing.T) {
	t.Run("a request fails with a status", func(t *testing.T) {
		a, _ := newPair(t, "rxe", func(c *pairConfig) {
			c.cfg.Faults.Run = func(q *QP, k uint64, wr *transport.WR) transport.Status {
				if k == 2 {
					return transport.StatusRemoteOp
				}
				return transport.StatusOK
			}
		})
		a.post(write(4))
		got := a.completions()
		require.Equal(t, []transport.Status{transport.StatusRemoteOp, transport.StatusFlushed}, statuses(got))
		require.Equal(t, uint64(2), got[0].Cookie)
	})
	t.Run("a post is refused at a position", func(t *testing.T) {
		a, _ := newPair(t, "siw", func(c *pairConfig) {
			c.cfg.Faults.Post = func(q *QP, k uint64, wr *transport.WR) error {
				if k == 2 {
					return transport.ErrNoMemory
				}
				return nil
			}
		})
		wrs := write(4)
		wrs[1].Flags = transport.Signaled
		a.refused(transport.ErrNoMemory, 2, wrs)
		require.Len(t, a.completions(), 1)
	})
	t.Run("a completion is delayed, and those behind it", func(t *testing.T) {
		for _, stepped := range []bool{true, false} {
			a, _ := newPair(t, "siw", func(c *pairConfig) {
				c.cfg.Stepped = stepped
				c.cfg.Faults.Delay = func(q *QP, k uint64, wr *transport.WR) time.Duration {
					if k == 0 {
						return 20 * time.Millisecond
					}
					return 0
				}
			})
			wrs := write(2)
			wrs[0].Flags, wrs[1].Flags = transport.Signaled, transport.Signaled
			start, before := time.Now(), a.dev.fabric.Now()
			a.post(wrs)
			require.Empty(t, a.poll(a.cq))
			require.Equal(t, uint64(0), a.wait(a.cq).Cookie)
			if stepped {
				require.GreaterOrEqual(t, a.dev.fabric.Now()-before, 20*time.Millisecond)
			} else {
				require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
			}
			require.Equal(t, uint64(1), a.wait(a.cq).Cookie)
		}
	})
	t.Run("allocations fail", func(t *testing.T) {
		var fail Allocation
		a, _ := newPair(t, "siw-kernel", func(c *pairConfig) {
			fail = 255
			c.cfg.Faults.Allocate = func(d *Device, what Allocation) error {
				if what == fail {
					return transport.ErrMemlock
				}
				return nil
			}
		})
		r, err := a.pd.NewRegistration(transport.SyncMR, 0)
		require.NoError(t, err)
		region, err := a.dev.NewRegion(transport.RegionConfig{Size: 1})
		require.NoError(t, err)
		for what, try := range map[Allocation]func() error{
			AllocPD:           func() error { _, err := a.dev.NewPD(); return err },
			AllocCQ:           func() error { _, err := a.dev.NewCQ(1); return err },
			AllocQueue:        func() error { _, err := a.pd.NewSRQ(1, 1); return err },
			AllocRegion:       func() error { _, err := a.dev.NewRegion(transport.RegionConfig{Size: 1}); return err },
			AllocRegionKey:    func() error { return a.pd.AddRegion(region) },
			AllocRegistration: func() error { _, err := a.pd.NewRegistration(transport.FastMR, 1); return err },
			AllocMap: func() error {
				_, err := r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(0, 1)}})
				return err
			},
		} {
			fail = what
			require.ErrorIs(t, try(), transport.ErrMemlock, "%d", what)
		}
		fail = 255
		require.NoError(t, region.Close(), "a failed AddRegion leaves no user behind")
	})
}

func TestTablesRunOut(t *testing.T) {
	a, _ := newPair(t, "rxe", func(c *pairConfig) { c.a.Caps.MaxMR, c.a.Caps.MaxWindows = 2, 1 })
	a.expose(0, 8, 0)
	r, err := a.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(t, err)
	_, err = r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(0, 1)}})
	require.ErrorIs(t, err, transport.ErrNoMemory)
	w := a.window()
	_, err = a.pd.NewRegistration(transport.Window, 0)
	require.ErrorIs(t, err, transport.ErrNoMemory)
	require.NoError(t, w.Close())
	a.window()
}

func TestKeysAreNotReusedSoon(t *testing.T) {
	a, _ := newPair(t, "rxe")
	r, err := a.pd.NewRegistration(transport.SyncMR, 0)
	require.NoError(t, err)
	seen := make(map[transport.RKey]bool)
	for range 10000 {
		_, err = r.Map(transport.Mapping{List: []transport.Piece{a.region.Piece(0, 1)}})
		require.NoError(t, err)
		require.False(t, seen[r.RKey(0)])
		seen[r.RKey(0)] = true
	}
	require.Less(t, len(a.dev.mrs.objects), 100, "the table doesn't grow")
}

func TestAddressesAreSimulatedAndApart(t *testing.T) {
	a, b, _ := strangers(t, "rxe")
	require.Equal(t, uint64(addressBase), a.region.Addr())
	require.Equal(t, uint64(addressBase+1<<addressShift), b.region.Addr())
	prev := a.region
	for range 3 {
		r, err := a.dev.NewRegion(transport.RegionConfig{Size: 4097})
		require.NoError(t, err)
		require.Zero(t, r.Addr()%pageSize)
		require.GreaterOrEqual(t, r.Addr(), prev.Addr()+prev.Len()+pageSize)
		require.Nil(t, a.dev.memory(r.Addr()+4090, 8), "the region ends after its size")
		require.NotNil(t, a.dev.memory(r.Addr()+4089, 8))
		if prev != a.region {
			require.NoError(t, prev.Close())
			require.Nil(t, a.dev.memory(prev.Addr(), 1))
		}
		prev = r
	}
	_, err := a.dev.NewRegion(transport.RegionConfig{Size: 0})
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = a.dev.NewRegion(transport.RegionConfig{Size: 8, Access: transport.RemoteRead})
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.ErrorIs(t, b.pd.AddRegion(prev), transport.ErrInvalid, "of another device")
	require.ErrorIs(t, a.pd.AddRegion(a.region), transport.ErrBusy)
	require.NoError(t, prev.Close())
	require.ErrorIs(t, a.pd.AddRegion(prev), transport.ErrClosed)
}

func TestWrappedMemoryIsTheOwners(t *testing.T) {
	a, b := newPair(t, "rxe")
	mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	r, err := b.dev.WrapRegion(uintptr(unsafe.Pointer(&mem[100])), 4096, transport.LocalWrite, os.Stdin)
	require.NoError(t, err)
	require.Equal(t, uint64(100), r.Addr()%pageSize, "the offset in the page is kept")
	require.NoError(t, b.pd.AddRegion(r))
	e := b.pd.Regions().View().Lookup(r.ID())
	b.recv(1, transport.SGE{Addr: r.Addr() + 10, Len: 5, LKey: e.LKey})
	copy(a.mem(0, 5), "wrapt")
	a.one(transport.WR{Op: transport.OpSend}, a.sge(0, 5))
	require.Len(t, b.receives(), 1)
	require.Equal(t, "wrapt", string(mem[110:115]))
	require.NoError(t, b.pd.RemoveRegion(r))
	require.NoError(t, r.Close())
	require.Equal(t, "wrapt", string(mem[110:115]))
	_, err = b.dev.WrapRegion(0, 1, 0, nil)
	require.ErrorIs(t, err, transport.ErrInvalid)
}

func TestStatsCountWhatWasDone(t *testing.T) {
	a, b := newPair(t, "rxe")
	before := a.dev.Stats()
	r := b.expose(0, 64, remoteRW)
	a.post([]transport.WR{
		{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1},
		{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1, Flags: transport.Signaled},
	}, a.sge(0, 64))
	a.completions()
	sa, sb := a.dev.Stats(), b.dev.Stats()
	require.Equal(t, uint64(1), sa.Count(transport.OpWrite))
	require.Equal(t, uint64(1), sa.Count(transport.OpRead))
	require.Equal(t, uint64(128), sa.BytesPosted)
	require.Equal(t, uint64(64), sa.BytesIn)
	require.Equal(t, uint64(1), sa.Completions)
	require.Equal(t, before.Registrations, sa.Registrations)
	require.Equal(t, uint64(64), sb.BytesIn)
	require.Equal(t, uint64(64), sb.BytesOut)
	require.Equal(t, uint64(2), sb.Registrations, "the region and the MR")
}

func TestModelledCost(t *testing.T) {
	elapsed := func(n uint32, chain int) time.Duration {
		a, _ := newPair(t, "rxe", func(c *pairConfig) { c.size = 1 << 20 })
		before := a.dev.fabric.Now()
		for range chain {
			a.one(transport.WR{Op: transport.OpWrite, RKey: 1}, a.sge(0, n))
		}
		a.wait(a.cq)
		return a.dev.fabric.Now() - before
	}
	require.Greater(t, elapsed(1<<20, 1), elapsed(1<<10, 1)+500*time.Microsecond, "a mebibyte takes time")

	a, _ := newPair(t, "rxe")
	before := a.dev.fabric.Now()
	a.expose(0, 4096, 0)
	require.Greater(t, a.dev.fabric.Now()-before, 50*time.Microsecond, "a registration takes its caller's time")
}

func TestDeviceNamesAreUnique(t *testing.T) {
	f := New(Config{})
	defer func() { require.NoError(t, f.Close()) }()
	d, err := f.NewDevice(profile(t, "rxe"), "x")
	require.NoError(t, err)
	require.Equal(t, "x", d.Caps().Device)
	for _, name := range []string{"x", ""} {
		_, err = f.NewDevice(profile(t, "rxe"), name)
		require.ErrorIs(t, err, transport.ErrInvalid)
	}
	require.NoError(t, d.Close())
	_, err = f.NewDevice(profile(t, "rxe"), "x")
	require.NoError(t, err, "a closed device's name is free")
	require.NoError(t, f.Close())
	_, err = f.NewDevice(profile(t, "rxe"), "y")
	require.ErrorIs(t, err, transport.ErrClosed)
}

func TestLookupProfile(t *testing.T) {
	_, ok := LookupProfile("nothing")
	require.False(t, ok)
	names := make(map[string]bool)
	for _, p := range Profiles() {
		require.False(t, names[p.Name])
		names[p.Name] = true
		c := &p.Caps
		require.Positive(t, c.MaxSendSGE, p.Name)
		require.Positive(t, c.MaxSGERead, p.Name)
		require.Positive(t, c.MaxMsg, p.Name)
		require.Positive(t, p.Cost.Bandwidth, p.Name)
		require.Equal(t, c.FastReg.MaxPages > 0, c.FastReg.PageSizes > 0, p.Name)
		require.Equal(t, c.Windows != transport.NoWindows, c.MaxWindows > 0, p.Name)
		if c.Windows == transport.NoWindows {
			require.Equal(t, transport.InvNone, c.LocalInv[transport.Window], p.Name)
		}
	}
}

func TestRingKeepsSequenceNumbersWhileItGrows(t *testing.T) {
	var r ring[int]
	for i := range 100 {
		r.push(i)
		if i%3 == 0 {
			oldest := int(r.head)
			require.Equal(t, oldest, r.pop())
		}
		for seq := r.head; seq < r.tail; seq++ {
			require.Equal(t, int(seq), *r.at(seq))
		}
	}
}

func TestEventHeapOrdersByTimeThenSeedThenSchedule(t *testing.T) {
	var h eventHeap
	for i := range uint32(200) {
		h.push(event{at: int64(i * 7 % 5), tie: i * 13 % 3, seq: i})
	}
	last := h.pop()
	for len(h) > 0 {
		e := h.pop()
		require.True(t, last.before(&e), fmt.Sprint(last, e))
		last = e
	}
}
