package rw_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

func advStepped(t *testing.T, profile string, cfg steppedConfig) (s *stepped, a, b *end) {
	cfg.profile, _ = sim.LookupProfile(profile)
	cfg.memory = 1 << 20
	s = newStepped(t, cfg)
	return s, s.ends[0], s.ends[1]
}
func (e *end) has(c *rw.Context) bool { return slices.Contains(e.done, c) }
func (e *end) grant(x *rw.Exposure, n uint32, ops mrpool.RemoteOps) []transport.Remote {
	require.NoError(e.s.t, e.ep.Expose(x, []transport.Piece{e.region.Piece(0, n)}, ops))
	require.NoError(e.s.t, e.ep.Submit(&x.Grant))
	require.True(e.s.t, e.s.until(func() bool { return e.has(&x.Grant) }))
	return x.Remotes()
}
func (e *end) recv(c *rw.Context) {
	require.NoError(e.s.t, e.ep.PrepareRecv(c, nil))
	require.NoError(e.s.t, e.ep.PostRecv(c))
}

// What a review found about exposures: each test was red once.

func TestAdvInvalidationBeforeGrantsCompletion(t *testing.T) {
	var qpn atomic.Uint32
	s, a, b := advStepped(t, "mlx5-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 4},
		faults: sim.Faults{Delay: func(q *sim.QP, k uint64, wr *transport.WR) time.Duration {
			if q.Num() == qpn.Load() && wr.Op == transport.OpSend {
				return 10 * time.Millisecond // the ACK is late, the answer is not
			}
			return 0
		}}})
	qpn.Store(a.ep.Conn().QP().Num())
	var ra, rb, req, ans rw.Context
	a.recv(&ra)
	b.recv(&rb)
	var x rw.Exposure
	require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource))
	require.True(t, x.OfferInvalidation())
	require.NoError(t, a.ep.PrepareSend(&req, rw.Message{}))
	require.NoError(t, a.ep.Submit(&x.Grant, &req))
	require.True(t, s.until(func() bool { return b.has(&rb) }))
	require.NoError(t, b.ep.PrepareSend(&ans, rw.Message{Invalidate: x.Remotes()[0].Key, HasInvalidate: true}))
	require.NoError(t, b.ep.Submit(&ans))
	require.True(t, s.until(func() bool { return a.has(&ra) }))
	require.False(t, a.has(&x.Grant))
	require.NoError(t, ra.Err())
}

func TestAdvGrantNeverBackOnHealthyEndpoint(t *testing.T) {
	s, a, b := advStepped(t, "siw", steppedConfig{pool: mrpool.Config{SyncMRs: 8}})
	var rc, send rw.Context
	require.NoError(t, b.ep.PrepareRecv(&rc, []transport.Piece{b.region.Piece(0, 64)}))
	require.NoError(t, b.ep.PostRecv(&rc))
	var x rw.Exposure
	require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource))
	require.NoError(t, a.ep.PrepareSend(&send, rw.Message{}))
	require.NoError(t, a.ep.Submit(&x.Grant, &send))
	for s.fabric.Step() { // completed, and not polled yet
	}
	require.NoError(t, a.ep.Submit(&x.Revoke))
	require.True(t, s.until(func() bool { return a.has(&x.Revoke) && a.has(&send) }))
	require.True(t, s.until(func() bool { return a.has(&x.Grant) }), "Grant never comes back; endpoint: %v", a.ep.Err())
}

func TestAdvRevokeNeverBackAfterFail(t *testing.T) {
	s, a, _ := advStepped(t, "siw-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 8}})
	var x rw.Exposure
	require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource))
	require.NoError(t, a.ep.Submit(&x.Grant))
	require.NoError(t, a.ep.Submit(&x.Revoke))
	a.ep.Fail(context.Canceled)
	require.True(t, s.until(func() bool { return a.has(&x.Grant) && a.has(&x.Revoke) }), "revoke back: %v", a.has(&x.Revoke))
}

func TestAdvRevokeOvertakesPostedBind(t *testing.T) {
	s, a, _ := advStepped(t, "rxe", steppedConfig{pool: mrpool.Config{Windows: 4}})
	var x rw.Exposure
	require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource))
	require.NoError(t, a.ep.Submit(&x.Grant))
	require.NoError(t, a.ep.Submit(&x.Revoke))
	s.until(func() bool { return false })
	require.NoError(t, a.ep.Err())
}

// Seen under the race detector.
func TestAdvQueuedGrantRacesRevoke(t *testing.T) {
	for range 20 {
		p := connect(t, simBed("rxe"), rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 4}})
		var y, x rw.Exposure
		remote := p.b.expose(p.b.ep, &y, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.WriteSink)
		var ws [8]rw.Context
		for i := range ws {
			require.NoError(t, p.a.ep.Prepare(&ws[i], rw.Transfer{Op: rw.Write, Local: []transport.Piece{p.a.region.Piece(0, 1<<18)}, Remote: remote}))
		}
		require.NoError(t, p.a.ep.Expose(&x, []transport.Piece{p.a.region.Piece(0, 4096)}, mrpool.ReadSource))
		for i := range ws {
			require.NoError(t, p.a.ep.Submit(&ws[i]))
		}
		require.NoError(t, p.a.ep.Submit(&x.Grant)) // waits for slots
		time.Sleep(time.Millisecond)
		p.a.ep.Do(context.Background(), &x.Revoke)
		time.Sleep(5 * time.Millisecond)
		if err := p.a.ep.Err(); err != nil {
			t.Error(err)
		}
		p.a.ep.Close()
		p.b.ep.Close()
	}
}

func TestAdvRevokeOfWhatWasNeverGranted(t *testing.T) {
	for profile, cfg := range map[string]mrpool.Config{"mlx5-kernel": {FastMRs: 4}, "rxe-kernel": {FastMRs: 4}, "mlx5": {Windows: 4}} {
		s, a, _ := advStepped(t, profile, steppedConfig{pool: cfg})
		var x rw.Exposure
		require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource))
		require.NoError(t, a.ep.Submit(&x.Revoke))
		require.True(t, s.until(func() bool { return a.has(&x.Revoke) }))
		if err := a.ep.Err(); err != nil {
			t.Errorf("%s: %v; %v", profile, err, a.dev.breaches)
		}
	}
}

func TestAdvRevokeChainRefusedAfterPeersInvalidation(t *testing.T) {
	s, a, b := advStepped(t, "siw-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 4}})
	var rc, inv, send rw.Context
	a.recv(&rc)
	var x rw.Exposure
	remote := a.grant(&x, 4096, mrpool.ReadSource)
	require.True(t, x.OfferInvalidation())
	require.NoError(t, b.ep.PrepareSend(&inv, rw.Message{Invalidate: remote[0].Key, HasInvalidate: true}))
	require.NoError(t, b.ep.Submit(&inv))
	require.True(t, s.until(func() bool { return a.has(&rc) }))
	require.NoError(t, rc.Err())
	require.NoError(t, a.ep.PrepareSend(&send, rw.Message{}))
	require.NoError(t, a.ep.Submit(&x.Revoke, &send))
}

func TestAdvExposeAgainWithoutRevoke(t *testing.T) {
	s, a, b := advStepped(t, "siw-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 4}})
	var rc, inv rw.Context
	a.recv(&rc)
	var x rw.Exposure
	remote := a.grant(&x, 4096, mrpool.ReadSource)
	require.True(t, x.OfferInvalidation())
	require.NoError(t, b.ep.PrepareSend(&inv, rw.Message{Invalidate: remote[0].Key, HasInvalidate: true}))
	require.NoError(t, b.ep.Submit(&inv))
	require.True(t, s.until(func() bool { return a.has(&rc) }))
	require.ErrorIs(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource), rw.ErrInUse)
}

func TestAdvExposeAfterClose(t *testing.T) {
	s, a, _ := advStepped(t, "siw", steppedConfig{pool: mrpool.Config{SyncMRs: 4}})
	s.closeEndpoints()
	var x rw.Exposure
	err := a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource)
	require.Error(t, err, "%d living keys on an endpoint that is gone", len(a.dev.living()))
}

// A key can't be made valid behind its own revocation.
func TestAdvGrantBehindItsRevocation(t *testing.T) {
	for profile, cfg := range map[string]mrpool.Config{"siw-kernel": {FastMRs: 4}, "rxe": {Windows: 4}, "siw": {SyncMRs: 4}} {
		s, a, _ := advStepped(t, profile, steppedConfig{pool: cfg})
		var x rw.Exposure
		list := []transport.Piece{a.region.Piece(0, 4096)}
		require.NoError(t, a.ep.Expose(&x, list, mrpool.ReadSource))
		if profile == "siw-kernel" { // elsewhere nothing can be chained behind a revocation
			require.ErrorIs(t, a.ep.Submit(&x.Revoke, &x.Grant), rw.ErrNotPrepared)
		}
		require.NoError(t, a.ep.Submit(&x.Revoke))
		require.ErrorIs(t, a.ep.Submit(&x.Grant), rw.ErrNotPrepared)
		require.True(t, s.until(func() bool { return a.has(&x.Revoke) }))
		require.ErrorIs(t, a.ep.Submit(&x.Grant), rw.ErrNotPrepared)
		require.NoError(t, a.ep.Expose(&x, list, mrpool.ReadSource), "it can be used again")
		require.NoError(t, a.ep.Submit(&x.Grant))
		require.NoError(t, a.ep.Submit(&x.Revoke))
		require.True(t, s.until(func() bool { return a.has(&x.Revoke) && a.has(&x.Grant) }))
		require.NoError(t, a.ep.Err())
	}
}
