package rw_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// isolated gives a side a protection domain of its own for one connection.
func (s *side) isolated(t *testing.T) *mrpool.Pool {
	caps := s.dev.Caps()
	cfg := mrpool.Config{SyncMRs: 64}
	if caps.FastReg.MaxPages > 0 {
		cfg.FastMRs = 8
	}
	if caps.Windows != transport.NoWindows {
		cfg.Windows = 8
	}
	pool, err := mrpool.NewIsolated(s.dev, cfg, s.region)
	require.NoError(t, err)
	require.True(t, pool.Isolated())
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// The key that one client was given is of no use to its sibling: where windows
// expose memory, because they answer to one queue pair; elsewhere if each has a
// protection domain of its own.
func TestSiblingCannotUseAnothersKey(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		_, bMine := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{Pool: p.b.isolated(t)})
		aTheirs, bTheirs := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{Pool: p.b.isolated(t)})
		var x rw.Exposure
		given := slices.Clone(p.b.expose(bMine, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.WriteSink))
		fill(p.a.region.Bytes(), 3)
		before := slices.Clone(p.b.region.Bytes())
		aTheirs.Write(within(t, 5*time.Second), []transport.Piece{p.a.region.Piece(0, 4096)}, given...)
		settle(t, aTheirs, bTheirs)
		requireUntouched(t, p.b.region, before, nil)
		p.b.revoke(bMine, &x)
	})
}

// Without that, a registration answers to every queue pair of its domain. It is
// what the README says, and what this holds it to.
func TestSiblingsOfOneDomainShareRegistrations(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		caps := p.b.dev.Caps()
		if caps.FastReg.MaxPages == 0 && caps.Windows != transport.NoWindows {
			return // windows: see TestWindowOfAnotherQueuePair
		}
		aTheirs, bTheirs := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
		var x rw.Exposure
		given := slices.Clone(p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.WriteSink))
		fill(p.a.region.Bytes(), 3)
		require.NoError(t, aTheirs.Write(within(t, 5*time.Second), []transport.Piece{p.a.region.Piece(0, 4096)}, given...))
		// On iWARP the completion says nothing about the peer's memory; a message
		// behind it does.
		got := p.b.postRecv(bTheirs)
		var send rw.Context
		require.NoError(t, aTheirs.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 1)}}))
		require.NoError(t, await(t, aTheirs, &send))
		require.NoError(t, receive(t, got).Err())
		require.Equal(t, p.a.region.Bytes()[:4096], p.b.region.Bytes()[:4096])
		p.b.revoke(p.b.ep, &x)
	})
}

// A peer that invalidates a key that it was not asked to is a peer to part with.
// Other connections, and the memory, are none the worse.
func TestInvalidationOfAKeyThatWasNotOffered(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		if !p.a.dev.Caps().SendWithInv {
			var c rw.Context
			require.ErrorIs(t, p.a.ep.PrepareSend(&c, rw.Message{HasInvalidate: true}), transport.ErrUnsupported)
			return // no peer can invalidate anything
		}
		caps := p.b.dev.Caps()
		kind := transport.SyncMR
		if caps.FastReg.MaxPages > 0 {
			kind = transport.FastMR
		} else if caps.Windows != transport.NoWindows {
			kind = transport.Window
		}
		a, b := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{Pool: p.b.isolated(t)})
		before := slices.Clone(p.b.region.Bytes()[:regionSize-4096])
		got := p.b.postRecv(b)
		var x rw.Exposure
		given := p.b.expose(b, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.WriteSink)[0]
		var send rw.Context
		require.NoError(t, a.PrepareSend(&send, rw.Message{
			Local: []transport.Piece{p.a.region.Piece(0, 1)}, Invalidate: given.Key, HasInvalidate: true,
		}))
		a.Do(within(t, 5*time.Second), &send)
		err := receive(t, got).Err()
		if caps.CompletionReportsInv && caps.RemoteInv[kind] == transport.InvWorks {
			require.ErrorIs(t, err, rw.ErrInvalidation)
			require.ErrorIs(t, b.Err(), rw.ErrInvalidation)
		}
		p.b.revoke(b, &x)
		require.Equal(t, before, p.b.region.Bytes()[:regionSize-4096])

		// The first connection of the pair works on.
		got = p.b.postRecv(p.b.ep)
		require.NoError(t, p.a.ep.PrepareSend(&send, rw.Message{Local: []transport.Piece{p.a.region.Piece(0, 1)}}))
		require.NoError(t, await(t, p.a.ep, &send))
		require.NoError(t, receive(t, got).Err())
	})
}
