package rw_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// planProfiles are the simulator's, and one that no device is like today: fast
// registration on iWARP, and no READ_WITH_INV.
func planProfiles() []sim.Profile {
	without, _ := sim.LookupProfile("cxgb4-kernel")
	without.Name = "cxgb4-kernel-without-read-inv"
	without.Caps.ReadWithInv = false
	return append(sim.Profiles(), without)
}

// planRig runs the cases of one policy on one profile.
type planRig struct {
	*stepped
	t     *testing.T
	mem   memories
	held  []*mrpool.MR // so that the pool is empty
	unmap func()
}

func newPlanRig(t *testing.T, profile sim.Profile, under string) *planRig {
	r := &planRig{t: t, stepped: newStepped(t, steppedFor(profile, under))}
	a := r.ends[0]
	// Larger than any message.
	var vast *transport.Region
	vast, r.unmap = wrapped(t, a.dev, int(profile.Caps.MaxMsg)+1<<20)
	require.NoError(t, a.pd.AddRegion(vast))
	r.mem = memories{caps: a.dev.Caps(), sendSGE: a.ep.Limits().SendSGE, region: a.region, readOnly: a.readOnly, vast: vast}
	if under == "pool-empty" || under == "forced-pool-empty" {
		r.emptyPool()
	}
	return r
}

// emptyPool takes all registrations.
func (r *planRig) emptyPool() {
	pool := r.ends[0].pool
	for kind := range transport.NumRegistrationKinds {
		all := make([]*mrpool.MR, pool.Size(kind))
		require.NoError(r.t, pool.Take(kind, all, "the test"))
		r.held = append(r.held, all...)
	}
}

func (r *planRig) refillPool() {
	for _, m := range r.held {
		m.Put()
	}
	r.held = nil
}

func (r *planRig) end() {
	a := r.ends[0]
	r.refillPool()
	r.closeEndpoints()
	require.NoError(r.t, errors.Join(a.pd.RemoveRegion(r.mem.vast), r.mem.vast.Close()))
	r.close()
	r.unmap()
}

// outcome is what became of a case: as planned, and as posted.
type outcome struct {
	planCase
	local          []transport.Piece
	offset, length uint64
	bytes          uint64             // that are meant
	ranges         []transport.Remote // of the peer

	err    error // of the refusal
	plan   rw.Plan
	waited bool // for the pool

	posts    []posted
	mappings []*mapping
	before   charges
	during   charges // once submitted
	after    charges
	// Of an exposure: what the peer is told, and how it ends.
	remotes    []transport.Remote
	revoke     rw.Plan
	revoked    []posted
	liveInside int // keys that the peer could use while it was granted
}

// run carries a case out.
func (r *planRig) run(c planCase) (o outcome) {
	o.planCase = c
	o.local, o.offset, o.length = r.mem.list(c.op, c.shape)
	for _, p := range o.local {
		o.bytes += uint64(p.Len)
	}
	o.bytes -= min(o.bytes, o.offset)
	if o.length > 0 {
		o.bytes = min(o.bytes, o.length)
	}
	if c.under == "second-use" || c.under == "forced-second-use" {
		o.ranges = remotesFor(c.remote, o.bytes)
		r.transfer(&o)
	}
	r.ends[0].dev.forget()
	if c.op == opSource || c.op == opSink {
		r.expose(&o)
		return o
	}
	o.ranges = remotesFor(c.remote, o.bytes)
	r.transfer(&o)
	return o
}

func (r *planRig) transfer(o *outcome) {
	a := r.ends[0]
	op := rw.Write
	if o.op == opRead {
		op = rw.Read
	}
	var c rw.Context
	o.before = a.charged()
	o.err = a.ep.Prepare(&c, rw.Transfer{Op: op, Local: o.local, Offset: o.offset, Length: o.length, Remote: o.ranges})
	if o.err == nil {
		o.err = a.ep.Submit(&c)
	}
	if o.err != nil {
		o.after = a.charged()
		o.posts = a.dev.posts
		return
	}
	o.during = a.charged()
	a.done = nil
	for i := 0; i < 300 && len(a.done) == 0; i++ { // a poll for each part that is fed
		a.poll()
	}
	if o.waited = len(a.done) == 0 && r.held != nil; o.waited {
		require.Empty(r.t, a.dev.posts, "who waits holds nothing, and posts nothing")
		require.Equal(r.t, o.before, o.during)
		r.refillPool()
		r.until(func() bool { return len(a.done) > 0 })
		r.emptyPool()
	}
	r.requireDone(&c)
	o.plan = c.Plan()
	o.after = a.charged()
	o.posts, o.mappings = a.dev.posts, a.dev.mappings
}

// requireDone: the context came back, once, and well. (Contexts are not for testify
// to compare: it would print all they lead to.)
func (r *planRig) requireDone(c *rw.Context) {
	done := r.ends[0].done
	require.True(r.t, len(done) == 1 && done[0] == c, "%d contexts came back", len(done))
	require.NoError(r.t, c.Err())
}

func (r *planRig) expose(o *outcome) {
	a := r.ends[0]
	ops := mrpool.ReadSource
	if o.op == opSink {
		ops = mrpool.WriteSink
	}
	var x rw.Exposure
	o.before = a.charged()
	o.err = a.ep.Expose(&x, o.local, ops)
	o.posts = a.dev.posts
	if o.err != nil {
		o.after = a.charged()
		return
	}
	require.Empty(r.t, a.dev.posts, "nothing is posted before the grant is submitted")
	o.plan, o.revoke = x.Grant.Plan(), x.Revoke.Plan()
	o.remotes = append(o.remotes, x.Remotes()...)
	o.during = a.charged()
	o.mappings = a.dev.mappings
	if o.plan.Fallback { // what was mapped before there were too few was given back
		o.mappings = o.mappings[max(0, len(o.mappings)-len(o.remotes)):]
	}
	do := func(c *rw.Context) []posted {
		a.dev.forget()
		a.done = nil
		require.NoError(r.t, a.ep.Submit(c))
		r.until(func() bool { return len(a.done) > 0 })
		r.requireDone(c)
		return a.dev.posts
	}
	o.posts = do(&x.Grant)
	o.liveInside = len(a.dev.living())
	o.revoked = do(&x.Revoke)
	o.after = a.charged()
}
