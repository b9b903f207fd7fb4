package rw

import (
	"fmt"

	"rdmarw/transport"
)

// The order in which strategies are considered.
var transferStrategies = [...]Strategy{Direct, FastReg, SyncReg, Staged, WindowBind}

// transferAlternatives says of all strategies but the plan's why they were not
// taken.
func transferAlternatives(t *Transfer, p *plan, limits *Limits, regions transport.RegionView) []Alternative {
	var all []Alternative
	for _, s := range transferStrategies {
		if s == p.Strategy {
			continue
		}
		var why string
		switch s {
		case Direct:
			why = directRejected(t, limits, regions)
		case FastReg:
			why = fastRegRejected(t, limits)
		case SyncReg:
			why = syncRegRejected(t, limits)
		case Staged:
			why = stagedRejected(t, limits)
		case WindowBind:
			why = windowRejected(limits)
		}
		all = append(all, Alternative{s, why})
	}
	return all
}

// directRejected is for READs that must be registered.
func directRejected(t *Transfer, limits *Limits, regions transport.RegionView) string {
	direct := *limits
	direct.Policy = Policy{Sink: SinkDirect, RegisterAbove: -1}
	direct.SendWR = 0
	var p plan
	if err := p.make(t, &direct, regions); err != nil {
		return err.Error()
	}
	if !sinkOnWire(t, limits) {
		if limits.Policy.ForceRegistration {
			return fmt.Sprintf("policy: all local memory is registered. It would take %s and no registration", count(p.Cost.WRs, "request"))
		}
		return fmt.Sprintf("it would take %s of %s in all and no registration; the device's hint is to register above %d",
			count(p.Cost.WRs, "request"), count(len(p.sges), "SGE"), limits.registerAbove())
	}
	return fmt.Sprintf("policy %v: the peer would see keys that live as long as their regions. With policy %v it would take %s and no registration",
		limits.Policy.Sink, SinkDirect, count(p.Cost.WRs, "request"))
}

func fastRegRejected(t *Transfer, limits *Limits) string {
	if limits.Caps.FastReg.MaxPages == 0 {
		return noFastReg
	}
	cost, err := registeredCost(t, limits, FastReg)
	if err != nil {
		return err.Error()
	}
	if limits.FastMRs == 0 {
		return fmt.Sprintf("the pool has no fast registrations: it would take %s with %s", count(cost.WRs, "request"), count(cost.Registrations, "registration"))
	}
	return fmt.Sprintf("not needed: it would take %s with %s, none of which would make anything safer",
		count(cost.WRs, "request"), count(cost.Registrations, "registration"))
}

func syncRegRejected(t *Transfer, limits *Limits) string {
	cost, err := registeredCost(t, limits, SyncReg)
	if err != nil {
		return err.Error()
	}
	calls := fmt.Sprintf("%s with %s before and as many after it, each of them a system call that may block",
		count(cost.WRs, "request"), count(cost.Registrations, "call"))
	if sinkOnWire(t, limits) && limits.FastMRs > 0 {
		return "fast registration does it without calls: this would take " + calls
	}
	return "not needed: it would take " + calls
}

func stagedRejected(t *Transfer, limits *Limits) string {
	switch {
	case t.Op == Write:
		return "a WRITE's source needs no other place: its key stays here"
	case limits.StagingSlots == 0:
		return "the endpoint has no staging memory"
	case limits.Caps.Protocol != transport.IWARP:
		return "not needed: no peer sees the sink's key"
	}
	return fmt.Sprintf("policy %v; %s of %d bytes would have to be copied from", limits.Policy.Sink, count(limits.StagingSlots, "slot"), limits.StagingSlot)
}

// sinkOnWire reports whether the peer sees the key of the transfer's memory.
func sinkOnWire(t *Transfer, limits *Limits) bool {
	return t.Op == Read && limits.Caps.Protocol == transport.IWARP
}

func windowRejected(limits *Limits) string {
	if limits.Caps.Windows == transport.NoWindows {
		return "the device has none, and a window has no lkey: it can't name memory to the local device"
	}
	return "a window has no lkey: it can't name memory to the local device"
}

const noFastReg = "the device has no fast registration (user-space verbs offer none)"

// registeredCost is what a transfer would cost if its local memory was
// registered.
func registeredCost(t *Transfer, limits *Limits, how Strategy) (Cost, error) {
	from, total, err := span(t.Local, t.Offset, t.Length)
	if err != nil {
		return Cost{}, err
	}
	lim := limits.withFastPages()
	p := plan{Plan: Plan{Strategy: how, Bytes: total}}
	if err := p.register(t, from, &lim); err != nil {
		return Cost{}, err
	}
	cost := Cost{WRs: len(p.wrs), Registrations: len(p.segs)}
	if how == FastReg {
		cost.WRs += cost.Registrations
		if sinkOnWire(t, limits) && !limits.Caps.ReadWithInv {
			cost.WRs += cost.Registrations
		}
	}
	return cost, nil
}

// cover is what one registration holds of a list.
func (lim *Limits) cover(how Strategy, list []transport.Piece, at transport.Cursor, left uint64) transport.Extent {
	if how != FastReg {
		return transport.Contiguous(list, at, min(left, lim.mrSize()))
	}
	l := lim.withFastPages()
	return transport.Coverage(list, at, left, l.PageShift, l.FastPages, lim.Caps.FastReg.Gaps)
}

// withFastPages has fast registrations as they would be, if the pool was made without
// any.
func (lim *Limits) withFastPages() Limits {
	l := *lim
	if l.FastPages == 0 {
		l.FastPages, l.PageShift = min(lim.Caps.FastReg.MaxPages, 256), 12
	}
	return l
}
