package rw_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// recorder notes the requests of side A as they are posted.
type recorder struct {
	onlySide
	mu  sync.Mutex
	wrs []transport.WR
}

func (r *recorder) post(q *sim.QP, _ uint64, wr *transport.WR) error {
	if r.is(q) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.wrs = append(r.wrs, *wr)
	}
	return nil
}

// take returns what was posted since the last call.
func (r *recorder) take() []transport.WR {
	r.mu.Lock()
	defer r.mu.Unlock()
	wrs := r.wrs
	r.wrs = nil
	return wrs
}

// opcodes names the operations of requests, with "!" for a fence.
func opcodes(wrs []transport.WR) string {
	var names []string
	for _, wr := range wrs {
		name := wr.Op.String()
		if wr.Flags&transport.Fence != 0 {
			name += "!"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// recorded connects devices of a profile, and records what side A posts.
func recorded(t *testing.T, profile string, cfg rw.EndpointConfig) (*pair, *recorder) {
	r := new(recorder)
	p := connect(t, faultyBed(profile, sim.Faults{Post: r.post}), cfg)
	r.qpn.Store(p.a.ep.Conn().QP().Num())
	return p, r
}

// source has side B expose its first bytes, and returns the descriptors.
func (p *pair) source(t *testing.T, n uint32, ops mrpool.RemoteOps) []transport.Remote {
	x := new(rw.Exposure)
	remote := p.b.expose(p.b.ep, x, []transport.Piece{p.b.region.Piece(0, n)}, ops)
	t.Cleanup(func() { p.b.ep.Do(t.Context(), &x.Revoke) })
	return append([]transport.Remote(nil), remote...)
}

// read READs side B's first bytes into a list, and checks that they arrived.
func (p *pair) read(t *testing.T, ep *rw.Endpoint, c *rw.Context, list []transport.Piece, remote []transport.Remote) rw.Plan {
	t.Helper()
	require.NoError(t, ep.Prepare(c, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
	require.NoError(t, await(t, ep, c))
	got := bytesOf(p.a.region, list)
	require.Equal(t, p.b.region.Bytes()[:len(got)], got)
	return c.Plan()
}

// holdsNothing checks that credits and registrations of side A are all there.
func (p *pair) holdsNothing(t *testing.T, ep *rw.Endpoint, pool *mrpool.Pool) {
	t.Helper()
	sends, reads := ep.Credits()
	require.Equal(t, ep.Conn().QP().Granted().MaxSendWR-1, sends, "send queue slots")
	caps := p.a.dev.Caps()
	require.Equal(t, min(caps.InitiatorDepth, caps.ResponderResources), reads, "READ depth")
	for kind := range transport.NumRegistrationKinds {
		s := pool.Stats(kind)
		require.Zero(t, s.Out+s.Broken, "registrations of kind %v", kind)
	}
}
