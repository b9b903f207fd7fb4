//go:build ibverbs && linux && cgo

package ibverbs

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func openFiles(t *testing.T) int {
	l, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(l)
}

// resources is what the kernel counts for a device.
func resources(t *testing.T, d *device) string {
	out, err := exec.Command("rdma", "resource", "show", d.name).CombinedOutput()
	if err != nil {
		t.Logf("rdma resource show: %v %s", err, out)
		return ""
	}
	_, counts, _ := strings.Cut(string(out), d.name)
	return strings.TrimSpace(counts)
}

func TestManyConnectionsLeaveNothing(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		cycle := func(i int) {
			a, b := newEnd(t, d), newEnd(t, d)
			connect(t, a, b, host)
			a.post(transport.WR{Cookie: 1, Op: transport.OpSend, Flags: transport.Signaled, FirstSGE: a.sge(0, 100), NumSGE: 1})
			a.completeOK(1)
			b.completeOK(recvCookie)
			switch i % 3 { // three ways to end
			case 0:
				require.NoError(t, a.conn.Disconnect())
				b.ended()
			case 1:
				require.NoError(t, b.qp.Fail())
			}
			a.close()
			b.close()
		}
		cycle(0) // what librdmacm opens once
		files, routines, kernel := openFiles(t), runtime.NumGoroutine(), resources(t, d)
		for i := range 100 {
			cycle(i)
		}
		require.Equal(t, files, openFiles(t))
		require.Equal(t, routines, runtime.NumGoroutine())
		require.Equal(t, kernel, resources(t, d))
		t.Log(kernel)
	})
}

func TestOpenAndCloseLeaveNothing(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		name := d.name
		files, routines := openFiles(t), runtime.NumGoroutine()
		for range 20 {
			o, err := Open(name)
			require.NoError(t, err)
			require.NoError(t, o.Close())
			require.NoError(t, o.Close())
			_, open := <-o.Events()
			require.False(t, open)
			_, err = o.NewPD()
			require.ErrorIs(t, err, transport.ErrClosed)
			_, err = o.NewCQ(1)
			require.ErrorIs(t, err, transport.ErrClosed)
			_, err = o.Listen(":0")
			require.ErrorIs(t, err, transport.ErrClosed)
		}
		require.Equal(t, files, openFiles(t))
		require.Equal(t, routines, runtime.NumGoroutine())
	})
}

// Two opened devices of one name share librdmacm's context, and nothing else.
func TestTwoOfOneName(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		o, err := Open(d.name)
		require.NoError(t, err)
		a, b := newEnd(t, d), newEnd(t, o.(*device))
		require.ErrorIs(t, a.pd.AddRegion(b.mem), transport.ErrRegion)
		connect(t, a, b, host)
		a.post(transport.WR{Cookie: 1, Op: transport.OpSend, Flags: transport.Signaled})
		a.completeOK(1)
		b.completeOK(recvCookie)

		c, err := d.Resolve(testContext(t), net.JoinHostPort(host, "9"))
		require.NoError(t, err)
		cfg := b.config()
		_, err = c.CreateQP(cfg)
		require.ErrorIs(t, err, transport.ErrInvalid)
		require.NoError(t, c.Close())
		a.close()
		b.close()
		require.NoError(t, o.Close())
	})
}
