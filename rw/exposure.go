package rw

import (
	"errors"
	"fmt"
	"strings"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// Exposure lets the peer READ or WRITE exactly one local list for as long as one
// operation takes. It is prepared with [Endpoint.Expose], made valid by submitting
// its Grant, and dead when its Revoke is done. [Exposure.Remotes] is what to tell
// the peer.
//
//	ep.Expose(&x, list, mrpool.ReadSource)
//	... write x.Remotes() into the request ...
//	ep.Submit(&x.Grant, &request) // one chain: the peer can't see the key before it is valid
//	... the answer arrives ...
//	ep.Submit(&x.Revoke)          // done when the key is dead
//
// The caller owns it and may use it again when Revoke (or a failed Grant) is done.
// The zero value is ready.
type Exposure struct {
	// Owner is the caller's, untouched.
	Owner any
	// Grant makes the keys valid; it may be chained in front of a SEND. On
	// devices where registering is a call it completes without posting anything.
	// If it fails, the exposure is over and its keys are dead.
	Grant Context
	// Revoke makes the keys dead: by an invalidation where the device offers one
	// and it does no harm, otherwise by taking the registration away. If the peer
	// has invalidated already, nothing is posted. On an endpoint that failed it
	// works too. Nothing can be chained behind it unless the device invalidates by
	// work request.
	Revoke Context

	ep      *Endpoint
	mrs     []*mrpool.MR
	remotes []transport.Remote
	plan    Plan
	// The following are under the poller's lock.
	key     transport.RKey // of its only registration
	offered bool           // for remote invalidation
	granted bool
	// heldRevoke is the chain of a Revoke that waits for the Grant to be over: a
	// revocation by call mustn't overtake it.
	heldRevoke *chain
	killing    bool      // a worker has the registrations: nobody else touches them
	next       *Exposure // in the endpoint's list
	prev       *Exposure
	listed     bool
}

// Remotes returns the descriptors to tell the peer, one for each range that needs
// a key of its own: together they describe the list in order. Valid until Revoke
// is done, whatever becomes of the endpoint meanwhile.
func (x *Exposure) Remotes() []transport.Remote { return x.remotes }

// Plan returns how the list is exposed.
func (x *Exposure) Plan() Plan { return x.plan }

// OfferInvalidation tells that the peer was asked to invalidate the keys (by
// SEND_WITH_INV). A key that comes back invalidated without having been offered
// is a protocol error and fails the endpoint. It returns false, and does nothing,
// where a remote invalidation would do harm or would not be reported, or where
// there is not exactly one key.
func (x *Exposure) OfferInvalidation() bool {
	if x.ep == nil {
		return false
	}
	x.ep.poller.mu.Lock()
	defer x.ep.poller.mu.Unlock()
	if len(x.mrs) != 1 { // perhaps the endpoint was closed meanwhile
		return false
	}
	caps := x.ep.limits.Caps
	x.offered = caps.CompletionReportsInv && caps.RemoteInv[x.mrs[0].Kind()] == transport.InvWorks
	return x.offered
}

// live reports whether keys may be valid.
func (x *Exposure) live() bool { return len(x.mrs) > 0 }

func (x *Exposure) invalidatesByWR() bool {
	return len(x.mrs) > 0 && x.mrs[0].InvalidatesByWR()
}

func (x *Exposure) mapBlocks() bool { return len(x.mrs) > 0 && x.mrs[0].MapBlocks() }

// putAll puts registrations back, and has a worker repair those that can't be used
// as they are.
func (ep *Endpoint) putAll(mrs []*mrpool.MR) []*mrpool.MR {
	repair := false
	for i, m := range mrs {
		repair = m.Put() || repair
		mrs[i] = nil
	}
	if repair {
		ep.repair()
	}
	return mrs[:0]
}

// repair has a worker mend what was set aside. What it can't stays counted as broken, and
// those who would wait for nothing else are told why.
func (ep *Endpoint) repair() {
	ep.pending++
	var err error
	ep.poller.work(func() { err = ep.pool.Repair() }, func() {
		ep.pending--
		if err != nil {
			ep.unmendable = err
			ep.pump()
			ep.unmendable = nil
		}
		ep.destroyIfDrained()
	})
}

// putBack ends the exposure, but for its Remotes: its owner may be looking at them.
func (x *Exposure) putBack() {
	x.mrs = x.ep.putAll(x.mrs)
	x.granted, x.offered = false, false
}

// Expose takes and maps registrations for a list, with rights for exactly ops. The
// list's regions must allow windows (transport.BindWindow) where the device has
// them, and be writable for WriteSink. A device without windows, such as siw, doesn't miss
// BindWindow, and rxe refuses the same region: give it to all memory that is ever exposed.
// The keys that Remotes returns are not valid
// before Grant was submitted, except where registering is a call (SyncMR): there they
// are from now on. Where
// Caps.MapBlocks says so for what it uses (devices with neither fast registration
// nor windows, and rxe) this registers the memory by a call that may block: don't
// call it from OnDone there. It may also block elsewhere for as long as it takes to make a
// registration, when none is left but those that are to be replaced (see mrpool.Peer).
//
// How: one fast registration, or as many as the list needs; else a type-2 window
// for each contiguous run; else a synchronous registration for each, by calls that may
// block. Which is the first that the device has and the pool was made with, unless that has
// too few free: then what comes next.
//
// Errors match those of [Endpoint.Prepare] and mrpool.ErrEmpty; nothing is held
// then.
func (ep *Endpoint) Expose(x *Exposure, local []transport.Piece, ops mrpool.RemoteOps) error {
	ep.poller.mu.Lock()
	inUse := x.live() || x.listed
	var over error
	if ep.state >= failed {
		over = ep.refusal("not exposed")
	}
	ep.poller.mu.Unlock()
	if inUse {
		return fmt.Errorf("expose: the exposure isn't revoked yet: %w", ErrInUse)
	}
	if over != nil {
		return over
	}
	if err := x.Grant.begin(ep, Grant); err != nil {
		return err
	}
	if err := x.Revoke.begin(ep, Revoke); err != nil {
		return err
	}
	x.Grant.plan.reset()
	x.Revoke.plan.reset()
	from, total, err := span(local, 0, 0)
	if err != nil {
		return err
	}
	if total == 0 || ops == 0 {
		return refuse("expose", transport.ErrInvalid, "nothing to expose: an empty list, or no operations")
	}
	if _, err := ep.regions.View().CheckList(local, from, total, ops.Access()&transport.LocalWrite); err != nil {
		return err // whatever kind would be tried
	}
	x.ep = ep
	_, x.plan.Fallback, err = ep.limits.chooseExposure(func(kind transport.RegistrationKind) error {
		return ep.exposeBy(x, kind, local, from, total, ops)
	})
	x.Grant.plan.Fallback = x.plan.Fallback
	if errors.Is(err, mrpool.ErrEmpty) {
		return ep.exposedTooMuch(local, from, total)
	}
	return err
}

// exposedTooMuch tells which registrations there are too few of, and what to do.
func (ep *Endpoint) exposedTooMuch(local []transport.Piece, from transport.Cursor, total uint64) error {
	names := [...]string{transport.SyncMR: "SyncMRs", transport.FastMR: "FastMRs", transport.Window: "Windows"}
	var have []string
	for _, kind := range ep.limits.exposureKinds() {
		if ep.limits.registrations(kind) == 0 {
			have = append(have, "no "+names[kind])
			continue
		}
		s, n := ep.pool.Stats(kind), ep.limits.exposedKeys(exposureStrategy(kind), local, from, total)
		words := fmt.Sprintf("%d of %d %s in use, and the list takes %d", s.Out, ep.pool.Size(kind), names[kind], n)
		if s.Reserved > 0 {
			words += fmt.Sprintf(" (%d are reserved)", s.Reserved)
		}
		have = append(have, words)
	}
	return fmt.Errorf("expose: %w: it has %s; raise mrpool.Config (rw.Size tells what a workload takes)", mrpool.ErrEmpty, strings.Join(have, "; "))
}

// exposeBy is Expose by one kind of registration.
func (ep *Endpoint) exposeBy(x *Exposure, kind transport.RegistrationKind, local []transport.Piece, from transport.Cursor, total uint64, ops mrpool.RemoteOps) error {
	x.plan = Plan{Strategy: exposureStrategy(kind), Bytes: total}
	x.remotes = x.remotes[:0]
	for left := total; left > 0; {
		n, next, err := ep.exposeNext(x, local, from, left, kind, ops)
		if err != nil {
			x.abandon()
			return err
		}
		left -= n
		from = next
	}
	x.plan.Cost.Registrations = len(x.mrs)
	for _, m := range x.mrs {
		x.plan.Cost.WRs += m.WRs()
	}
	x.Grant.exposure, x.Revoke.exposure = x, x
	x.Grant.plan.Plan = x.plan
	x.Revoke.plan.Plan = Plan{Strategy: x.plan.Strategy}
	if x.invalidatesByWR() {
		x.Revoke.plan.Cost = Cost{WRs: len(x.mrs), Invalidations: len(x.mrs)}
	}
	x.Grant.state, x.Revoke.state = prepared, prepared
	if most := max(x.plan.Cost.WRs, x.Revoke.plan.Cost.WRs); most > ep.limits.SendWR {
		x.abandon()
		return fmt.Errorf("expose: takes %d work requests, the send queue holds %d: %w", most, ep.limits.SendWR, ErrTooLarge)
	}
	if !ep.addExposure(x) { // failed meanwhile: nobody would revoke it
		x.abandon()
		return ep.Err()
	}
	return nil
}

// chooseExposure tries one kind that the pool was made with after the other until one isn't
// refused: the best of the device, and if there are too few of that the others. The error is
// the first one's.
func (lim *Limits) chooseExposure(try func(transport.RegistrationKind) error) (kind transport.RegistrationKind, fallback bool, err error) {
	kinds := lim.exposureKinds()
	for _, kind := range kinds {
		if lim.registrations(kind) == 0 {
			continue
		}
		refusal := try(kind)
		switch {
		case refusal == nil:
			return kind, kind != kinds[0], nil
		case err != nil: // a fallback doesn't do either
		case !errors.Is(refusal, mrpool.ErrEmpty) && !errors.Is(refusal, ErrTooLarge):
			return kind, kind != kinds[0], refusal
		default:
			err = refusal
		}
	}
	if err == nil {
		err = fmt.Errorf("expose: the pool was made without what this device exposes memory by: %w", mrpool.ErrEmpty)
	}
	return kinds[0], false, err
}

// exposureKinds are what memory can be exposed with: the best that the device has, and
// what else the pool has.
func (lim *Limits) exposureKinds() []transport.RegistrationKind {
	kinds := make([]transport.RegistrationKind, 0, transport.NumRegistrationKinds)
	if lim.Caps.FastReg.MaxPages > 0 {
		kinds = append(kinds, transport.FastMR)
	}
	if lim.Caps.Windows != transport.NoWindows && (len(kinds) == 0 || lim.Windows > 0) {
		kinds = append(kinds, transport.Window)
	}
	if len(kinds) == 0 || lim.SyncMRs > 0 {
		kinds = append(kinds, transport.SyncMR)
	}
	return kinds
}

func exposureStrategy(kind transport.RegistrationKind) Strategy {
	switch kind {
	case transport.FastMR:
		return FastReg
	case transport.Window:
		return WindowBind
	}
	return SyncReg
}

// maxExposed is the most that one key is given for: a Remote holds at most
// 2^32-1 bytes.
const maxExposed = 1 << 31

// exposeNext adds one registration to x that covers the list from a position on.
func (ep *Endpoint) exposeNext(x *Exposure, local []transport.Piece, from transport.Cursor, left uint64,
	kind transport.RegistrationKind, ops mrpool.RemoteOps) (uint64, transport.Cursor, error) {
	var one [1]*mrpool.MR
	err := ep.pool.TakeFrom(ep.reserved[kind], kind, one[:], ep.owner)
	if errors.Is(err, mrpool.ErrEmpty) {
		// What is set aside, or with a worker's Repair at the moment, may be had. What
		// can't be mended is as good as taken.
		ep.pool.Repair()
		err = ep.pool.TakeFrom(ep.reserved[kind], kind, one[:], ep.owner)
	}
	if err != nil {
		return 0, from, fmt.Errorf("expose by %v: %w", kind, err)
	}
	x.mrs = append(x.mrs, one[0])
	limit := min(left, maxExposed)
	if size := ep.limits.mrSize(); kind != transport.FastMR {
		limit = min(limit, size)
	}
	remote, err := one[0].MapRemote(local, from, limit, ops)
	if err != nil {
		return 0, from, err
	}
	x.remotes = append(x.remotes, transport.Remote{Addr: remote.IOVA, Len: uint32(remote.Len), Key: remote.RKey})
	return remote.Len, remote.Next, nil
}

// abandon gives back what an exposure holds that was never posted.
func (x *Exposure) abandon() {
	for _, m := range x.mrs {
		if m.MapBlocks() {
			m.Revoke() // on failure Put sets it aside
		}
	}
	x.ep.poller.mu.Lock()
	defer x.ep.poller.mu.Unlock()
	x.putBack()
	x.remotes = x.remotes[:0]
	x.Grant.state, x.Revoke.state = idle, idle
}

// matchInvalidated finds the exposure whose key the peer invalidated.
func (ep *Endpoint) matchInvalidated(key transport.RKey) *Exposure {
	for x := ep.exposures; x != nil; x = x.next {
		if x.offered && x.granted && x.key == key {
			return x
		}
	}
	return nil
}

// addExposure lists x, unless the endpoint has failed.
func (ep *Endpoint) addExposure(x *Exposure) bool {
	p := ep.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	if ep.state >= failed {
		return false
	}
	x.key = x.remotes[0].Key
	x.heldRevoke = nil
	x.listed = true
	x.prev, x.next = nil, ep.exposures
	if x.next != nil {
		x.next.prev = x
	}
	ep.exposures = x
	return true
}

// grantUnderWay reports whether the Grant was submitted and isn't over.
func (x *Exposure) grantUnderWay() bool { return x.Grant.state == queued || x.Grant.state == posted }

// dropExposure takes x out of the endpoint's list. The caller holds the poller's
// lock.
func (ep *Endpoint) dropExposure(x *Exposure) {
	if !x.listed {
		return
	}
	x.listed = false
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		ep.exposures = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
}
