package rw_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/rw"
	"rdmarw/transport"
)

// Every line of the golden files keeps the rules of any plan: found out from what
// was posted, so that they aren't merely approved. What each request must be like
// by itself is checked as it is posted; see rules_test.go.
func TestPlansKeepTheRules(t *testing.T) {
	for _, profile := range planProfiles() {
		t.Run(profile.Name, func(t *testing.T) {
			refused := 0
			eachPlan(t, profile, func(r *planRig, o *outcome) {
				require.Empty(t, r.ends[0].dev.breaches, "%s", o.line())
				require.Zero(t, len(r.ends[0].dev.living()), "keys outlive their operation: %s", o.line())
				require.Equal(t, o.before, o.after, "what was taken is back: %s", o.line())
				switch {
				case o.err != nil:
					refused++
					require.Empty(t, o.posts, "%s", o.line())
				case o.op == opSource || o.op == opSink:
					checkExposure(t, r, o)
				default:
					checkTransfer(t, r, o)
				}
			})
			require.Less(t, refused, len(planCases())/2, "most cases are possible")
		})
	}
}

// checkTransfer: the right bytes, at the stated cost, in a legal order.
func checkTransfer(t *testing.T, r *planRig, o *outcome) {
	line := o.line()
	caps := r.mem.caps
	read := o.op == opRead
	staged := o.plan.Strategy == rw.Staged

	var got []move
	var cost rw.Cost
	slots := make(map[uint64]bool)
	for _, p := range o.posts {
		got = append(got, p.moves...)
		cost.WRs += len(p.wrs) - p.stale
		cost.Invalidations += p.trailing
		for _, wr := range p.wrs {
			if wr.Op.IsRead() {
				cost.Reads++
			}
		}
		for _, m := range p.moves {
			if staged {
				cost.StagedBytes += m.n
				slots[(m.local-r.ends[0].stagingMemory.Addr())/(16<<10)] = true
			}
		}
		checkOrder(t, line, &p)
		if read && caps.Protocol == transport.IWARP {
			allowed := (o.under == "direct" || o.under == "direct-isolated") && !caps.ReadSinkNeedsRemoteWrite
			require.True(t, allowed || !p.ownKey, "the key of a whole region is shown to the peer: %s", line)
		}
	}
	cost.Slots = len(slots)
	cost.Registrations = len(o.mappings)
	require.Equal(t, cost, o.plan.Cost, "the cost is exact: %s", line)
	require.Equal(t, o.bytes, o.plan.Bytes, line)

	want := wanted(read, o.local, o.offset, max(o.bytes, o.length), o.ranges)
	if staged { // the local side is the staging memory's; the copy is seen by what arrives
		require.Equal(t, remoteSide(want), remoteSide(got), line)
		requireApart(t, line, got)
	} else {
		require.Equal(t, want, inOne(got), "each byte once, from and to where it should: %s", line)
	}
	for _, m := range o.mappings {
		require.Equal(t, m.ext.Len, m.through, "exactly what is moved is registered: %s", line)
	}
	checkCharge(t, r, o, cost)
}

// checkCharge: the endpoint takes what is posted, no more and no less.
func checkCharge(t *testing.T, r *planRig, o *outcome, cost rw.Cost) {
	if o.waited || o.plan.Strategy == rw.Nothing {
		return
	}
	depth := o.before.reads
	require.Equal(t, min(cost.Reads, depth), o.before.reads-o.during.reads, "READ depth: %s", o.line())
	wrs := o.before.sendWRs - o.during.sendWRs
	if o.under == "fed" && o.plan.Strategy != rw.FastReg && cost.Reads > 0 {
		require.LessOrEqual(t, wrs, depth, o.line())
		for _, p := range o.posts {
			require.LessOrEqual(t, len(p.wrs), depth, "a READ depth at a time: %s", o.line())
		}
		return
	}
	require.Len(t, o.posts, 1, "one doorbell: %s", o.line())
	require.Equal(t, len(o.posts[0].wrs), wrs, "send queue slots: %s", o.line())
}

// checkOrder: registrations before what uses them is a matter of keys being valid,
// which was checked. Here: once the invalidations begin nothing else follows, and
// the first of them alone is fenced.
func checkOrder(t *testing.T, line string, p *posted) {
	first := len(p.wrs) - p.trailing
	for i, wr := range p.wrs {
		switch {
		case i < first:
			require.False(t, wr.Op == transport.OpLocalInv && p.stale == 0, "request %d invalidates too early: %s", i, line)
			require.Zero(t, wr.Flags&transport.Fence, "request %d: %s", i, line)
		default:
			require.Equal(t, transport.OpLocalInv, wr.Op, "request %d: %s", i, line)
			require.Equal(t, i == first, wr.Flags&transport.Fence != 0, "request %d: %s", i, line)
		}
	}
}

// checkExposure: keys that describe the list, for exactly the peer's operation, and
// for no longer than they are granted.
func checkExposure(t *testing.T, r *planRig, o *outcome) {
	line := o.line()
	rights := transport.RemoteRead
	if o.op == opSink {
		rights = transport.LocalWrite | transport.RemoteWrite
	}
	require.Equal(t, len(o.mappings), len(o.remotes), line)
	require.Equal(t, len(o.mappings), o.liveInside, "all keys are valid once granted: %s", line)
	var told []stretch
	wrs := 0
	for i, m := range o.mappings {
		require.Equal(t, rights, m.Access, line)
		require.Equal(t, m.ext.IOVA, o.remotes[i].Addr, line)
		require.Equal(t, m.ext.Len, uint64(o.remotes[i].Len), line)
		told = append(told, m.stretches(0, m.ext.Len)...)
		if m.reg.Kind() != transport.SyncMR {
			wrs++
		}
	}
	all := mapping{Mapping: transport.Mapping{List: o.local}}
	require.Equal(t, all.stretches(0, o.bytes), joined(told), "the keys describe the list in order: %s", line)

	posted := 0
	for _, p := range o.posts {
		posted += len(p.wrs)
		wrs += p.stale
	}
	require.Equal(t, wrs, posted, line)
	require.Equal(t, rw.Cost{WRs: wrs, Registrations: len(o.mappings)}, o.plan.Cost, "the cost is exact: %s", line)
	invalidations := 0
	for _, p := range o.revoked {
		invalidations += len(p.wrs)
	}
	require.Equal(t, rw.Cost{WRs: invalidations, Invalidations: invalidations}, o.revoke.Cost, line)
}

// joined joins stretches that go on where the one before ended.
func joined(list []stretch) (out []stretch) {
	for _, s := range list {
		if k := len(out) - 1; k >= 0 && out[k].addr+out[k].n == s.addr {
			out[k].n += s.n
			continue
		}
		out = append(out, s)
	}
	return out
}

// remoteSide is what moves say of the peer's memory.
func remoteSide(moves []move) (out []move) {
	for _, m := range moves {
		m.local = 0
		if k := len(out) - 1; k >= 0 && out[k].remote+out[k].n == m.remote && out[k].rkey == m.rkey {
			out[k].n += m.n
			continue
		}
		out = append(out, m)
	}
	return out
}

// requireApart: no two moves touch the same local bytes.
func requireApart(t *testing.T, line string, moves []move) {
	for i, m := range moves {
		for _, n := range moves[:i] {
			require.False(t, m.local < n.local+n.n && n.local < m.local+m.n, "%s: %s", fmt.Sprint(m, n), line)
		}
	}
}
