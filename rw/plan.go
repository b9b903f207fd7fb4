package rw

import (
	"errors"
	"fmt"

	"rdmarw/transport"
)

// Strategy is how a transfer is carried out.
type Strategy uint8

// Strategies.
const (
	// Nothing: zero bytes; completes locally.
	Nothing Strategy = iota
	// Direct: SGEs under keys that exist already, in as many chained requests as
	// it takes.
	Direct
	// FastReg: the local memory is registered by work requests in the chain.
	FastReg
	// SyncReg: the local memory is registered by calls, before and after.
	SyncReg
	// Staged: the data lands in staging memory and is copied.
	Staged
	// WindowBind: the memory is exposed by type-2 windows.
	WindowBind
)

// String returns the strategy's name.
func (s Strategy) String() string {
	switch s {
	case Nothing:
		return "nothing"
	case Direct:
		return "direct"
	case FastReg:
		return "fast-reg"
	case SyncReg:
		return "sync-reg"
	case Staged:
		return "staged"
	case WindowBind:
		return "window"
	}
	return fmt.Sprintf("strategy(%d)", uint8(s))
}

// Cost is what a plan takes from the endpoint. It is exact but for one thing: a
// registration that its last user left valid adds one request, which is found
// out when it is taken.
type Cost struct {
	// WRs is the number of send queue slots, of everything in the chain.
	WRs int
	// Reads is how many of them are READs.
	Reads int
	// Registrations is the number of registrations, Invalidations that of own
	// requests that invalidate: a READ_WITH_INV needs none.
	Registrations, Invalidations int
	// Slots is the number of staging slots, StagedBytes what is copied out of
	// them.
	Slots       int
	StagedBytes uint64
}

// Plan is a planner's decision about one transfer.
type Plan struct {
	Strategy Strategy
	// Fallback: a registration was preferred, but the pool was empty.
	Fallback bool
	Bytes    uint64
	Cost     Cost
}

// Transfer describes one READ or WRITE.
type Transfer struct {
	// Op is Read or Write.
	Op Op
	// Local is the local memory. Neighbouring pieces of one region are merged.
	Local []transport.Piece
	// Offset is how many bytes of Local to skip.
	Offset uint64
	// Length is how many bytes to transfer. Zero: all that is left of Local.
	Length uint64
	// Remote is the peer's memory, filled or read from its start. It may be longer
	// than the transfer, not shorter.
	Remote []transport.Remote
}

// Limits is what a plan depends on besides the transfer itself.
type Limits struct {
	// Caps of the device.
	Caps *transport.Caps
	// SendSGE is what the queue pair was granted.
	SendSGE int
	// SendWR is how many send queue slots one chain may take at most. Zero: no
	// limit.
	SendWR int
	// FastMRs, FastPages and PageShift describe the pool's fast registrations;
	// SyncMRs and Windows are the numbers of the other kinds.
	FastMRs, FastPages int
	PageShift          uint8
	SyncMRs, Windows   int
	// StagingSlots is the number of staging slots, StagingSlot their size in bytes.
	StagingSlots, StagingSlot int
	// Sinks are the pool's persistent sinks, or nil.
	Sinks *transport.RegionTable
	// Isolated tells that the protection domain belongs to one peer.
	Isolated bool
	// Policy is the user's choice.
	Policy Policy
}

// segment is what one registration, or staging slot, of a plan covers, and how
// many requests use it.
type segment struct {
	from transport.Cursor
	len  uint64
	wrs  int
}

// plan is a Plan with its work requests, in memory that is used again and again.
//
// For Direct, wrs are ready but for cookies and the signal. Otherwise wrs holds only
// the transfers themselves, each with one SGE whose address counts from the start
// of its segment: keys are known when registrations were taken.
type plan struct {
	Plan
	// lazy: registrations stay valid after the transfer, for the next use to
	// invalidate.
	lazy bool
	// optional: without a free registration, direct will do.
	optional bool
	// paged: the list is known to be whole pages of the pool's size, one in each piece.
	paged bool
	wrs   []transport.WR
	sges  []transport.SGE
	segs  []segment
}

// reset empties the plan, clear only what was planned so far of its bytes, whose list
// is checked.
func (p *plan) reset() {
	p.Plan = Plan{}
	p.lazy, p.optional, p.paged = false, false, false
	p.wrs, p.sges, p.segs = p.wrs[:0], p.sges[:0], p.segs[:0]
}

func (p *plan) clear() {
	n, paged := p.Bytes, p.paged
	p.reset()
	p.Bytes, p.paged = n, paged
}

// make decides how to do a transfer, and writes it down. It is a pure function of
// its arguments: it takes nothing, locks nothing, posts nothing.
func (p *plan) make(t *Transfer, lim *Limits, regions transport.RegionView) error {
	p.reset()
	if t.Op != Read && t.Op != Write {
		return fmt.Errorf("plan: %v is not a transfer: %w", t.Op, transport.ErrInvalid)
	}
	if len(t.Local) == 0 {
		return fmt.Errorf("%v with an empty local list: %w", t.Op, transport.ErrInvalid)
	}
	var err error
	exposed := t.Op == Read && lim.Caps.Protocol == transport.IWARP
	if exposed || lim.Policy.ForceRegistration {
		err = p.checked(t, lim, regions, exposed)
	} else if err = p.direct(t, lim, regions); err == nil && t.Op == Read {
		if above := lim.registerAbove(); above > 0 && len(p.sges) > above {
			err = p.preferRegistered(t, lim, regions, above)
		}
	}
	if err != nil || p.plainlyFits(lim) {
		return err
	}
	return p.fits(t, lim)
}

// checked plans what isn't direct in the first place: on a list that is checked, and
// whose length is known.
func (p *plan) checked(t *Transfer, lim *Limits, regions transport.RegionView, exposed bool) error {
	var from transport.Cursor
	var err error
	if t.Offset > 0 {
		if from, err = begin(t.Local, t.Offset); err != nil {
			return err
		}
	}
	if n := uint64(len(t.Local)-from.Piece) << lim.PageShift; from.Offset == 0 && (t.Length == 0 || t.Length == n) &&
		lim.registersPages() && regions.CheckPages(t.Local[from.Piece:], lim.PageShift, t.need()) {
		p.Bytes, p.paged = n, true
	} else if err = p.check(t, from, regions); err != nil || p.Bytes == 0 {
		return err
	}
	if exposed {
		return p.exposedSink(t, from, lim, regions)
	}
	return p.registered(t, from, lim)
}

// check checks the list, and finds out how long the transfer is.
func (p *plan) check(t *Transfer, from transport.Cursor, regions transport.RegionView) error {
	n, err := regions.CheckList(t.Local, from, t.Length, t.need())
	if err != nil {
		return err
	}
	if n < t.Length {
		return tooShort(t.Length - n)
	}
	p.Bytes = n
	return nil
}

// registersPages reports whether registrations are page lists that are full only when
// they have no page left.
func (lim *Limits) registersPages() bool {
	f := &lim.Caps.FastReg
	return f.MaxPages > 0 && !f.Gaps && lim.FastPages > 0 && uint64(lim.FastPages)<<lim.PageShift <= lim.mrSize()
}

// exposedSink plans a READ whose request shows the sink's key to the peer: the
// iWARP rule.
func (p *plan) exposedSink(t *Transfer, from transport.Cursor, lim *Limits, regions transport.RegionView) error {
	policy := lim.Policy.Sink
	if lim.Policy.ForceRegistration {
		policy = SinkStrict
	}
	switch {
	case policy == SinkPersistent:
		return p.persistent(t, lim, regions)
	case policy == SinkDirect && lim.Caps.ReadSinkNeedsRemoteWrite:
		return fmt.Errorf("READ with policy %v: %s needs remote write access for the sink, which regions don't grant; use policy %v or %v: %w",
			policy, lim.Caps.Device, SinkStrict, SinkPersistent, transport.ErrUnsupported)
	case policy == SinkDirect:
		return p.direct(t, lim, regions)
	case policy == SinkStaging && p.staged(t, from, lim, regions) == nil:
		return nil
	}
	err := p.registered(t, from, lim)
	if errors.Is(err, ErrTooLarge) && lim.StagingSlots > 0 && !lim.Policy.ForceRegistration {
		// What can't be registered may still be copied.
		if p.staged(t, from, lim, regions) == nil {
			return nil
		}
	}
	return err
}

// registered plans a transfer whose local memory must be registered: by work
// requests where the device can, and pool and send queue suffice, else by calls.
func (p *plan) registered(t *Transfer, from transport.Cursor, lim *Limits) error {
	if lim.Caps.FastReg.MaxPages == 0 {
		return p.byCalls(t, from, lim)
	}
	err := p.fastReg(t, from, lim)
	if err == nil {
		err = p.fits(t, lim)
	}
	if err == nil || errors.Is(err, ErrTooLarge) && lim.SyncMRs > 0 && p.byCalls(t, from, lim) == nil {
		return nil
	}
	return err
}

// byCalls is syncReg, if the send queue suffices.
func (p *plan) byCalls(t *Transfer, from transport.Cursor, lim *Limits) error {
	if err := p.syncReg(t, from, lim); err != nil {
		return err
	}
	return p.fits(t, lim)
}

// preferRegistered has a READ, whose sink's key stays with the local device, registered
// instead of direct if each registration is worth it. That the device does that better
// above so many SGEs is a hint of its own, so direct will do as well.
func (p *plan) preferRegistered(t *Transfer, lim *Limits, regions transport.RegionView, above int) error {
	sges := len(p.sges)
	optional := p.fits(t, lim) == nil
	from, _ := begin(t.Local, t.Offset) // it was planned once
	if err := p.fastReg(t, from, lim); err == nil && sges > above*p.Cost.Registrations && p.fits(t, lim) == nil {
		p.optional = optional
		return nil
	}
	p.reset()
	return p.direct(t, lim, regions)
}

// registerAbove is the number of SGEs above which a READ is better registered;
// zero: it never is.
func (lim *Limits) registerAbove() int {
	above := lim.Policy.RegisterAbove
	if above == 0 {
		above = lim.Caps.MaxSGLRead
	}
	if above < 0 || lim.FastMRs == 0 || lim.Caps.FastReg.MaxPages == 0 {
		return 0
	}
	return above
}

// plainlyFits reports whether there is nothing to look at closely, or it was done before.
func (p *plan) plainlyFits(lim *Limits) bool {
	switch p.Strategy {
	case Direct:
		return p.Cost.WRs <= lim.SendWR || lim.SendWR == 0
	case FastReg, SyncReg:
		return true
	}
	return false
}

// fits refuses what could never be posted.
func (p *plan) fits(t *Transfer, lim *Limits) error {
	wrs := p.Cost.WRs
	if p.lazy {
		wrs += p.Cost.Registrations // each may have to be invalidated first
	}
	if p.feeds(lim) && wrs < maxChain {
		return nil // a part at a time
	}
	if lim.SendWR > 0 && wrs > lim.SendWR {
		return fmt.Errorf("%v of %d bytes takes %d work requests, the send queue holds %d: %w",
			t.Op, p.Bytes, wrs, lim.SendWR, ErrTooLarge)
	}
	return nil
}

// feeds reports whether the READs are posted a part at a time.
func (p *plan) feeds(lim *Limits) bool {
	return lim.Policy.FeedReads && p.Cost.Reads > 0 && p.Strategy != FastReg
}
