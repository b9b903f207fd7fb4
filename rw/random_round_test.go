package rw_test

import (
	"encoding/binary"
	"errors"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// work is what one round has under way.
type work struct {
	jobs     []*job
	messages []*message
	exposed  []*exposed
}

// exposed is memory that a side exposes.
type exposed struct {
	x    rw.Exposure
	side int
	// byPeer: the other side was asked to invalidate it, by this message.
	byPeer *message
	ending bool
}

// end begins to revoke.
func (w *workload) end(x *exposed) {
	if x.ending {
		return
	}
	x.ending = true
	if err := w.submit(x.side, &x.x.Revoke); err != nil {
		require.True(w.t, w.broken, "%v", err)
	}
}

// expose makes a list valid for the other side. Nil: it can't be, or the pool would
// be left with less than half, which transfers might wait for while this waits for
// them.
func (w *workload) expose(side int, list []transport.Piece, ops mrpool.RemoteOps, all *[]*exposed) *exposed {
	e := w.ends[side]
	x := &exposed{side: side}
	before := e.charged()
	if err := e.ep.Expose(&x.x, list, ops); err != nil {
		require.True(w.t, w.broken || w.impossible(err), "%v", err)
		if !w.broken {
			require.Equal(w.t, before, e.charged(), "what is refused takes nothing")
		}
		return nil
	}
	if err := w.submit(side, &x.x.Grant); err != nil {
		require.True(w.t, w.broken, "%v", err)
		return nil // not granted: Close takes it away
	}
	if !w.wait() {
		return nil
	}
	if err := x.x.Grant.Err(); err != nil {
		require.True(w.t, w.broken, "%v", err)
		return nil // over
	}
	*all = append(*all, x)
	for kind := range transport.NumRegistrationKinds {
		if s := e.pool.Stats(kind); 2*(s.Out-s.Kept+s.Reserved) > e.pool.Size(kind) && s.Out > s.Kept {
			w.end(x)
			w.wait()
			return nil
		}
	}
	return x
}

// begin submits the jobs in chains, some with a message behind, and lets some
// things happen in between.
func (w *workload) begin(all *work) {
	c := w.choose
	jobs := all.jobs
	all.jobs = nil
	for len(jobs) > 0 && !w.failed() && !w.dead {
		chain := []*job{jobs[0]}
		jobs = jobs[1:]
		for len(jobs) > 0 && jobs[0].side == chain[0].side && c.oneIn(2, "chained") {
			chain = append(chain, jobs[0])
			jobs = jobs[1:]
		}
		if !w.affordable(chain) {
			continue
		}
		var m *message
		if c.oneIn(2, "message") {
			m = w.newMessage(chain[0].side, chain)
		}
		w.beginChain(all, chain, m)
		for range c(6, "steps") {
			w.step()
		}
		if c.oneIn(12, "cancel") {
			w.ends[chain[0].side].ep.Cancel(&chain[0].ctx) // or not: it may be posted
		}
	}
}

// affordable: the pool can have that much at once beside the exposures.
func (w *workload) affordable(chain []*job) bool {
	n := 0
	for _, j := range chain {
		n += j.ctx.Plan().Cost.Registrations
	}
	e := w.ends[chain[0].side]
	for _, kind := range []transport.RegistrationKind{transport.FastMR, transport.SyncMR} {
		if size := e.pool.Size(kind); size > 0 && 2*n > size {
			return false
		}
	}
	return true
}

func (w *workload) beginChain(all *work, chain []*job, m *message) {
	var cs []*rw.Context
	for _, j := range chain {
		cs = append(cs, &j.ctx)
	}
	if m != nil {
		cs = append(cs, &m.ctx)
	}
	side := chain[0].side
	before := w.ends[side].charged()
	err := w.submit(side, cs...)
	switch {
	case err == nil:
		all.jobs = append(all.jobs, chain...)
		if m != nil {
			all.messages = append(all.messages, m)
		}
		return
	case len(cs) > 1 && errors.Is(err, rw.ErrChain):
		if m != nil {
			delete(w.messages, m.serial)
		}
		for _, j := range chain {
			w.beginChain(all, []*job{j}, nil)
		}
		return
	}
	require.True(w.t, w.broken || errors.Is(err, rw.ErrTooLarge), "%v", err)
	require.Equal(w.t, before, w.ends[side].charged(), "what is refused takes nothing")
	if m != nil {
		delete(w.messages, m.serial)
	}
}

// newMessage prepares a message from a side, and has the other post a receive for
// it. Nil: it has no room for one.
func (w *workload) newMessage(side int, after []*job) *message {
	w.serial++
	m := &message{side: side, serial: w.serial, after: after}
	m.local = []transport.Piece{w.rooms[side].take(8, 8, 8)}
	region := w.ends[side].region
	data := binary.LittleEndian.AppendUint64(nil, m.serial)
	store(region, region.Bytes(), m.local, 0, data)
	store(region, w.want[side], m.local, 0, data)

	other := w.ends[1-side]
	r := &receivedInto{side: 1 - side, list: []transport.Piece{w.rooms[1-side].take(8, 8, 8)}}
	require.NoError(w.t, other.ep.PrepareRecv(&r.ctx, r.list))
	if err := other.ep.PostRecv(&r.ctx); err != nil {
		require.True(w.t, w.broken || errors.Is(err, transport.ErrQueueFull), "%v", err)
		return nil
	}
	w.begun[&r.ctx], w.ended[&r.ctx], w.receives[&r.ctx] = true, 0, r
	require.NoError(w.t, w.ends[side].ep.PrepareSend(&m.ctx, rw.Message{Local: m.local}))
	w.messages[m.serial] = m
	return m
}

// settleJobs writes down what memory holds now that the jobs are over.
func (w *workload) settleJobs(all *work) {
	for _, j := range all.jobs {
		err := j.ctx.Err()
		side, list, offset := j.sink()
		switch {
		case err == nil && (j.op == rw.Read || !w.broken):
			store(w.ends[side].region, w.want[side], list, offset, j.moved(w))
			w.done++
		case w.broken:
			// It ran, in part, or not at all: any of the bytes may be new.
			region := w.ends[side].region
			store(region, w.want[side], list, offset, contentOf(region, region.Bytes(), list, offset, j.bytes))
		default:
			require.ErrorIs(w.t, err, rw.ErrCanceled)
		}
	}
	for _, m := range all.messages {
		if err := m.ctx.Err(); err != nil {
			require.True(w.t, w.broken || errors.Is(err, rw.ErrCanceled), "%v", err)
		}
	}
}

// revoke ends the exposures: by themselves, or with the help of the other side.
func (w *workload) revoke(all *work) {
	for _, x := range all.exposed {
		if !x.ending && !w.failed() && w.choose.oneIn(2, "by the peer") && x.x.OfferInvalidation() {
			w.invalidateByPeer(x)
		}
	}
	if !w.wait() {
		return
	}
	for _, x := range all.exposed {
		w.end(x)
	}
}

// invalidateByPeer has the other side send a message that kills the key.
func (w *workload) invalidateByPeer(x *exposed) {
	m := w.newMessage(1-x.side, nil)
	if m == nil {
		return
	}
	peer := w.ends[1-x.side].ep
	require.NoError(w.t, peer.PrepareSend(&m.ctx, rw.Message{Local: m.local, Invalidate: x.x.Remotes()[0].Key, HasInvalidate: true}))
	if err := w.submit(1-x.side, &m.ctx); err != nil {
		require.True(w.t, w.broken, "%v", err)
		return
	}
	x.byPeer = m
}

func (w *workload) settleRevocations(all *work) {
	for _, x := range all.exposed {
		if err := x.x.Revoke.Err(); err != nil {
			require.True(w.t, w.broken, "%v", err)
		}
	}
}

// requireCost: everything together took exactly what the plans say, and what
// earlier uses had left to do.
func (w *workload) requireCost(all *work) {
	var stated, taken [2]rw.Cost
	add := func(side, wrs, reads, invalidations int) {
		stated[side].WRs += wrs
		stated[side].Reads += reads
		stated[side].Invalidations += invalidations
	}
	for _, j := range all.jobs {
		if cost := j.ctx.Plan().Cost; j.ctx.Err() == nil {
			add(j.side, cost.WRs, cost.Reads, cost.Invalidations)
		}
	}
	for _, m := range all.messages {
		if m.ctx.Err() == nil {
			add(m.side, 1, 0, 0)
		}
	}
	for _, x := range all.exposed {
		grant, revoke := x.x.Grant.Plan().Cost, x.x.Revoke.Plan().Cost
		add(x.side, min(grant.WRs, grant.Registrations), 0, 0) // without what was stale
		if x.byPeer == nil {
			add(x.side, revoke.WRs, 0, 0)
		} else {
			add(x.byPeer.side, 1, 0, 0)
		}
	}
	for i, e := range w.ends {
		for _, p := range e.dev.posts {
			taken[i].WRs += len(p.wrs) - p.stale
			taken[i].Invalidations += p.trailing
			for _, wr := range p.wrs {
				if wr.Op.IsRead() {
					taken[i].Reads++
				}
			}
		}
	}
	require.Equal(w.t, stated, taken, "what was posted is what the plans say")
}

// finish ends the workload: everything comes back, and nothing is left.
func (w *workload) finish() {
	w.closing = true
	w.closeEndpoints()
	require.True(w.t, w.collect(), "everything that was begun ended")
	for c := range w.begun {
		require.Equal(w.t, 1, w.ended[c], "%v came back once", c.Op())
	}
	require.Empty(w.t, w.receives, "receives come back, too")
	for _, all := range w.left {
		w.settleJobs(all)
	}
	w.requireMemory()
	w.close()
}
