package sim

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"rdmarw/transport"
)

// BenchmarkWrite posts 64-byte WRITEs in chains of 16, the last of each
// signaled, and steps the fabric until they are complete. The goal is a million
// a second on one core: 1000 CPU-ns/op, by the process's own time, which other
// users of the machine take no part in.
func BenchmarkWrite(b *testing.B) {
	for _, name := range []string{"rxe", "siw"} {
		b.Run(name, func(b *testing.B) {
			x, y := benchPair(b, name, true)
			key := y.expose(0, 4096, transport.LocalWrite|transport.RemoteWrite).RKey(0)
			wrs := make([]transport.WR, 16)
			for i := range wrs {
				wrs[i] = transport.WR{Op: transport.OpWrite, RemoteAddr: y.region.Addr() + uint64(i)*64, RKey: key, FirstSGE: 0, NumSGE: 1}
			}
			wrs[15].Flags = transport.Signaled
			sges := []transport.SGE{x.sge(0, 64)}
			var done [16]transport.Completion
			b.ReportAllocs()
			start := processTime(b)
			b.ResetTimer()
			for i := 0; i < b.N; i += len(wrs) {
				for posted := 0; posted < len(wrs); {
					n, _ := x.qp.PostSend(wrs[posted:], sges)
					posted += n
					x.dev.fabric.Drain()
					if _, err := x.cq.Poll(done[:]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(processTime(b)-start)/float64(b.N), "CPU-ns/op")
		})
	}
}

// BenchmarkRead is one READ at a time, waited for, in free-running mode: the
// cost of a wake-up.
func BenchmarkReadFreeRunning(b *testing.B) {
	x, y := benchPair(b, "rxe", false)
	key := y.expose(0, 4096, transport.RemoteRead).RKey(0)
	wrs := []transport.WR{{Op: transport.OpRead, RemoteAddr: y.region.Addr(), RKey: key, NumSGE: 1, Flags: transport.Signaled}}
	sges := []transport.SGE{x.sge(0, 4096)}
	var done [1]transport.Completion
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.qp.PostSend(wrs, sges); err != nil {
			b.Fatal(err)
		}
		for {
			_ = x.cq.Arm()
			if n, _ := x.cq.Poll(done[:]); n == 1 {
				break
			}
			if err := x.cq.Wait(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func benchPair(b *testing.B, name string, stepped bool) (x, y *side) {
	b.Helper()
	f := New(Config{Stepped: stepped})
	b.Cleanup(func() { _ = f.Close() })
	c := defaults(b, name)
	return connectPair(b, f, &c)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, p := range Profiles() {
		a, b := newPair(t, p.Name)
		r := b.expose(0, 8192, remoteRW)
		wrs := []transport.WR{
			{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1},
			{Op: transport.OpSend, NumSGE: 1, FirstSGE: 2, Flags: transport.Inline},
			{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), FirstSGE: 1, NumSGE: 1, Flags: transport.Signaled},
		}
		sges := []transport.SGE{a.sge(0, 5000), a.sink(8192, 3000), a.sge(0, 8)}
		recv := []transport.RecvWR{{NumSGE: 1}}
		into := []transport.SGE{b.sge(16384, 64)}
		var done [8]transport.Completion
		round := func() {
			_, err1 := b.qp.PostRecv(recv, into)
			_, err2 := a.qp.PostSend(wrs, sges)
			a.dev.fabric.Drain()
			n, err3 := a.cq.Poll(done[:])
			m, err4 := b.rcq.Poll(done[:])
			if err1 != nil || err2 != nil || err3 != nil || err4 != nil || n != 1 || m != 1 {
				t.Fatal(err1, err2, err3, err4, n, m)
			}
		}
		for range 100 {
			round()
		}
		require.Zero(t, testing.AllocsPerRun(100, round), p.Name)
	}
}

// TestManyQueuePairs: ten thousand connections with a transfer in flight each fit
// into a gibibyte, with room to spare, and take no goroutine each.
func TestManyQueuePairs(t *testing.T) {
	if testing.Short() {
		t.Skip("several seconds")
	}
	for _, stepped := range []bool{true, false} {
		t.Run(map[bool]string{true: "stepped", false: "free"}[stepped], func(t *testing.T) { manyQueuePairs(t, stepped) })
	}
}

func manyQueuePairs(t *testing.T, stepped bool) {
	const n = 10000
	goroutines := runtime.NumGoroutine()
	before := heap()
	f := New(Config{Stepped: stepped})
	defer func() { require.NoError(t, f.Close()) }()
	c := defaults(t, "rxe")
	c.cqe = 1 << 19
	c.a.Caps.MaxCQE, c.b.Caps.MaxCQE = c.cqe, c.cqe // rxe's are smaller
	a, b := newSide(t, f, c.a, "a", &c), newSide(t, f, c.b, "b", &c)
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	ctx := context.Background()
	conns := make([]side, n)
	for i := range n {
		x := &conns[i]
		*x = *a
		x.conn, x.qp = nil, nil
		conn, err := a.dev.Resolve(ctx, "b:1")
		require.NoError(t, err)
		x.create(conn, &c)
		require.NoError(t, x.conn.Connect(transport.ConnParams{}))
		in, err := l.Next(ctx)
		require.NoError(t, err)
		b.create(in, &c)
		require.NoError(t, b.conn.Accept(transport.ConnParams{}))
		_, err = x.conn.Established(ctx)
		require.NoError(t, err)
	}
	// Nobody has posted a receive, and RNR retries have no end: what is sent stays in
	// flight.
	for i := range conns {
		conns[i].one(transport.WR{Op: transport.OpSend}, a.sge(0, 64))
	}
	if stepped {
		f.Settle(settleTime)
	} else {
		require.Eventually(t, func() bool { return b.dev.Stats().BytesIn == 0 && inFlight(f, b.dev) == n }, 10*time.Second, time.Millisecond)
	}
	require.Equal(t, n, inFlight(f, b.dev))
	require.Empty(t, a.poll(a.cq))
	used := heap() - before
	t.Logf("%d MiB, %d bytes a queue pair, %d goroutines more", used>>20, used/(2*n), runtime.NumGoroutine()-goroutines)
	require.Less(t, used, uint64(1<<30))
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+4)
	runtime.KeepAlive(f)
	runtime.KeepAlive(conns)
}

// inFlight counts the messages that have reached a device and not been taken in.
func inFlight(f *Fabric, d *Device) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.qps {
		if q != nil && q.dev == d {
			n += q.requests.len()
		}
	}
	return n
}

// processTime is the CPU time of the process, on all cores.
func processTime(b *testing.B) time.Duration {
	var use unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
