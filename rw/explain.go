package rw

import (
	"fmt"
	"strings"

	"rdmarw/transport"
)

// Explanation says what an endpoint does for a transfer or an exposure, and why
// it does nothing else. It is found by taking the decision once more, from the
// same inputs: plans themselves record no reasons.
//
//	x, err := rw.Explain(transfer, ep.Limits(), pool.PD().Regions().View())
//	fmt.Print(x)
type Explanation struct {
	// Subject names what was planned, and for what device.
	Subject string
	// Plan is the decision. The cost of an exposure is that of its Grant and its
	// Revoke together.
	Plan Plan
	// Reason tells why it is this strategy.
	Reason string
	// Limits are those that the decision depends on, in words.
	Limits string
	// Phases are what happens, in order.
	Phases []Phase
	// Rejected are the other strategies.
	Rejected []Alternative
}

// Phase is one thing that happens: a chain of requests that is posted by one
// doorbell, or else calls that may block, made by a worker.
type Phase struct {
	// During names the part of the operation's life.
	During string
	// Call describes calls. Empty: the phase is Chain.
	Call string
	// Chain holds the requests in the order they are posted.
	Chain []Step
}

// Alternative is a strategy that was not chosen.
type Alternative struct {
	Strategy Strategy
	// Reason tells what forbids it, or what it would cost.
	Reason string
}

// Step is one request of a chain.
type Step struct {
	Op transport.Opcode
	// Index counts, from zero, the registrations that requests make valid or
	// invalid, and separately the READs or WRITEs.
	Index int
	// SGEs and Bytes are those of a READ or WRITE.
	SGEs  int
	Bytes uint64
	// Flags are Fence and Signaled.
	Flags transport.Flags
}

// String returns a short name of the request, such as "REG0" or "READ3", and in
// brackets what is remarkable about it.
func (s Step) String() string {
	name := s.Op.String()
	switch s.Op {
	case transport.OpFastReg:
		name = "REG"
	case transport.OpBindWindow:
		name = "BIND"
	case transport.OpLocalInv:
		name = "INV"
	case transport.OpReadWithInv:
		name = "READ+INV"
	}
	var marks []string
	if s.SGEs > 1 {
		marks = append(marks, fmt.Sprintf("%d SGEs", s.SGEs))
	}
	if s.Flags&transport.Fence != 0 {
		marks = append(marks, "fence")
	}
	if marks == nil {
		return fmt.Sprintf("%s%d", name, s.Index)
	}
	return fmt.Sprintf("%s%d(%s)", name, s.Index, strings.Join(marks, ", "))
}

// Explain takes the decision about a transfer once more, from its inputs, and
// gives the reasons. limits are those of [Endpoint.Limits], regions those of the
// pool's protection domain.
//
// If the transfer is refused, the error is that of [Endpoint.Prepare], and the
// explanation still tells what was tried and what was rejected.
func Explain(t Transfer, limits Limits, regions transport.RegionView) (Explanation, error) {
	if limits.Caps == nil {
		return Explanation{}, refuse("explain", transport.ErrInvalid, "Limits.Caps says what device it is about")
	}
	var p plan
	err := p.make(&t, &limits, regions)
	x := Explanation{
		Subject: subject(t.Op.String(), t.Local, p.Bytes, limits.Caps),
		Plan:    p.Plan,
		Reason:  transferReason(&t, &p, &limits),
		Limits:  limits.words(t.Op),
	}
	switch {
	case err != nil:
		x.Reason += "; refused: " + err.Error()
	case p.Strategy == Nothing:
		return x, nil
	default:
		x.Phases = transferPhases(&p)
	}
	if p.Bytes > 0 {
		x.Rejected = transferAlternatives(&t, &p, &limits, regions)
	}
	return x, err
}

// transferReason says why the planner chose what it chose.
func transferReason(t *Transfer, p *plan, limits *Limits) string {
	caps := limits.Caps
	switch {
	case p.Bytes == 0:
		return "there are no bytes to move: it completes locally, nothing is posted"
	case limits.Policy.ForceRegistration:
		return "policy: all local memory is registered"
	case t.Op == Write:
		return fmt.Sprintf("the peer never sees the key of a WRITE's source, so the regions' own lkeys serve on any device; "+
			"up to %d SGEs per request as the queue pair was granted", max(1, limits.SendSGE))
	case p.Strategy == Staged && limits.Policy.Sink == SinkStaging:
		return fmt.Sprintf("policy %v: the peer sees the key of the staging memory and no other, %s", SinkStaging, safeIf(limits))
	case p.Strategy == Staged:
		return fmt.Sprintf("the pool hasn't as many registrations as this sink takes, but there is staging memory; the peer sees its key, %s", safeIf(limits))
	case p.Strategy == Direct && caps.Protocol == transport.IWARP && limits.Policy.Sink == SinkPersistent:
		return fmt.Sprintf("policy %v: the peer sees keys of whole regions that were made for READs to land in, %s; up to %d SGEs per READ",
			limits.Policy.Sink, safeIf(limits), caps.ReadSGEs(limits.SendSGE))
	case p.Strategy == Direct && caps.Protocol == transport.IWARP:
		return fmt.Sprintf("policy %v: the peer sees keys that live as long as their regions, %s; up to %d SGEs per READ",
			limits.Policy.Sink, safeIf(limits), caps.ReadSGEs(limits.SendSGE))
	case p.Strategy == FastReg && p.lazy:
		return fmt.Sprintf("more than %s: the device does better with a registration, whose invalidation heads its next use; "+
			"if none is free when it is posted: direct, fallback: pool empty", count(limits.registerAbove(), "SGE"))
	case p.Strategy == Direct && limits.registerAbove() > 0:
		return fmt.Sprintf("on %v the key of a READ's sink stays with the local device, so the regions' own lkeys serve; "+
			"up to %d SGEs per READ; registering pays above %d SGEs for each registration", caps.Protocol, caps.ReadSGEs(limits.SendSGE), limits.registerAbove())
	case p.Strategy == Direct && caps.MaxSGLRead > 0 && caps.FastReg.MaxPages > 0 && limits.FastMRs == 0 && len(p.sges) > caps.MaxSGLRead:
		return fmt.Sprintf("fallback: pool empty: above %d SGEs the device does better with a registration, and none is free; direct is as safe", caps.MaxSGLRead)
	case p.Strategy == Direct:
		return fmt.Sprintf("on %v the key of a READ's sink stays with the local device, so the regions' own lkeys serve; "+
			"up to %d SGEs per READ", caps.Protocol, caps.ReadSGEs(limits.SendSGE))
	case p.Strategy == FastReg && caps.ReadWithInv:
		return sinkReason + "by work requests, as the device has fast registration, and READ_WITH_INV kills each key as its data lands"
	case p.Strategy == FastReg:
		return sinkReason + "by work requests, as the device has fast registration; invalidations follow the last READ, the first of them fenced"
	case p.Strategy == SyncReg:
		return sinkReason + "by calls, as the device has no fast registration"
	}
	return "no strategy was reached"
}

// safeIf says for whom a longer-lived key is harmless.
func safeIf(limits *Limits) string {
	if limits.Isolated {
		return "in a protection domain of its own, so that no other peer can use it"
	}
	return "which is safe only if all peers of the protection domain trust each other (or have one each: mrpool.NewIsolated)"
}

const sinkReason = "on iWARP a READ request shows the sink's key to the peer, so exactly the sink is registered, for just this READ: "

// transferPhases says what happens, in the order of [Context.emit].
func transferPhases(p *plan) []Phase {
	chain := transferChain(p)
	switch p.Strategy {
	case Staged:
		return []Phase{
			{During: "post", Chain: chain},
			{During: "finish", Call: fmt.Sprintf("%d bytes copied out of %s", p.Bytes, count(len(p.segs), "staging slot"))},
		}
	case SyncReg:
	default:
		return []Phase{{During: "post", Chain: chain}}
	}
	n := len(p.segs)
	return []Phase{
		{During: "register", Call: fmt.Sprintf("%s, one for each contiguous run of the sink", count(n, "MR"))},
		{During: "post", Chain: chain},
		{During: "deregister", Call: fmt.Sprintf("%s; the READ isn't done before the keys are dead", count(n, "MR"))},
	}
}

func transferChain(p *plan) []Step {
	var chain []Step
	transfers := 0
	move := func(n int) {
		for _, wr := range p.wrs[transfers : transfers+n] {
			s := Step{Op: wr.Op, Index: transfers, SGEs: int(wr.NumSGE), Flags: wr.Flags}
			for _, sge := range p.sges[wr.FirstSGE : wr.FirstSGE+uint32(wr.NumSGE)] {
				s.Bytes += uint64(sge.Len)
			}
			chain = append(chain, s)
			transfers++
		}
	}
	if p.Strategy == FastReg {
		for i, seg := range p.segs {
			chain = append(chain, Step{Op: transport.OpFastReg, Index: i})
			move(seg.wrs)
		}
	} else {
		move(len(p.wrs))
	}
	for i := range p.Cost.Invalidations {
		inv := Step{Op: transport.OpLocalInv, Index: i}
		if i == 0 {
			inv.Flags = transport.Fence
		}
		chain = append(chain, inv)
	}
	return signalLast(chain)
}

func signalLast(chain []Step) []Step {
	chain[len(chain)-1].Flags |= transport.Signaled
	return chain
}

// words lists the limits that matter to an operation.
func (lim *Limits) words(op Op) string {
	var w []string
	switch op {
	case Read:
		w = append(w, count(lim.Caps.ReadSGEs(lim.SendSGE), "SGE")+" per READ", fmt.Sprintf("sink policy %v", lim.Policy.Sink))
	case Write:
		w = append(w, count(max(1, lim.SendSGE), "SGE")+" per WRITE")
	}
	if lim.Caps.MaxMsg > 0 {
		w = append(w, fmt.Sprintf("%d bytes per request", lim.Caps.MaxMsg))
	}
	if lim.SendWR > 0 {
		w = append(w, count(lim.SendWR, "request")+" per chain")
	}
	pool := fmt.Sprintf("a pool of %d fast", lim.FastMRs)
	if lim.FastMRs > 0 {
		pool += fmt.Sprintf(" (%d pages of %d bytes each)", lim.FastPages, 1<<lim.PageShift)
	}
	return strings.Join(append(w, pool+fmt.Sprintf(" and %d synchronous registrations, %d windows", lim.SyncMRs, lim.Windows)), ", ")
}

// subject names what is explained.
func subject(what string, list []transport.Piece, total uint64, caps *transport.Caps) string {
	pieces := count(len(list), "piece")
	if runs := len(contiguousRuns(list)); runs != len(list) {
		pieces += fmt.Sprintf(" in %s", count(runs, "contiguous run"))
	}
	return fmt.Sprintf("%s of %s, %s, on %s (%v)", what, pieces, count(int(total), "byte"), caps.Device, caps.Protocol)
}

// contiguousRuns returns the lengths of the contiguous runs of a list.
func contiguousRuns(list []transport.Piece) (runs []uint64) {
	for at := (transport.Cursor{}); ; {
		ext := transport.Contiguous(list, at, 0)
		if ext.Len == 0 {
			return runs
		}
		runs = append(runs, ext.Len)
		at = ext.Next
	}
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
