package rw

import (
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// ExplainExposure is [Explain] for [Endpoint.Expose]. Errors are those of Expose,
// except that it doesn't know how much of the pool is in use.
func ExplainExposure(local []transport.Piece, ops mrpool.RemoteOps, limits Limits, regions transport.RegionView) (Explanation, error) {
	from, total, err := span(local, 0, 0)
	if err == nil && (total == 0 || ops == 0) {
		err = refuse("expose", transport.ErrInvalid, "nothing to expose: an empty list, or no operations")
	}
	keys := func(kind transport.RegistrationKind) int {
		return limits.exposedKeys(exposureStrategy(kind), local, from, total)
	}
	kind, fallback, n := limits.exposureKinds()[0], false, 0
	if err == nil {
		kind, fallback, err = limits.chooseExposure(func(kind transport.RegistrationKind) error {
			if err := checkExposed(local, kind, ops, regions); err != nil {
				return err
			}
			return limits.tooManyKeys(kind, keys(kind))
		})
		n = keys(kind)
	}
	strategy := exposureStrategy(kind)
	x := Explanation{
		Plan:    Plan{Strategy: strategy, Fallback: fallback},
		Reason:  exposureReason(strategy, limits.Caps),
		Limits:  limits.words(Grant),
		Subject: subject("exposure", local, total, limits.Caps) + fmt.Sprintf(", as %v", ops),
	}
	if fallback {
		best := limits.exposureKinds()[0]
		x.Reason = fmt.Sprintf("fallback, since what the device does best can't be had (%v)", limits.tooManyKeys(best, keys(best)))
	}
	if n > 0 {
		x.Plan.Bytes = total
		x.Plan.Cost = exposureCost(kind, n, &limits)
		x.Rejected = exposureAlternatives(strategy, n, local, from, total, &limits, checkExposed(local, transport.Window, ops, regions))
	}
	if err != nil {
		x.Reason += "; refused: " + err.Error()
		return x, err
	}
	x.Phases = exposurePhases(kind, n, ops, &limits)
	return x, nil
}

// tooManyKeys refuses what the pool or the send queue can't hold.
func (lim *Limits) tooManyKeys(kind transport.RegistrationKind, n int) error {
	if has := lim.registrations(kind); n > has {
		return fmt.Errorf("expose by %v: takes %d, the pool has %d: %w", kind, n, has, mrpool.ErrEmpty)
	}
	if lim.SendWR > 0 && kind != transport.SyncMR && n > lim.SendWR {
		return fmt.Errorf("expose: takes %d work requests, the send queue holds %d: %w", n, lim.SendWR, ErrTooLarge)
	}
	return nil
}

func exposureReason(s Strategy, caps *transport.Caps) string {
	switch s {
	case FastReg:
		return "a fast registration gives one key for a whole list, by a work request"
	case WindowBind:
		if caps.MapBlocks[transport.Window] {
			return "the device has no fast registration; a window is bound by a work request, and answers to this connection alone. " +
				"As the device lets peers reach all of the region below a window, each is bound over a registration of exactly its run, which a call makes first"
		}
		return "the device has no fast registration; a window is bound by a work request, and answers to this connection alone"
	}
	return "the device has neither fast registration nor windows, so exactly each contiguous run is registered, by calls"
}

// checkExposed refuses what mapping would refuse.
func checkExposed(local []transport.Piece, kind transport.RegistrationKind, ops mrpool.RemoteOps, regions transport.RegionView) error {
	need := ops.Access() & transport.LocalWrite
	if kind == transport.Window {
		need |= transport.BindWindow
	}
	for _, piece := range local {
		if _, err := regions.Check(piece, need); err != nil {
			return err
		}
	}
	return nil
}

// exposedKeys is how many registrations [Endpoint.Expose] takes for a list.
func (lim *Limits) exposedKeys(how Strategy, local []transport.Piece, from transport.Cursor, left uint64) int {
	n := 0
	for left > 0 {
		ext := lim.cover(how, local, from, min(left, maxExposed))
		if ext.Len == 0 {
			break
		}
		n++
		left -= ext.Len
		from = ext.Next
	}
	return n
}

func (lim *Limits) registrations(kind transport.RegistrationKind) int {
	return [...]int{transport.SyncMR: lim.SyncMRs, transport.FastMR: lim.FastMRs, transport.Window: lim.Windows}[kind]
}

// exposureCost is that of Grant and Revoke.
func exposureCost(kind transport.RegistrationKind, n int, limits *Limits) Cost {
	cost := Cost{Registrations: n}
	if kind != transport.SyncMR {
		cost.WRs = n
		if limits.Caps.LocalInv[kind] == transport.InvWorks {
			cost.WRs += n
			cost.Invalidations = n
		}
	}
	return cost
}

func exposurePhases(kind transport.RegistrationKind, n int, ops mrpool.RemoteOps, limits *Limits) []Phase {
	rights := ops.Access().String()
	if kind == transport.SyncMR {
		return []Phase{
			{During: "Expose", Call: fmt.Sprintf("register %s with %s", count(n, "MR"), rights)},
			{During: "Grant", Call: "nothing: the keys are valid already"},
			{During: "Revoke", Call: fmt.Sprintf("deregister %s", count(n, "MR"))},
		}
	}
	valid := transport.OpFastReg
	if kind == transport.Window {
		valid = transport.OpBindWindow
	}
	phases := []Phase{{During: "Grant", Chain: steps(valid, n)}, {During: "Revoke"}}
	switch limits.Caps.LocalInv[kind] {
	case transport.InvWorks:
		phases[1].Chain = steps(transport.OpLocalInv, n)
	case transport.InvHarmful:
		phases[1].Call = fmt.Sprintf("deallocate %s: an invalidation may do harm on this device", count(n, kind.String()))
	default:
		phases[1].Call = fmt.Sprintf("deallocate %s: the device has no invalidation for them", count(n, kind.String()))
	}
	return phases
}

func steps(op transport.Opcode, n int) []Step {
	chain := make([]Step, n)
	for i := range chain {
		chain[i] = Step{Op: op, Index: i}
	}
	return signalLast(chain)
}

// exposureAlternatives says of all strategies but the chosen one why they were
// not taken.
func exposureAlternatives(chosen Strategy, keys int, local []transport.Piece, from transport.Cursor, total uint64, limits *Limits, noWindow error) []Alternative {
	all := []Alternative{{Direct, "a region is never remotely reachable: it has no rkey"}}
	runs := limits.exposedKeys(SyncReg, local, from, total)
	switch {
	case chosen == FastReg:
	case limits.Caps.FastReg.MaxPages == 0:
		all = append(all, Alternative{FastReg, noFastReg})
	default:
		all = append(all, Alternative{FastReg, fmt.Sprintf("%s, more than can be had", count(limits.exposedKeys(FastReg, local, from, total), "registration"))})
	}
	switch {
	case chosen == WindowBind:
	case limits.Caps.Windows == transport.NoWindows:
		all = append(all, Alternative{WindowBind, "the device has no type-2 windows"})
	case noWindow != nil:
		all = append(all, Alternative{WindowBind, noWindow.Error()})
	default:
		all = append(all, Alternative{WindowBind, fmt.Sprintf("a window covers one contiguous run only: %s to tell the peer instead of %d", count(runs, "key"), keys)})
	}
	if chosen != SyncReg {
		all = append(all, Alternative{SyncReg, fmt.Sprintf("it would take %s before and as many after it, each of them a system call that may block, and the keys answer to every connection of the protection domain",
			count(runs, "call"))})
	}
	return all
}
