package host_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rounds reads a number of rounds from the environment: scripts/nvmeof/leaks asks for
// many.
func rounds(t testing.TB, variable string, few int) int {
	if s := os.Getenv(variable); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		return n
	}
	return few
}

// level is what must not grow.
type level struct {
	goroutines int
	resident   int // KiB
	kernel     int // objects of this process's that the kernel has
}

func measure(t testing.TB, at place) (l level) {
	runtime.GC()
	l.goroutines = runtime.NumGoroutine()
	if at.real {
		l.kernel = len(resources(t))
	}
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	require.NoError(t, err)
	l.resident = pages * os.Getpagesize() / 1024
	return l
}

// requireLevel waits until nothing is there that wasn't before: what ends a connection
// goes on in the background for a moment.
func requireLevel(t testing.TB, at place, before level) {
	t.Helper()
	var now level
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		now = measure(t, at)
		if now.goroutines <= before.goroutines && now.kernel <= before.kernel {
			break
		}
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			require.Fail(t, "left over", "before: %+v, now: %+v\n%s", before, now, buf[:runtime.Stack(buf, true)])
		}
	}
	t.Logf("before: %+v, now: %+v", before, now)
	// One connection takes some MiB, a leak of one object per connection would show.
	assert.LessOrEqual(t, now.resident, before.resident+before.resident/4+16<<10, "resident memory in KiB")
}

// TestCycles: connections made, used and closed, one after the other.
func TestCycles(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		r := newRig(t, at, target.Config{})
		once := func() {
			c, err := r.dial(host.Config{Queues: 2, Depth: 8})
			require.NoError(t, err)
			ns, err := c.Namespace(timeout(t), 1)
			require.NoError(t, err)
			_, err = ns.WriteAt(make([]byte, 64<<10), 0)
			require.NoError(t, err)
			_, err = ns.ReadAt(make([]byte, 100), 1000)
			require.NoError(t, err)
			require.NoError(t, c.Close())
			eventually(t, "no controllers", func() bool { s := r.Stats(); return s.Controllers == 0 && s.Queues == 0 })
		}
		for range 5 {
			once()
		}
		before := measure(t, at)
		for range rounds(t, "RDMARW_ROUNDS_CYCLES", 10) {
			once()
		}
		requireLevel(t, at, before)
	})
}

// TestKilledHosts: hosts die under load. On simulated devices their device stops; on
// real ones they are processes, and are killed. The target gets over all of them.
func TestKilledHosts(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		n := rounds(t, "RDMARW_ROUNDS_KILLS", 5)
		if !at.real {
			if at.name == "siw" || at.name == "siw-kernel" {
				t.Skip("what a dead peer leaves behind is the same on the others, and takes seconds each")
			}
			killSimulated(t, at.name, n)
			return
		}
		r := newRig(t, at, target.Config{})
		kill := func() {
			child := exec.Command(os.Args[0], "-test.run", "^TestVictim$")
			child.Env = append(os.Environ(), "NVMEOF_VICTIM="+at.name, "NVMEOF_VICTIM_ADDR="+r.addr)
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != "under load" {
			}
			require.NoError(t, lines.Err())
			require.NoError(t, child.Process.Kill())
			child.Wait()
			eventually(t, "no controllers", func() bool { s := r.Stats(); return s.Controllers == 0 && s.Queues == 0 })
		}
		kill()
		before := measure(t, at)
		for range n {
			kill()
		}
		requireLevel(t, at, before)
		c := r.connect(host.Config{})
		_, err := c.Namespaces(timeout(t))
		assert.NoError(t, err, "the target is well")
	})
}

// TestVictim is the process that TestKilledHosts kills.
func TestVictim(t *testing.T) {
	name := os.Getenv("NVMEOF_VICTIM")
	if name == "" {
		t.Skip("only for TestKilledHosts")
	}
	dev, _ := openReal(t, name)
	// Without windows, or rxe's kernel takes a minute to bury it: see Config.NoWindows.
	c, err := host.Connect(context.Background(), os.Getenv("NVMEOF_VICTIM_ADDR"), nqn, host.Config{Device: dev, Queues: 2, Depth: 8, NoWindows: true})
	require.NoError(t, err)
	ns, err := c.Namespace(context.Background(), 1)
	require.NoError(t, err)
	underLoad(c, ns)
	fmt.Println("under load")
	time.Sleep(time.Minute)
}

// underLoad keeps reads and writes going until they fail, and returns when it is under
// way.
func underLoad(c *host.Controller, ns *host.Namespace) {
	for i := range 8 {
		go func() {
			m, err := c.NewRegion(64 << 10)
			for err == nil {
				err = ns.Write(context.Background(), uint64(i)*128, m.Piece(0, 64<<10))
				if err == nil {
					err = ns.Read(context.Background(), uint64(i)*128, m.Piece(0, 64<<10))
				}
			}
		}()
	}
	for c.Stats().Commands < 30 && c.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// killSimulated kills hosts' devices.
func killSimulated(t *testing.T, name string, n int) {
	profile, _ := sim.LookupProfile(name)
	fabric := sim.New(sim.Config{})
	at := place{name, false, func(t testing.TB) (targetDev, hostDev transport.Device, addr string) {
		dev, err := fabric.NewDevice(profile, "target")
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, dev.Close())
			assert.NoError(t, fabric.Err())
			assert.NoError(t, fabric.Close())
		})
		return dev, nil, "target:4420"
	}}
	r := newRig(t, at, target.Config{})
	// All at once: a target waits for seconds before it gives a silent queue pair up.
	var wg sync.WaitGroup
	for i := range n {
		dev, err := fabric.NewDevice(profile, fmt.Sprintf("host%d", i))
		require.NoError(t, err)
		c, err := r.dial(host.Config{Device: dev, Queues: 2, Depth: 8, KeepAlive: 500 * time.Millisecond, LossTimeout: -1})
		require.NoError(t, err)
		ns, err := c.Namespace(timeout(t), 1)
		require.NoError(t, err)
		wg.Go(func() {
			underLoad(c, ns)
			dev.Kill()
			eventually(t, "the end of the host", func() bool { return c.Err() != nil })
			assert.ErrorIs(t, c.Err(), host.ErrLost)
			assert.NoError(t, c.Close())
		})
	}
	wg.Wait()
	eventually(t, "no controllers", func() bool { s := r.Stats(); return s.Controllers == 0 && s.Queues == 0 })
}
