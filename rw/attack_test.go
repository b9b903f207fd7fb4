package rw_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// attack is one way for a peer to reach for memory that it was not given.
type attack struct {
	name string
	// exposed is what the victim exposes with.
	ops mrpool.RemoteOps
	op  rw.Op
	// forge turns the descriptor that the attacker was given into the one that it
	// uses, of the given length.
	forge func(given transport.Remote) transport.Remote
	// revoked: the victim has revoked the key before.
	revoked bool
	// inside: the attempt begins inside of the range, so that bytes of the range
	// itself may change (siw places what fits before it finds out).
	inside bool
}

const exposedLen = 8192

var attacks = []attack{
	{name: "READ with a revoked key", ops: mrpool.ReadSource, op: rw.Read, revoked: true, forge: asGiven},
	{name: "WRITE with a revoked key", ops: mrpool.WriteSink, op: rw.Write, revoked: true, forge: asGiven},
	{name: "READ where only WRITE was allowed", ops: mrpool.WriteSink, op: rw.Read, forge: asGiven},
	{name: "WRITE where only READ was allowed", ops: mrpool.ReadSource, op: rw.Write, forge: asGiven},
	{name: "READ one byte before the start", ops: mrpool.ReadSource, op: rw.Read, forge: moved(-1)},
	{name: "WRITE one byte before the start", ops: mrpool.WriteSink, op: rw.Write, forge: moved(-1)},
	{name: "READ from far before the start", ops: mrpool.ReadSource, op: rw.Read, forge: moved(-exposedLen)},
	{name: "READ one byte past the end", ops: mrpool.ReadSource, op: rw.Read, forge: moved(1), inside: true},
	{name: "WRITE one byte past the end", ops: mrpool.WriteSink, op: rw.Write, forge: moved(1), inside: true},
	{name: "WRITE behind the end", ops: mrpool.WriteSink, op: rw.Write, forge: moved(exposedLen)},
	{name: "WRITE with the next key byte", ops: mrpool.WriteSink, op: rw.Write, forge: key(func(k transport.RKey) transport.RKey { return k&^0xff | (k+1)&0xff })},
	{name: "READ with a key byte of the past", ops: mrpool.ReadSource, op: rw.Read, forge: key(func(k transport.RKey) transport.RKey { return k&^0xff | (k-1)&0xff })},
	{name: "WRITE with another index", ops: mrpool.WriteSink, op: rw.Write, forge: key(func(k transport.RKey) transport.RKey { return k ^ 0x4000_0000 })},
	{name: "READ with key 0", ops: mrpool.ReadSource, op: rw.Read, forge: key(func(transport.RKey) transport.RKey { return 0 })},
}

func asGiven(r transport.Remote) transport.Remote { return r }

func moved(by int64) func(transport.Remote) transport.Remote {
	return func(r transport.Remote) transport.Remote {
		r.Addr += uint64(by)
		return r
	}
}

func key(f func(transport.RKey) transport.RKey) func(transport.Remote) transport.Remote {
	return func(r transport.Remote) transport.Remote {
		r.Key = f(r.Key)
		return r
	}
}

// Whatever a peer tries, no byte changes at the victim that was not exposed for
// writing, and no byte arrives at the attacker that was not exposed for reading.
// The verdict is the victim's memory, not the attacker's completion: on iWARP a
// refused WRITE may well complete with success.
func TestAttacksReachNothing(t *testing.T) {
	for _, bed := range testbeds {
		t.Run(bed.name, func(t *testing.T) {
			p := connect(t, bed, rw.EndpointConfig{})
			for _, atk := range attacks {
				t.Run(atk.name, func(t *testing.T) {
					cfg := rw.EndpointConfig{CancelGrace: 2 * time.Second}
					a, b := p.dial(t, cfg, cfg) // an attack costs the connection
					p.try(t, atk, a, b)
				})
			}
		})
	}
}

func (p *pair) try(t *testing.T, atk attack, a, b *rw.Endpoint) {
	fill(p.a.region.Bytes(), 11)
	fill(p.b.region.Bytes(), 12)
	before := slices.Clone(p.b.region.Bytes())
	far := []transport.Piece{p.b.region.Piece(1<<20, exposedLen)}
	var x rw.Exposure
	given := p.b.expose(b, &x, far, atk.ops)[0]
	if atk.revoked {
		p.b.revoke(b, &x)
	}

	sink := []transport.Piece{p.a.region.Piece(0, exposedLen)}
	mine := bytesOf(p.a.region, sink)
	var c rw.Context
	require.NoError(t, a.Prepare(&c, rw.Transfer{Op: atk.op, Local: sink, Remote: []transport.Remote{atk.forge(given)}}))
	err := a.Do(within(t, 5*time.Second), &c)
	unchecked := p.b.dev.Caps().RemoteReadUnchecked && atk.op == rw.Read && atk.ops == mrpool.WriteSink
	if unchecked {
		// The device shows a WRITE sink to the peer that may write to it: no more than
		// that, and nothing changes.
		require.NoError(t, err)
	} else if atk.op == rw.Read {
		require.Error(t, err, "a READ can't succeed without data")
		got := bytesOf(p.a.region, sink)
		if !atk.inside {
			require.True(t, bytes.Equal(mine, got), "the attacker got nothing")
		}
	}
	if p.a.dev.Caps().Protocol != transport.IWARP {
		require.ErrorIs(t, err, transport.StatusRemoteAccess)
	}
	settle(t, a, b)

	allowed := []transport.Piece(nil)
	if atk.inside && atk.op == rw.Write {
		allowed = far
	}
	requireUntouched(t, p.b.region, before, allowed)
	if !atk.revoked {
		p.b.revoke(b, &x) // works on a connection that is gone, too
	}
	requireUntouched(t, p.b.region, before, allowed)
}

// settle waits until the attacked connection is over on both sides, so that what
// was on its way has arrived. A refusal ends it on every device.
func settle(t *testing.T, eps ...*rw.Endpoint) {
	t.Helper()
	for _, ep := range eps {
		select {
		case <-ep.Conn().Done():
		case <-time.After(200 * time.Millisecond):
			// InfiniBand doesn't tell the responder's CM: end it from here.
			require.NoError(t, ep.Conn().Disconnect())
			<-ep.Conn().Done()
		}
	}
}

// A key is of use to the protection domain it was made in only: a connection of
// another domain of the same process can't use it.
func TestKeyOfAnotherProtectionDomain(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		pd, err := p.b.dev.NewPD()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pd.Close()) })
		a, b := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{Pool: newPool(t, pd)})

		fill(p.b.region.Bytes(), 12)
		before := slices.Clone(p.b.region.Bytes())
		var x rw.Exposure
		given := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.WriteSink|mrpool.ReadSource)
		local := []transport.Piece{p.a.region.Piece(0, 4096)}
		err = a.Write(within(t, 5*time.Second), local, given...)
		if p.a.dev.Caps().Protocol != transport.IWARP {
			require.ErrorIs(t, err, transport.StatusRemoteAccess)
		}
		settle(t, a, b)
		requireUntouched(t, p.b.region, before, nil)
		// The connection it was made for is not affected.
		require.NoError(t, p.a.ep.Write(within(t, time.Minute), local, given...))
		p.b.revoke(p.b.ep, &x)
	})
}

// A window answers to the queue pair it was bound on, not to its siblings.
func TestWindowOfAnotherQueuePair(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		if p.b.dev.Caps().Windows == transport.NoWindows || p.b.dev.Caps().FastReg.MaxPages > 0 {
			return // exposes by registrations, which answer to the whole domain
		}
		a, b := p.dial(t, rw.EndpointConfig{}, rw.EndpointConfig{})
		before := slices.Clone(p.b.region.Bytes())
		var x rw.Exposure
		given := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.WriteSink)
		fill(p.a.region.Bytes(), 3)
		err := a.Write(within(t, 5*time.Second), []transport.Piece{p.a.region.Piece(0, 4096)}, given...)
		if p.a.dev.Caps().Protocol != transport.IWARP {
			require.ErrorIs(t, err, transport.StatusRemoteAccess)
		}
		settle(t, a, b)
		requireUntouched(t, p.b.region, before, nil)
		p.b.revoke(p.b.ep, &x)
	})
}

// The sink of a READ on iWARP is registered for just that READ: a peer that kept
// the key that it saw on the wire can't write with it afterwards.
func TestReadSinkIsDeadAfterwards(t *testing.T) {
	everywhere(t, func(t *testing.T, p *pair) {
		if p.a.dev.Caps().Protocol != transport.IWARP {
			return
		}
		var x rw.Exposure
		remote := slices.Clone(p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.ReadSource))
		var c rw.Context
		require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{p.a.region.Piece(0, 4096)}, Remote: remote}))
		require.NoError(t, await(t, p.a.ep, &c))
		p.b.revoke(p.b.ep, &x)
		if c.Plan().Strategy != rw.SyncReg {
			return // the simulator tells lkeys from rkeys: nothing to try
		}
		fill(p.b.region.Bytes(), 4)
		before := slices.Clone(p.a.region.Bytes())
		seen := transport.Remote{Addr: p.a.region.Addr(), Len: 4096, Key: transport.RKey(rw.SinkKey(&c))}
		p.b.ep.Write(within(t, 5*time.Second), []transport.Piece{p.b.region.Piece(0, 4096)}, seen)
		settle(t, p.a.ep, p.b.ep)
		requireUntouched(t, p.a.region, before, nil)
	})
}
