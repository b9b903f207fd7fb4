package sim

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// chancy runs WRITEs, READs and SENDs on several connections of a fabric on which
// things go wrong by themselves, and returns what came of each request.
func chancy(t *testing.T, name string, seed uint64, chances Chances) (log string, ended map[transport.Status]int) {
	t.Helper()
	var buf bytes.Buffer
	a, b, c := strangers(t, name, func(c *pairConfig) {
		c.cfg.Seed, c.cfg.Log, c.cfg.Faults.Chances = seed, &buf, chances
	})
	l, err := b.dev.Listen("b:1")
	require.NoError(t, err)
	rb, sink := b.expose(0, 8192, remoteRW), a.sink(64, 64)
	ended = make(map[transport.Status]int)
	const conns, rounds = 8, 5
	open := make(map[uint64]bool) // by cookie
	var deaths int
	for i := range uint64(conns) {
		x, y := *a, *b
		x.dial("b:1", c, transport.ConnParams{RetryCount: 2, AckTimeout: 10 * time.Millisecond})
		in, err := l.Next(t.Context())
		require.NoError(t, err)
		y.create(in, c)
		for j := range uint64(rounds) {
			y.recv(j, b.sge(8192, 64))
		}
		require.NoError(t, y.conn.Accept(transport.ConnParams{RetryCount: 2, AckTimeout: 10 * time.Millisecond}))
		_, err = x.conn.Established(t.Context())
		require.NoError(t, err)
		for j := range uint64(rounds) {
			cookie := (i*rounds + j) * 3
			wrs := []transport.WR{
				{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: rb.RKey(0), NumSGE: 1, Flags: transport.Signaled, Cookie: cookie},
				{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: rb.RKey(0), FirstSGE: 1, NumSGE: 1, Flags: transport.Signaled, Cookie: cookie + 1},
				{Op: transport.OpSend, NumSGE: 1, Flags: transport.Signaled, Cookie: cookie + 2},
			}
			if p := &a.dev.profile; !(p.Kernel && p.FlushesLate) && x.qp.State() != transport.QPReady {
				break // refused, or on siw never completed
			}
			x.post(wrs, a.sge(0, 64), sink)
			for k := range wrs {
				open[cookie+uint64(k)] = true
			}
			for range i {
				a.dev.fabric.Step()
			}
		}
	}
	a.dev.fabric.Drain()
	for _, done := range a.poll(a.cq) {
		require.True(t, open[done.Cookie], "%d ended twice, or never began", done.Cookie)
		delete(open, done.Cookie)
		ended[done.Status]++
	}
	require.Empty(t, open, "%s: each request ends", name)
	for c := range b.dev.conns {
		if c.killed {
			deaths++
		}
	}
	if chances.Death == 0 {
		require.Zero(t, deaths)
	}
	require.NoError(t, a.dev.fabric.Err())
	return buf.String(), ended
}

func TestChancesComeFromTheSeed(t *testing.T) {
	chances := Chances{Loss: 0.05, Delay: 0.1, Error: 0.01, Death: 0.01}
	for _, p := range Profiles() {
		log, ended := chancy(t, p.Name, 1, chances)
		again, _ := chancy(t, p.Name, 1, chances)
		require.Equal(t, log, again)
		other, _ := chancy(t, p.Name, 2, chances)
		require.NotEqual(t, log, other)
		require.Positive(t, ended[transport.StatusOK], p.Name)
	}
}

// All that can go wrong goes wrong in some run, and whatever it is, each request ends
// exactly once.
func TestChancesAllHappen(t *testing.T) {
	var logs strings.Builder
	statuses := make(map[transport.Status]int)
	for seed := range uint64(30) {
		log, ended := chancy(t, "rxe", seed, Chances{Loss: 0.2, Delay: 0.2, Error: 0.02, Death: 0.02})
		logs.WriteString(log)
		for status, n := range ended {
			statuses[status] += n
		}
	}
	for _, status := range append(chanceErrors[:], transport.StatusOK, transport.StatusFlushed, transport.StatusRetryExceeded) {
		require.Positive(t, statuses[status], status)
	}
	for _, what := range []string{"traffic lost 1 times", "traffic lost 3 times", "fails by chance", "killed"} {
		require.Contains(t, logs.String(), what)
	}
}

// A message that loses a packet arrives a timeout later; what comes behind it waits.
func TestLossIsARetransmission(t *testing.T) {
	const timeout = 10 * time.Millisecond
	elapsed := func(loss float64, retries int, seed uint64) (time.Duration, []transport.Completion) {
		a, b := newPair(t, "rxe", func(c *pairConfig) {
			c.cfg.Seed, c.cfg.Faults.Chances.Loss = seed, loss
			c.params = transport.ConnParams{AckTimeout: timeout, RetryCount: retries}
		})
		r := b.expose(0, 64, remoteRW)
		start := a.dev.fabric.Now()
		a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: r.RKey(0)}, a.sge(0, 64))
		a.dev.fabric.Drain()
		return a.dev.fabric.Now() - start, a.poll(a.cq)
	}
	took, got := elapsed(0, 7, 1)
	require.Less(t, took, timeout)
	require.Equal(t, []transport.Status{transport.StatusOK}, statuses(got))

	late := 0
	for seed := range uint64(20) {
		took, got = elapsed(0.4, 7, seed)
		require.Equal(t, []transport.Status{transport.StatusOK}, statuses(got))
		if took > timeout {
			late++
		}
	}
	require.Greater(t, late, 5, "of 20, two messages each")

	took, got = elapsed(1, 3, 1)
	require.Equal(t, []transport.Status{transport.StatusRetryExceeded}, statuses(got))
	require.GreaterOrEqual(t, took, 4*timeout, "the first try and three more")
}

// IWARP has no such status: the stream ends, and the peer hears of it.
func TestLossBeyondTheRetriesEndsAStream(t *testing.T) {
	a, b := newPair(t, "siw", func(c *pairConfig) {
		c.cfg.Faults.Chances.Loss = 1
	})
	r := b.expose(0, 64, remoteRW)
	a.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0)}, a.sink(0, 64))
	a.dev.fabric.Drain()
	require.Equal(t, []transport.Status{transport.StatusFlushed}, statuses(a.poll(a.cq)))
	require.Equal(t, transport.QPError, b.qp.State())
	require.ErrorIs(t, b.conn.Err(), transport.ErrDisconnected)
}

// Nothing behind a message that was lost for good is carried out.
func TestNothingOvertakesALostMessage(t *testing.T) {
	for seed := range uint64(50) {
		a, b := newPair(t, "mlx5", func(c *pairConfig) {
			c.cfg.Seed = seed
			c.cfg.Faults.Chances.Loss = 0.5
			c.params = transport.ConnParams{RetryCount: -1}
		})
		r := b.expose(0, 64, remoteRW)
		fill(a.mem(0, 64), 1)
		for i := range uint64(8) {
			a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + i*8, RKey: r.RKey(0), Cookie: i}, a.sge(i*8, 8))
		}
		a.dev.fabric.Drain()
		arrived := 0
		for arrived < 8 && bytes.Equal(b.mem(arrived*8, 8), a.mem(arrived*8, 8)) {
			arrived++
		}
		require.Equal(t, make([]byte, 64-arrived*8), b.mem(arrived*8, 64-arrived*8))
		got := statuses(a.poll(a.cq))
		require.Len(t, got, 8)
		ok := 0
		for ok < 8 && got[ok] == transport.StatusOK {
			ok++
		}
		require.LessOrEqual(t, ok, arrived, "what is complete has arrived")
	}
}

// In free-running mode, too, each request ends, whoever dies.
func TestChancesInFreeRunningMode(t *testing.T) {
	for _, name := range []string{"rxe", "siw-kernel"} {
		a, b, c := strangers(t, name, func(c *pairConfig) {
			c.cfg.Stepped = false
			c.cfg.Faults.Chances = Chances{Loss: 0.05, Delay: 0.05, LongestDelay: 100 * time.Microsecond, Error: 0.002, Death: 0.002}
		})
		l, err := b.dev.Listen("b:1")
		require.NoError(t, err)
		key := b.expose(0, 64, remoteRW).RKey(0)
		params := transport.ConnParams{RetryCount: 1, AckTimeout: time.Millisecond}
		failed := 0
		for range 20 {
			x, y := *a, *b
			x.dial("b:1", c, params)
			in, err := l.Next(t.Context())
			require.NoError(t, err)
			y.create(in, c)
			require.NoError(t, y.conn.Accept(params))
			_, err = x.conn.Established(t.Context())
			require.NoError(t, err)
			const n = 30
			for range n {
				x.one(transport.WR{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: key}, a.sge(0, 64))
			}
			for range n {
				if x.wait(x.cq).Status != transport.StatusOK {
					failed++
				}
			}
		}
		require.Positive(t, failed)
	}
}
