//go:build ibverbs && linux && cgo

package ibverbs

import (
	"strings"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

// bound makes a window of n bytes at an offset, valid under its next key byte.
func (e *end) bound(at, n int, access transport.Access) (transport.Registration, transport.Remote) {
	w, err := e.pd.NewRegistration(transport.Window, 0)
	require.NoError(e.t, err)
	ext, err := w.Map(transport.Mapping{List: []transport.Piece{e.mem.Piece(uint64(at), uint32(n))}, Access: access})
	require.NoError(e.t, err)
	require.EqualValues(e.t, n, ext.Len)
	e.bind(w, w.KeyByte()+1)
	return w, transport.Remote{Addr: ext.IOVA, Len: uint32(n), Key: w.RKey(w.KeyByte() + 1)}
}

func (e *end) bind(w transport.Registration, key uint8) {
	wrs := w.AppendValid(nil, key)
	wrs[0].Flags |= transport.Signaled
	wrs[0].Cookie = 777
	e.post(wrs...)
	e.completeOK(777)
}

func (e *end) read(remote transport.Remote) transport.Completion {
	e.post(transport.WR{Cookie: 5, Op: transport.OpRead, Flags: transport.Signaled, FirstSGE: e.sge(300_000, int(remote.Len)), NumSGE: 1,
		RemoteAddr: remote.Addr, RKey: remote.Key})
	return e.complete(1)[0]
}

func TestWindow(t *testing.T) {
	eachWay(t, func(t *testing.T, d *device, host string) {
		if d.caps.Windows == transport.NoWindows {
			p, err := d.NewPD()
			require.NoError(t, err)
			_, err = p.NewRegistration(transport.Window, 0)
			require.ErrorIs(t, err, transport.ErrUnsupported)
			require.NoError(t, p.Close())
			return
		}
		a, b := pair(t, d, host)
		fill(b.mem.Bytes()[:1000], 4)
		w, remote := b.bound(0, 1000, transport.RemoteRead|transport.RemoteWrite)
		require.Zero(t, w.LKey(1))
		require.Equal(t, transport.StatusOK, a.read(remote).Status)
		require.Equal(t, b.mem.Bytes()[:1000], a.mem.Bytes()[300_000:][:1000])

		fill(a.mem.Bytes()[:1000], 8)
		a.post(transport.WR{Cookie: 6, Op: transport.OpWrite, Flags: transport.Signaled, FirstSGE: a.sge(0, 1000), NumSGE: 1,
			RemoteAddr: remote.Addr, RKey: remote.Key})
		a.completeOK(6)
		require.Equal(t, a.mem.Bytes()[:1000], b.mem.Bytes()[:1000])

		require.ErrorIs(t, b.pd.RemoveRegion(b.mem), transport.ErrBusy)
		require.ErrorIs(t, b.pd.Close(), transport.ErrBusy)

		t.Run("own invalidation", func(t *testing.T) {
			if d.caps.LocalInv[transport.Window] != transport.InvWorks {
				n, err := b.qp.PostSend(w.AppendInvalid(nil, 1), nil)
				require.Zero(t, n)
				require.ErrorIs(t, err, transport.ErrUnsupported)
			}
		})

		// The peer's own invalidation, then another use of the same window.
		a.post(transport.WR{Cookie: 7, Op: transport.OpSendWithInv, Flags: transport.Signaled, RKey: remote.Key})
		a.completeOK(7)
		c := b.completeOK(recvCookie)
		require.Equal(t, transport.Receive|transport.WithInv, c.Flags)
		require.Equal(t, remote.Key, c.InvKey)
		again := remote
		again.Key = w.RKey(remote.Key.KeyByte() + 1)
		b.bind(w, again.Key.KeyByte())
		require.Equal(t, transport.StatusOK, a.read(again).Status)

		// Closing it is the other way to revoke.
		require.NoError(t, w.Close())
		require.NoError(t, w.Close())
		require.Equal(t, transport.StatusRemoteAccess, a.read(again).Status)
	})
}

func TestWindowOldKeyIsDead(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		if d.caps.Windows == transport.NoWindows {
			require.False(t, strings.HasPrefix(d.name, "rxe"), "rxe has windows")
			t.Skip("no windows")
		}
		a, b := pair(t, d, host)
		w, remote := b.bound(0, 100, transport.RemoteRead)
		a.post(transport.WR{Cookie: 7, Op: transport.OpSendWithInv, Flags: transport.Signaled, RKey: remote.Key})
		a.completeOK(7)
		b.completeOK(recvCookie)
		b.bind(w, remote.Key.KeyByte()+1)
		require.Equal(t, transport.StatusRemoteAccess, a.read(remote).Status)
		require.NoError(t, w.Close())
	})
}

func TestWindowRights(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		if d.caps.Windows == transport.NoWindows {
			require.False(t, strings.HasPrefix(d.name, "rxe"), "rxe has windows")
			t.Skip("no windows")
		}
		a, b := pair(t, d, host)
		w, remote := b.bound(100, 100, transport.RemoteWrite)
		require.Equal(t, transport.StatusRemoteAccess, a.read(remote).Status)
		require.NoError(t, w.Close())

		r, err := d.NewRegion(transport.RegionConfig{Size: 100, Access: transport.BindWindow})
		require.NoError(t, err)
		require.NoError(t, b.pd.AddRegion(r))
		w, err = b.pd.NewRegistration(transport.Window, 0)
		require.NoError(t, err)
		_, err = w.Map(transport.Mapping{List: []transport.Piece{r.Piece(0, 100)}, Access: transport.RemoteWrite})
		require.ErrorIs(t, err, transport.ErrAccess, "write needs the region's local write")
		_, err = w.Map(transport.Mapping{List: []transport.Piece{r.Piece(50, 51)}, Access: transport.RemoteRead})
		require.ErrorIs(t, err, transport.ErrRange)
		_, err = w.Map(transport.Mapping{List: []transport.Piece{r.Piece(0, 100)}, Access: transport.RemoteRead})
		require.NoError(t, err)
		require.ErrorIs(t, b.pd.RemoveRegion(r), transport.ErrBusy)
		require.NoError(t, w.Unmap())
		require.NoError(t, b.pd.RemoveRegion(r))
		require.NoError(t, r.Close())
		require.NoError(t, w.Close())
	})
}

// A peer's SEND_WITH_INV of an ordinary MR: refused by rxe at the price of the
// connection; on siw it kills the MR for good, and nobody is told.
func TestPeerInvalidatesMR(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		reg, remote := b.expose(0, 100, transport.LocalWrite|transport.RemoteRead)
		require.Equal(t, transport.StatusOK, a.read(remote).Status)
		a.post(transport.WR{Cookie: 7, Op: transport.OpSendWithInv, Flags: transport.Signaled, RKey: remote.Key})
		c := a.complete(1)[0]
		t.Logf("SEND_WITH_INV of an MR: %v", c.Status)
		switch d.caps.RemoteInv[transport.SyncMR] {
		case transport.InvNone:
			// rxe acknowledges the message and then fails the receiver.
			require.Equal(t, transport.StatusRemoteInvalid, b.complete(1)[0].Status)
		case transport.InvHarmful:
			require.Equal(t, transport.StatusOK, c.Status)
			require.Equal(t, transport.Receive, b.completeOK(recvCookie).Flags)
			require.NotEqual(t, transport.StatusOK, a.read(remote).Status)
		}
		require.NoError(t, reg.Unmap())
		_, err := reg.Map(transport.Mapping{List: []transport.Piece{b.mem.Piece(0, 100)}, Access: transport.RemoteRead})
		require.NoError(t, err)
		require.NoError(t, reg.Close())
	})
}
