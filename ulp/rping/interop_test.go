//go:build ibverbs && linux && cgo

package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cSizes are the smallest and the largest ping that C's rping takes, and one that is
// no whole number of pages.
var cSizes = []int{23, 4095, 65535}

// cCount is how many pings are exchanged with C's rping: in an emulated machine,
// 1,000 take between 5 s and a minute.
func cCount() int {
	if testing.Short() {
		return 100
	}
	return 1000
}

// cProgram runs C's rping.
func cProgram(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	out := new(bytes.Buffer)
	cmd := exec.Command("rping", args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 10 * time.Second
	return cmd, out
}

func split(t *testing.T, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return host, port
}

// TestCLimits is why 1 and 65,536 bytes are not among cSizes.
func TestCLimits(t *testing.T) {
	if realDevices() == nil {
		t.Skip("no RDMA device (RDMARW_DEVICES)")
	}
	for _, size := range []string{"1", "22", "65536"} {
		cmd, out := cProgram(t, "-c", "-a", "127.0.0.1", "-S", size)
		assert.Error(t, cmd.Run())
		assert.Contains(t, out.String(), "Invalid size")
	}
}

// TestCClient: C's rping verifies what comes back, the server what it reads.
func TestCClient(t *testing.T) {
	for _, name := range realDevices() {
		for _, size := range cSizes {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				dev, _, addr := real(t, name)
				addr, ends := serve(t, Server{Device: dev, MaxSize: size, Verify: true}, addr)
				host, port := split(t, addr)
				cmd, out := cProgram(t, "-c", "-V", "-C", fmt.Sprint(cCount()), "-S", fmt.Sprint(size), "-a", host, "-p", port)
				start := time.Now()
				require.NoError(t, cmd.Run(), "%s", out)
				assert.NotContains(t, out.String(), "mismatch")
				assert.Equal(t, end{pings: cCount()}, next(t, ends))
				t.Logf("C client, Go server: %d pings of %d bytes on %s, both sides verified, %v", cCount(), size, name, time.Since(start).Round(time.Millisecond))
			})
		}
	}
}

// startCServer runs C's rping as a server, and waits until it listens.
func startCServer(t *testing.T, host string, size int) (addr string, cmd *exec.Cmd, out *bytes.Buffer, exited chan error) {
	t.Helper()
	const port = "7175"
	cmd, out = cProgram(t, "-s", "-V", "-S", fmt.Sprint(size), "-a", host, "-p", port)
	require.NoError(t, cmd.Start())
	exited = make(chan error, 1)
	go func() { exited <- cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		for range exited {
		}
	})
	require.Eventually(t, func() bool {
		out, err := exec.Command("rdma", "resource", "show", "cm_id").Output()
		return err == nil && bytes.Contains(out, fmt.Appendf(nil, "pid %d ", cmd.Process.Pid)) && bytes.Contains(out, []byte("LISTEN"))
	}, 20*time.Second, 50*time.Millisecond, "C's rping doesn't listen")
	return net.JoinHostPort(host, port), cmd, out, exited
}

// TestCServer: C's rping reads and writes through keys that live for one operation.
func TestCServer(t *testing.T) {
	for _, name := range realDevices() {
		for _, size := range cSizes {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				_, dev, addr := real(t, name)
				host, _ := split(t, addr)
				addr, _, out, exited := startCServer(t, host, size)
				client := Client{Device: dev, Size: size, Count: cCount(), Verify: true}
				start := time.Now()
				pings, err := client.Ping(timeout(t), addr)
				took := time.Since(start)
				require.NoError(t, err, "%s", out)
				assert.Equal(t, cCount(), pings)
				select {
				case err := <-exited:
					t.Logf("C server: %v, %q", err, out)
				case <-time.After(20 * time.Second):
					t.Error("the C server has not noticed that the client left")
				}
				t.Logf("Go client, C server: %d pings of %d bytes on %s, verified, %v", cCount(), size, name, took.Round(time.Millisecond))
			})
		}
	}
}

// ofAKilledPeer says whether a connection may end so when the peer's process is killed. The
// kernel disconnects it; but the queue pair may answer no more before that, or its memory be
// gone first: then a READ or WRITE finds the key dead, and a SEND a receive without memory.
// On iWARP what was refused may fail here before it is known why (RFC 5040 7.1 ends the stream).
func ofAKilledPeer(err error) bool {
	for _, may := range []error{
		transport.ErrDisconnected, transport.StatusRetryExceeded, transport.StatusRemoteAccess, transport.StatusRemoteOp, transport.StatusLocalQPOp,
	} {
		if errors.Is(err, may) {
			return true
		}
	}
	return false
}

// TestKilledCClient: C's rping is killed at any moment, which between two pings is no error.
func TestKilledCClient(t *testing.T) {
	for _, name := range realDevices() {
		t.Run(name, func(t *testing.T) {
			dev, _, addr := real(t, name)
			var pings countPings
			addr, ends := serve(t, Server{Device: dev, Verify: true, Log: slog.New(&pings)}, addr)
			host, port := split(t, addr)
			for i := range int32(5) {
				cmd, out := cProgram(t, "-c", "-S", "65535", "-a", host, "-p", port)
				pings.Store(0)
				require.NoError(t, cmd.Start())
				require.Eventually(t, func() bool { return pings.Load() > 5*i }, time.Minute, time.Millisecond)
				require.NoError(t, cmd.Process.Kill())
				cmd.Wait()
				killed := time.Now()
				e := next(t, ends)
				t.Logf("%d pings, then after %v: %v %s", e.pings, time.Since(killed).Round(time.Millisecond), e.err, out)
				if e.err != nil {
					assert.True(t, ofAKilledPeer(e.err), "%v", e.err)
				}
			}
		})
	}
}

// TestKilledClient: a client that is killed in the middle of a ping is an error.
func TestKilledClient(t *testing.T) {
	for _, name := range realDevices() {
		t.Run(name, func(t *testing.T) {
			dev, _, addr := real(t, name)
			addr, ends := serve(t, Server{Device: dev}, addr)
			cmd := exec.Command(os.Args[0], "-test.run=^TestStuckClient$", "-test.v")
			cmd.Env = append(os.Environ(), "RPING_STUCK="+name+" "+addr)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			cmd.Stderr = os.Stderr
			require.NoError(t, cmd.Start())
			var seen []byte
			for buf := make([]byte, 512); err == nil && !bytes.Contains(seen, []byte("stuck\n")); {
				var n int
				n, err = out.Read(buf)
				seen = append(seen, buf[:n]...)
			}
			require.NoError(t, err, "%s", seen)
			require.NoError(t, cmd.Process.Kill())
			cmd.Wait()
			e := next(t, ends)
			t.Log(e.err)
			assert.ErrorIs(t, e.err, transport.ErrDisconnected)
		})
	}
}

// TestStuckClient is the process that TestKilledClient kills.
func TestStuckClient(t *testing.T) {
	var name, addr string
	if n, _ := fmt.Sscan(os.Getenv("RPING_STUCK"), &name, &addr); n != 2 {
		t.Skip("a part of TestKilledClient")
	}
	dev, _ := openReal(t, name)
	p := connect(t, dev, addr)
	p.toSink()
	// The kernel takes 50 s to bury a process that dies with a window bound on rxe.
	require.NoError(t, p.ep.Do(timeout(t), &p.x.Revoke))
	fmt.Println("stuck")
	time.Sleep(time.Minute)
}

// TestKilledCServer: the client has more to send, so its server's end is an error.
func TestKilledCServer(t *testing.T) {
	for _, name := range realDevices() {
		t.Run(name, func(t *testing.T) {
			_, dev, addr := real(t, name)
			host, _ := split(t, addr)
			addr, cmd, _, _ := startCServer(t, host, 65535)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var answered countPings
			go func() {
				for answered.Load() < 10 && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cmd.Process.Kill()
			}()
			client := Client{Device: dev, Size: 65535, Verify: true, Log: slog.New(&answered)}
			pings, err := client.Ping(ctx, addr)
			t.Logf("%d pings, then: %v", pings, err)
			assert.Positive(t, pings)
			assert.True(t, ofAKilledPeer(err), "%v", err)
		})
	}
}
