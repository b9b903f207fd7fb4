//go:build ibverbs && linux && cgo

package ibverbs

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

// What couldn't be destroyed is closed for use, and destroyed by the next Close.
func TestCloseIsTriedAgain(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		made, err := d.NewPD()
		require.NoError(t, err)
		p := made.(*pd)
		r, err := d.NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
		require.NoError(t, err)
		// A registration that the domain's own count doesn't know of.
		mr, err := p.register("test", r.Addr(), r.Len(), transport.LocalWrite)
		require.NoError(t, err)
		before := InUse()
		for range 2 {
			err = p.Close()
			require.ErrorIs(t, err, transport.ErrBusy)
			require.ErrorContains(t, err, "device or resource busy", "the kernel's word")
			require.Equal(t, before, InUse())
			require.ErrorIs(t, p.AddRegion(r), transport.ErrClosed)
		}
		require.ErrorIs(t, d.Close(), transport.ErrBusy)
		require.NoError(t, p.deregister("test", mr))
		require.NoError(t, p.Close())
		require.NoError(t, p.Close())
		require.Equal(t, before.PDs-1, InUse().PDs)
		require.Equal(t, before.MRs-1, InUse().MRs)
		require.NoError(t, r.Close())
	})
}

// siw connects its TCP socket inside of Connect, so with a peer that doesn't answer
// that blocks. It is not to block Disconnect, nor the event that tells of the end.
func TestDisconnectWhileConnecting(t *testing.T) {
	if os.Getenv("RDMARW_GUEST") == "" {
		t.Skip("drops all packets of the loopback device: in the guest only")
	}
	onDevices(t, func(t *testing.T, d *device, host string) {
		a := newEnd(t, d)
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		a.conn, err = d.Resolve(testContext(t), l.Addr())
		require.NoError(t, err)
		a.createQP(nil)
		cut := func(how string) {
			line := "tc qdisc " + how + " dev lo root netem loss 100%"
			out, err := exec.Command("sh", "-c", line).CombinedOutput()
			require.NoError(t, err, "%s: %s", line, out)
		}
		cut("add")
		whole := false
		mend := func() {
			if !whole {
				cut("del")
				whole = true
			}
		}
		defer mend()
		connected := make(chan error, 1)
		go func() { connected <- a.conn.Connect(transport.ConnParams{}) }()
		time.Sleep(200 * time.Millisecond)
		blocks := len(connected) == 0
		t.Logf("Connect blocks: %v", blocks)
		require.Equal(t, d.caps.Protocol == transport.IWARP, blocks)
		disconnected := make(chan error, 1)
		go func() { disconnected <- a.conn.Disconnect() }()
		select {
		case err := <-disconnected:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			require.Fail(t, "Disconnect waits")
		}
		<-a.conn.Done()
		require.ErrorIs(t, a.conn.Err(), transport.ErrDisconnected)
		if blocks {
			require.Empty(t, connected, "still")
		}
		mend()
		err = <-connected
		if blocks {
			require.ErrorIs(t, err, transport.ErrDisconnected)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, l.Close())
		a.close()
	})
}
