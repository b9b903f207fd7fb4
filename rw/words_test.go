package rw_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// What is asked of an endpoint that has failed is refused as such, with the cause, which it
// isn't to blame for; and once it is closed, as that.
func TestWhatIsAskedAfterAFailure(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	local := []transport.Piece{p.a.region.Piece(0, 8)}
	first := p.a.ep.Write(within(t, time.Minute), local, transport.Remote{Len: 8, Key: 99})
	require.ErrorIs(t, first, transport.StatusRemoteAccess)
	require.NotContains(t, first.Error(), "earlier")

	var c, r rw.Context
	var x rw.Exposure
	ask := func() []error {
		require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Write, Local: local, Remote: []transport.Remote{{Len: 8}}}))
		require.NoError(t, p.a.ep.PrepareRecv(&r, local))
		return []error{p.a.ep.Submit(&c), p.a.ep.PostRecv(&r), p.a.ep.Expose(&x, local, mrpool.ReadSource)}
	}
	for _, err := range ask() {
		require.ErrorContains(t, err, "the endpoint failed earlier")
		require.ErrorIs(t, err, transport.StatusRemoteAccess)
		var request *transport.Error
		require.ErrorAs(t, err, &request)
		require.Equal(t, "WRITE", request.Op)
		require.NotErrorIs(t, err, rw.ErrClosed)
	}
	require.NoError(t, p.a.ep.Close())
	for _, err := range ask() {
		require.ErrorIs(t, err, rw.ErrClosed)
		require.ErrorIs(t, err, transport.StatusRemoteAccess)
	}

	ep, _ := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
	require.NoError(t, ep.Close())
	require.NoError(t, ep.PrepareRecv(&r, local))
	err := ep.PostRecv(&r)
	require.ErrorIs(t, err, rw.ErrClosed)
	require.NotContains(t, err.Error(), "failed", "nothing had")
}

// The side whose memory was attacked isn't told of a disconnect alone: its connection is up.
func TestTheAttackedSideIsToldSo(t *testing.T) {
	for _, profile := range []string{"rxe", "mlx5"} {
		t.Run(profile, func(t *testing.T) {
			p := connect(t, simBed(profile), rw.EndpointConfig{})
			got := p.b.postRecv(p.b.ep)
			require.Error(t, p.a.ep.Write(within(t, time.Minute), []transport.Piece{p.a.region.Piece(0, 8)}, transport.Remote{Len: 8, Key: 99}))
			err := receive(t, got).Err()
			require.ErrorIs(t, err, transport.StatusFlushed)
			require.ErrorIs(t, err, rw.ErrQPFailed)
			require.ErrorIs(t, err, transport.ErrDisconnected, "for those who ask only whether it is over")
			require.ErrorContains(t, err, "Device.Events")
			require.NoError(t, p.b.ep.Conn().Err())
		})
	}
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	got := p.b.postRecv(p.b.ep)
	require.NoError(t, p.a.ep.Close())
	err := receive(t, got).Err()
	require.ErrorIs(t, err, transport.ErrDisconnected)
	require.NotErrorIs(t, err, rw.ErrQPFailed)
}

// A device that is removed may flush first: then it looks like a failure of the queue pair, until
// the news comes.
func TestTheRemovalIsToldToo(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	got := p.b.postRecv(p.b.ep)
	require.Error(t, p.a.ep.Write(within(t, time.Minute), []transport.Piece{p.a.region.Piece(0, 8)}, transport.Remote{Len: 8, Key: 99}))
	require.NotErrorIs(t, receive(t, got).Err(), transport.ErrDeviceRemoved)
	p.b.dev.(*sim.Device).Remove()
	<-p.b.ep.Conn().Done()
	require.Eventually(t, func() bool { return errors.Is(p.b.ep.Err(), transport.ErrDeviceRemoved) }, time.Minute, time.Millisecond)
	require.ErrorIs(t, p.b.ep.Err(), rw.ErrQPFailed)
	var r rw.Context
	require.NoError(t, p.b.ep.PrepareRecv(&r, []transport.Piece{p.b.region.Piece(0, 8)}))
	require.ErrorIs(t, p.b.ep.PostRecv(&r), transport.ErrDeviceRemoved)
}

// Each way not to be prepared has words of its own.
func TestWhatIsNotPreparedIsToldApart(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	ep := p.a.ep
	local := []transport.Piece{p.a.region.Piece(0, 8)}
	refused := func(err error, words string) {
		t.Helper()
		require.ErrorIs(t, err, rw.ErrNotPrepared)
		require.ErrorContains(t, err, words)
	}
	refused(ep.Submit(), "no context is given")
	refused(ep.Submit(nil), "nil is given")
	refused(ep.PostRecv(nil), "nil is given")

	var receive rw.Context
	require.NoError(t, ep.PrepareRecv(&receive, local))
	refused(ep.Submit(&receive), "posted by PostRecv")
	refused(p.b.ep.PostRecv(&receive), "on another endpoint")
	require.NoError(t, ep.PostRecv(&receive))
	refused(ep.PostRecv(&receive), "under way")
	require.ErrorIs(t, ep.PostRecv(&receive), rw.ErrInUse)
	require.ErrorIs(t, ep.Submit(&receive), rw.ErrInUse)

	var send rw.Context
	require.NoError(t, ep.PrepareSend(&send, rw.Message{}))
	refused(ep.PostRecv(&send), "posted by Submit")
	refused(ep.Submit(&send, &send), "twice")
	refused(p.b.ep.Submit(&send), "on another endpoint")
	require.NotErrorIs(t, p.b.ep.Submit(&send), rw.ErrInUse)

	var x rw.Exposure
	require.NoError(t, ep.Expose(&x, local, mrpool.ReadSource))
	require.NoError(t, await(t, ep, &x.Grant))
	refused(ep.Submit(&x.Grant), "granted or revoked already")
	require.NoError(t, await(t, ep, &x.Revoke))
	refused(ep.Submit(&x.Grant), "granted or revoked already")
	refused(ep.Submit(&x.Revoke), "revoked already")
}
