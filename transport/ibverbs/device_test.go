//go:build ibverbs && linux && cgo

package ibverbs

import (
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestOpenDescribesTheDevice(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		t.Log(d)
		t.Log(d.info.CharDevs)
		c := d.Caps()
		require.Equal(t, d.name, c.Device)
		require.Positive(t, c.MaxSendWR)
		require.Positive(t, c.MaxMsg)
		require.Positive(t, c.MaxInline)
		require.NotEmpty(t, d.info.NetDevs)
		for _, name := range []string{d.info.NetDevs[0], host} {
			other, err := Open(name)
			require.NoError(t, err)
			require.Equal(t, d.name, other.Caps().Device)
			require.NoError(t, other.Close())
		}
	})
}

func TestSendWriteRead(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		t.Logf("depths: a %+v, b %+v, request %+v; granted %+v", a.info, b.info, b.conn.Request(), a.qp.Granted())

		fill(a.mem.Bytes()[:100], 1)
		a.post(transport.WR{Cookie: 1, Op: transport.OpSend, Flags: transport.Signaled, FirstSGE: a.sge(0, 100), NumSGE: 1})
		a.completeOK(1)
		c := b.completeOK(recvCookie)
		require.Equal(t, transport.Receive, c.Flags)
		require.EqualValues(t, 100, c.ByteLen)
		require.Equal(t, a.mem.Bytes()[:100], b.mem.Bytes()[recvAt:][:100])

		const n = 100_000
		reg, remote := b.expose(4096, n, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		fill(a.mem.Bytes()[:n], 2)
		a.post(transport.WR{Cookie: 2, Op: transport.OpWrite, Flags: transport.Signaled, FirstSGE: a.sge(0, n), NumSGE: 1,
			RemoteAddr: remote.Addr, RKey: remote.Key})
		a.completeOK(2)
		a.post(transport.WR{Cookie: 3, Op: transport.OpRead, Flags: transport.Signaled, FirstSGE: a.sge(200_000, n), NumSGE: 1,
			RemoteAddr: remote.Addr, RKey: remote.Key})
		a.completeOK(3)
		require.Equal(t, a.mem.Bytes()[:n], b.mem.Bytes()[4096:][:n])
		require.Equal(t, a.mem.Bytes()[:n], a.mem.Bytes()[200_000:][:n])
		require.NoError(t, reg.Close())
	})
}

func TestCounters(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		before, err := Counters(d.name)
		require.NoError(t, err)
		require.Len(t, before, 1)
		require.Equal(t, 1, before[0].Port)
		t.Log(before)
		if d.info.driver != driverRXE {
			return // siw has none
		}
		a.post(transport.WR{Op: transport.OpSend, Flags: transport.Signaled})
		a.completeOK(0)
		b.completeOK(recvCookie)
		require.Eventually(t, func() bool { // the kernel reads them anew every 10 ms
			after, err := Counters(d.name)
			return err == nil && after[0].Counters["sent_pkts"] >= before[0].Counters["sent_pkts"]+2
		}, 10*time.Second, 5*time.Millisecond, "the message and its ACK")
	})
}
