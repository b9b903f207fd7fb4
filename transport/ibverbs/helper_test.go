//go:build ibverbs && linux && cgo

package ibverbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// HelpRemoval is in removal_test.go: package rw knows nothing of this one, and this
// package's tests of what users see are outside of it.
var HelpRemoval func(name, addr, end string) error

// helper is what a child process of a test does: RDMARW_HELPER is its task and
// the arguments of that.
func helper() {
	task := strings.Fields(os.Getenv("RDMARW_HELPER"))
	var err error
	switch task[0] {
	case "connect":
		err = helpConnect(task[1], task[2])
	case "memlock":
		err = helpMemlock(task[1])
	case "removal":
		err = HelpRemoval(task[1], task[2], task[3])
	}
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
	fmt.Println("OK")
}

func startHelper(t *testing.T, task string, attr *syscall.SysProcAttr) (*exec.Cmd, io.ReadCloser) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "RDMARW_HELPER="+task)
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	return cmd, out
}

// helpConnect connects and then does nothing, for ever.
func helpConnect(name, addr string) error {
	d, err := Open(name)
	if err != nil {
		return err
	}
	pd, err := d.NewPD()
	if err != nil {
		return err
	}
	cq, err := d.NewCQ(16)
	if err != nil {
		return err
	}
	c, err := d.Resolve(context.Background(), addr)
	if err != nil {
		return err
	}
	if _, err := c.CreateQP(transport.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq}); err != nil {
		return err
	}
	if err := c.Connect(transport.ConnParams{}); err != nil {
		return err
	}
	if _, err := c.Established(context.Background()); err != nil {
		return err
	}
	select {}
}

func TestPeerIsKilled(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		b := newEnd(t, d)
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		child, _ := startHelper(t, "connect "+d.name+" "+l.Addr(), nil)
		b.conn, err = l.Next(testContext(t))
		require.NoError(t, err)
		b.createQP(nil)
		b.recv(queueSize)
		require.NoError(t, b.conn.Accept(transport.ConnParams{}))
		_, err = b.conn.Established(testContext(t))
		require.NoError(t, err)
		require.NoError(t, child.Process.Signal(syscall.SIGKILL))
		start := time.Now()
		require.ErrorIs(t, b.ended(), transport.ErrDisconnected)
		t.Logf("noticed after %v", time.Since(start))
		child.Wait()
		for _, c := range b.complete(queueSize) {
			require.Equal(t, transport.StatusFlushed, c.Status)
		}
		require.NoError(t, l.Close())
		b.close()
	})
}

func helpMemlock(name string) error {
	// Opening locks nothing; the limit is for what follows.
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		return err
	}
	d, err := Open(name)
	if err != nil {
		return err
	}
	pd, err := d.NewPD()
	if err != nil {
		return err
	}
	small, err := d.NewRegion(transport.RegionConfig{Size: 256 << 10, Access: transport.LocalWrite})
	if err != nil {
		return err
	}
	if err := pd.AddRegion(small); err != nil {
		return err
	}
	large, err := d.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite})
	if err != nil {
		return err
	}
	err = pd.AddRegion(large)
	fmt.Println(err)
	if !errors.Is(err, transport.ErrMemlock) {
		return fmt.Errorf("got %w, want ErrMemlock", err)
	}
	// What was asked for, the limit, what is taken, and what to do.
	for _, word := range []string{"1048576 bytes at", "the limit is 1048576 bytes", "262144 are taken", "ulimit -l", "LimitMEMLOCK"} {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("%q is not in: %w", word, err)
		}
	}
	reg, err := pd.NewRegistration(transport.SyncMR, 0)
	if err != nil {
		return err
	}
	if err := pd.RemoveRegion(small); err != nil {
		return err
	}
	if err := pd.AddRegion(large); errors.Is(err, transport.ErrMemlock) {
		return fmt.Errorf("all of it is allowed, but: %w", err)
	}
	return reg.Close()
}

func TestMemlockLimit(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		if os.Getuid() != 0 {
			t.Skip("not root: the limit holds here already, but is not known")
		}
		// As somebody without CAP_IPC_LOCK. Not by syscall.Setuid: see the package's
		// documentation.
		child, out := startHelper(t, "memlock "+d.name, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
		text, _ := io.ReadAll(out)
		t.Logf("%s", text)
		require.NoError(t, child.Wait())
	})
}
