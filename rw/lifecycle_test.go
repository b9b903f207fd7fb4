package rw_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// left is what a process and the kernel hold on to.
type left struct {
	Goroutines, FDs int
	// Resources is what the kernel lists for the devices: PDs, CQs, QPs, MRs, CM
	// ids.
	Resources string
	// VmPin is pinned memory in KiB, Windows are memory windows, which the kernel
	// doesn't list.
	VmPin, Windows int
}

// windowsInUse counts those of real devices, if the tests were built for them.
var windowsInUse = func() int { return 0 }

func holdings(t *testing.T) left {
	l := left{Goroutines: runtime.NumGoroutine()}
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	l.FDs = len(fds)
	if os.Getenv("RDMARW_DEVICES") != "" {
		out, err := exec.Command("rdma", "resource", "show").CombinedOutput()
		require.NoError(t, err, "%s", out)
		l.Resources = string(out)
	}
	l.VmPin, l.Windows = pinned(t), windowsInUse()
	return l
}

// pinned reads how much memory of this process is pinned.
func pinned(t *testing.T) (kib int) {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(status), "\nVmPin:")
	require.True(t, found)
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib
}

// warmUp has librdmacm make what it makes once in a process for each device: a
// context, and with the first connection a protection domain.
func warmUp(t *testing.T, bed testbed) {
	t.Run("warm-up", func(t *testing.T) { connect(t, bed, rw.EndpointConfig{}) })
}

// requireNothingLeft waits for what ends a moment after its owner's Close, such
// as a goroutine that is on its way out.
func requireNothingLeft(t *testing.T, before left) {
	t.Helper()
	var now left
	for range 100 {
		now = holdings(t)
		// Fewer is fine: what was counted before may have been on its way out.
		if now.Goroutines <= before.Goroutines && now.FDs <= before.FDs && now.Resources == before.Resources &&
			now.VmPin <= before.VmPin && now.Windows <= before.Windows {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.Equal(t, before, now)
}

// rounds is how often to repeat, unless the environment says otherwise.
func rounds(t *testing.T, name string, n int) int {
	if s := os.Getenv(name); s != "" {
		_, err := fmt.Sscan(s, &n)
		require.NoError(t, err)
	}
	return n
}

func TestCyclesLeaveNothing(t *testing.T) {
	for _, bed := range testbeds {
		t.Run(bed.name, func(t *testing.T) {
			warmUp(t, bed)
			before := holdings(t)
			t.Run("cycles", func(t *testing.T) {
				p := connect(t, bed, rw.EndpointConfig{})
				cycle(t, p, 0)
				inside := holdings(t)
				for i := range rounds(t, "RDMARW_ROUNDS_CYCLES", 100) {
					cycle(t, p, uint64(i))
				}
				requireNothingLeft(t, inside)
			})
			requireNothingLeft(t, before)
		})
	}
}

// cycle connects, moves data by READ, WRITE and exposure, and disconnects.
func cycle(t *testing.T, p *pair, seed uint64) {
	cfg := rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 32, MaxRecvWR: 8}}
	t.Run("", func(t *testing.T) { // closes its endpoints when it ends
		a, b := p.dial(t, cfg, cfg)
		far := []transport.Piece{p.b.region.Piece(seed%100, 10000)}
		fill(p.b.region.Bytes()[:20000], seed)
		var x rw.Exposure
		remote := p.b.expose(b, &x, far, mrpool.ReadSource|mrpool.WriteSink)
		list := scattered(p.a.region, 4, 2500, 0)
		require.NoError(t, a.Read(within(t, time.Minute), list, remote...))
		require.Equal(t, bytesOf(p.b.region, far), bytesOf(p.a.region, list))
		require.NoError(t, a.Write(within(t, time.Minute), list, remote...))
		if seed%2 == 0 {
			p.b.revoke(b, &x)
		} // else its endpoint's Close does
	})
}

// TestPeerProcess is not a test: it is the peer that the tests below kill. It
// serves one connection: exposes memory, tells where, and waits to be killed.
func TestPeerProcess(t *testing.T) {
	name := os.Getenv("RDMARW_TEST_PEER")
	if name == "" {
		return
	}
	for _, bed := range testbeds {
		if bed.name != name {
			continue
		}
		_, dev, addr := bed.open(t)
		s := newSide(t, dev)
		l, err := dev.Listen(addr)
		require.NoError(t, err)
		fmt.Printf("listening %s\n", l.Addr())
		conn, err := l.Next(context.Background())
		require.NoError(t, err)
		ep, err := s.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: s.pool})
		require.NoError(t, err)
		hello := s.postRecv(ep)
		s.postRecv(ep) // see greet
		_, err = ep.Accept(context.Background(), transport.ConnParams{})
		require.NoError(t, err)
		require.NoError(t, receive(t, hello).Err())
		s.tell(ep)
		select {} // until killed
	}
}

// tell exposes memory and sends its descriptor.
func (s *side) tell(ep *rw.Endpoint) {
	x := new(rw.Exposure)
	require.NoError(s.t, ep.Expose(x, []transport.Piece{s.region.Piece(0, 64<<10)}, mrpool.ReadSource|mrpool.WriteSink))
	r := x.Remotes()[0]
	msg := s.region.Bytes()[1<<20:][:16]
	binary.BigEndian.PutUint64(msg, r.Addr)
	binary.BigEndian.PutUint32(msg[8:], r.Len)
	binary.BigEndian.PutUint32(msg[12:], uint32(r.Key))
	var send rw.Context
	require.NoError(s.t, ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{s.region.Piece(1<<20, 16)}}))
	require.NoError(s.t, await(s.t, ep, &x.Grant, &send))
}

// A peer is killed while READs and WRITEs run: every one of them ends, once, and
// nothing is left.
func TestKilledPeers(t *testing.T) {
	for _, bed := range testbeds {
		t.Run(bed.name, func(t *testing.T) {
			warmUp(t, bed)
			before := holdings(t)
			t.Run("kills", func(t *testing.T) {
				if strings.HasPrefix(bed.name, "sim-") {
					n := 2 // a killed peer is noticed after a while only
					if bed.name == "sim-rxe" || bed.name == "sim-siw" {
						n = 20
					}
					for i := range rounds(t, "RDMARW_ROUNDS_KILLS", n) {
						killSimulated(t, bed, i)
					}
					return
				}
				dev, _, _ := bed.open(t)
				s := newSide(t, dev)
				// The kernel takes its time with a process that dies with a window bound
				// (rxe: a minute), so they are waited for together.
				var killed []*exec.Cmd
				for i := range rounds(t, "RDMARW_ROUNDS_KILLS", 20) {
					killed = append(killed, killProcess(t, bed, s, i))
				}
				for _, cmd := range killed {
					require.Error(t, cmd.Wait(), "killed")
				}
			})
			requireNothingLeft(t, before)
		})
	}
}

func killProcess(t *testing.T, bed testbed, s *side, round int) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestPeerProcess$")
	cmd.Env = append(os.Environ(), "RDMARW_TEST_PEER="+bed.name)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	defer func() {
		if t.Failed() { // where does it hang?
			cmd.Process.Signal(syscall.SIGQUIT)
			time.Sleep(time.Second)
		}
		cmd.Process.Kill()
	}()
	var addr string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "listening %s", &addr); err == nil {
			break
		}
	}
	require.NotEmpty(t, addr, "the peer's address")
	conn, err := s.dev.Resolve(within(t, time.Minute), addr)
	require.NoError(t, err)
	s.loadAndKill(t, conn, round, func() { cmd.Process.Kill() })
	return cmd
}

func killSimulated(t *testing.T, bed testbed, round int) {
	t.Run("", func(t *testing.T) {
		devA, devB, addr := bed.open(t)
		a, b := newSide(t, devA), newSide(t, devB)
		l, err := devB.Listen(addr)
		require.NoError(t, err)
		served := make(chan *rw.Endpoint, 1)
		go func() {
			defer close(served)
			conn, err := l.Next(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			ep, err := b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: b.pool})
			if err != nil {
				t.Error(err)
				return
			}
			hello := b.postRecv(ep)
			if _, err := ep.Accept(context.Background(), transport.ConnParams{}); err != nil {
				t.Error(err)
			}
			if err := receive(t, hello).Err(); err != nil {
				t.Error(err)
			}
			b.tell(ep)
			served <- ep
		}()
		conn, err := devA.Resolve(context.Background(), l.Addr())
		require.NoError(t, err)
		var peer *rw.Endpoint
		a.loadAndKill(t, conn, round, func() {
			peer = <-served
			peer.Conn().(*sim.Conn).Kill()
		})
		require.NoError(t, l.Close())
		require.NoError(t, peer.Close())
	})
}

// greet sends the first message, and awaits the answer. On iWARP it is the active side that
// speaks first (RFC 5044 7.1.3), and siw's passive side may sleep over it: siw_accept answers
// before the socket's data is the queue pair's business (siw_cm.c: siw_send_mpareqrep, then
// siw_qp_socket_assoc), and looks at what came in between when more comes. So it is said again.
func (s *side) greet(ep *rw.Endpoint, answer chan *rw.Context) {
	for range 2 {
		var hello rw.Context
		require.NoError(s.t, ep.PrepareSend(&hello, rw.Message{Local: []transport.Piece{s.region.Piece(2<<20, 1)}}))
		require.NoError(s.t, await(s.t, ep, &hello))
		select {
		case got := <-answer:
			require.NoError(s.t, got.Err())
			return
		case <-time.After(10 * time.Second):
		}
	}
	require.NoError(s.t, receive(s.t, answer).Err())
}

// loadAndKill connects, keeps READs and WRITEs going, and kills the peer in the
// middle of them.
func (s *side) loadAndKill(t *testing.T, conn transport.Conn, round int, kill func()) {
	ep, err := s.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: s.pool})
	require.NoError(t, err)
	got := s.postRecv(ep)
	_, err = ep.Connect(within(t, time.Minute), transport.ConnParams{RetryCount: 2})
	require.NoError(t, err, "round %d", round)
	s.greet(ep, got)
	msg := s.region.Bytes()[regionSize-4096:]
	remote := []transport.Remote{{
		Addr: binary.BigEndian.Uint64(msg), Len: binary.BigEndian.Uint32(msg[8:]), Key: transport.RKey(binary.BigEndian.Uint32(msg[12:])),
	}}

	const n = 12
	var mu sync.Mutex
	submitted, ended := 0, 0
	over := make(chan struct{})
	cs := make([]rw.Context, n)
	submit := func(i int) bool {
		c := &cs[i]
		op := []rw.Op{rw.Read, rw.Write}[i%2]
		err := ep.Prepare(c, rw.Transfer{Op: op, Local: []transport.Piece{s.region.Piece(uint64(i)*100000, 60000)}, Remote: remote})
		if err == nil {
			err = ep.Submit(c)
		}
		return err == nil
	}
	for i := range cs {
		cs[i].OnDone = func(*rw.Context) {
			mu.Lock()
			defer mu.Unlock()
			ended++
			if submit(i) {
				submitted++
			}
			if ended == submitted {
				close(over)
			}
		}
	}
	mu.Lock()
	for i := range cs {
		require.True(t, submit(i))
		submitted++
	}
	mu.Unlock()
	time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
	kill()
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Fatalf("round %d: %d of %d operations never ended", round, submitted-ended, submitted)
	}
	require.Error(t, ep.Err())
	require.NoError(t, ep.Close())
}

// An endpoint that has failed while it was being connected isn't reported as connected, on
// either side.
func TestEstablishedSaysThatTheEndpointHasFailed(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "mlx5", "mlx5-kernel"} {
		for _, passive := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/passive=%v", profile, passive), func(t *testing.T) {
				p := connect(t, simBed(profile), rw.EndpointConfig{})
				ctx := within(t, 20*time.Second)
				conn, err := p.a.dev.Resolve(ctx, p.listen.Addr())
				require.NoError(t, err)
				a, err := p.a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, a.Close()) })
				require.NoError(t, conn.Connect(transport.ConnParams{}))
				conn, err = p.listen.Next(ctx)
				require.NoError(t, err)
				b, err := p.b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.b.pool})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, b.Close()) })
				if passive {
					b.Fail(nil)
					_, err = b.Accept(ctx, transport.ConnParams{})
					require.Error(t, err)
					require.NoError(t, b.Close())
					_, err = a.Established(ctx)
					require.ErrorIs(t, err, transport.ErrRejected)
					return
				}
				a.Fail(nil)
				require.NoError(t, b.Conn().Accept(transport.ConnParams{}))
				_, err = a.Established(ctx)
				require.Error(t, err)
				require.NoError(t, a.Close())
				<-b.Conn().Done()
			})
		}
	}
}

// The connection is up, and the endpoint has failed since.
func TestEstablishedOfAnEndpointThatFailedSince(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	a, _ := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
	_, err := a.Established(within(t, 20*time.Second))
	require.NoError(t, err)
	because := errors.New("because")
	a.Fail(because)
	_, err = a.Established(within(t, 20*time.Second))
	require.ErrorIs(t, err, because)
}
