package mrpool

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"rdmarw/transport"
)

// Config sizes a pool. Zero counts mean none of the kind.
type Config struct {
	// FastMRs is the number of fast registrations, FastPages the page list of
	// each; zero, or more than the device has: the smaller of the device's and 256
	// (the limit that rw.c sets itself, to bound memory).
	FastMRs, FastPages int
	// Windows is the number of type-2 windows.
	Windows int
	// SyncMRs is how many synchronous registrations may exist at a time. They are
	// made when first needed.
	SyncMRs int
	// PageShift is the page size of fast registrations as a power of two. Zero:
	// 4 KiB, or the device's smallest that is larger.
	PageShift uint8
}

// Stats counts registrations of one kind.
type Stats struct {
	// Free, Out and Broken add up to what the pool has: ready, taken, and set aside for
	// Repair.
	Free, Out, Broken int
	// Kept is how many of Out were taken for good: see MR.Keep.
	Kept int
	// Reserved is the sum of all reservations.
	Reserved int
	// Takes and Empties count successful and failed calls of Take; Repairs counts
	// registrations that were replaced or revoked by Repair.
	Takes, Empties, Repairs uint64
}

// Pool holds the registrations of one protection domain.
type Pool struct {
	pd        transport.PD
	regions   *transport.RegionTable // of the domain
	caps      *transport.Caps
	pageShift uint8
	fastPages int
	syncMax   int
	sinkTable transport.RegionTable
	takeDown  func() error // of the protection domain, if it is the pool's own

	repairing sync.Mutex // held by Repair, before mu

	mu      sync.Mutex
	sinks   []sink
	kinds   [transport.NumRegistrationKinds]shelf
	all     []*MR
	waiting []func()
	closed  bool
}

// shelf is what the pool has of one kind. Registrations that were used with
// local rights come back to the front and are used next, while they are in the
// caches; those that a peer has seen the key of go to the back, so that the key
// stays dead for as long as possible.
type shelf struct {
	size   int // of all that there are: what isn't here is out
	free   deque
	broken []*MR
	// reserved is the sum of all reservations, idleShares what of them isn't used: that
	// many of the free ones are not for everybody.
	reserved, idleShares    int
	kept                    int // of those out
	takes, empties, repairs uint64
}

func (s *shelf) out() int { return s.size - s.free.n - len(s.broken) }

// New makes a pool in a protection domain. The caller closes it before the
// domain. What the device doesn't offer is refused (transport.ErrUnsupported).
func New(pd transport.PD, cfg Config) (*Pool, error) {
	caps := pd.Device().Caps()
	if cfg.FastMRs < 0 || cfg.Windows < 0 || cfg.SyncMRs < 0 || cfg.FastPages < 0 {
		return nil, fmt.Errorf("registration pool: negative count: %w", transport.ErrInvalid)
	}
	p := &Pool{pd: pd, regions: pd.Regions(), caps: caps, syncMax: cfg.SyncMRs}
	p.fastPages = min(caps.FastReg.MaxPages, 256)
	if cfg.FastPages > 0 {
		p.fastPages = min(caps.FastReg.MaxPages, cfg.FastPages)
	}
	p.pageShift = cfg.PageShift
	if p.pageShift == 0 && caps.FastReg.PageSizes != 0 {
		p.pageShift = 12
		if large := caps.FastReg.PageSizes >> 12; large != 0 {
			p.pageShift += uint8(bits.TrailingZeros64(large))
		}
	}
	if cfg.FastMRs > 0 && caps.FastReg.MaxPages == 0 {
		return nil, fmt.Errorf("registration pool: %d FastMRs, and the device has no fast registration: %w", cfg.FastMRs, transport.ErrUnsupported)
	}
	if cfg.FastMRs > 0 && (p.pageShift > 63 || caps.FastReg.PageSizes&(1<<p.pageShift) == 0) {
		return nil, fmt.Errorf("registration pool: pages of 2^%d bytes (device offers mask %#x): %w", p.pageShift, caps.FastReg.PageSizes, transport.ErrUnsupported)
	}
	if err := errors.Join(p.fill(transport.FastMR, cfg.FastMRs), p.fill(transport.Window, cfg.Windows)); err != nil {
		return nil, errors.Join(fmt.Errorf("registration pool: %w", err), p.Close())
	}
	return p, nil
}

// fill makes the registrations of a kind that exist from the start.
func (p *Pool) fill(kind transport.RegistrationKind, n int) error {
	s := &p.kinds[kind]
	for range n {
		m, err := p.newMR(kind)
		if err != nil {
			return err
		}
		s.free.pushBack(m)
	}
	return nil
}

// PD returns the pool's protection domain.
func (p *Pool) PD() transport.PD { return p.pd }

// Size returns how many registrations of a kind can be taken at once when none
// is in use, but for those that are kept: what needs more can never run.
func (p *Pool) Size(kind transport.RegistrationKind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usable(kind)
}

// SizeFor is [Pool.Size] for somebody with a reservation of that kind (nil: without one):
// less what others have set aside for as long as they do.
func (p *Pool) SizeFor(r *Reservation, kind transport.RegistrationKind) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.usable(kind) - p.kinds[kind].reserved
	if r != nil {
		n += r.share
	}
	return n
}

// usable is Size for one who holds mu.
func (p *Pool) usable(kind transport.RegistrationKind) int {
	s := &p.kinds[kind]
	if kind == transport.SyncMR {
		return p.syncMax - s.kept
	}
	return s.size - s.kept
}

// FastPages returns the length of the page list of fast registrations.
func (p *Pool) FastPages() int { return p.fastPages }

// PageShift returns the page size of fast registrations as a power of two.
func (p *Pool) PageShift() uint8 { return p.pageShift }

// Stats returns the counts of one kind.
func (p *Pool) Stats(kind transport.RegistrationKind) Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.kinds[kind]
	return Stats{
		Free: s.free.n, Out: s.out(), Broken: len(s.broken), Kept: s.kept, Reserved: s.reserved,
		Takes: s.takes, Empties: s.empties, Repairs: s.repairs,
	}
}

func (p *Pool) newRegistration(kind transport.RegistrationKind) (transport.Registration, error) {
	return p.pd.NewRegistration(kind, p.fastPages)
}

// replacement makes a registration in the place of one that was revoked, unless the
// pool was closed: nobody would close it.
func (p *Pool) replacement(kind transport.RegistrationKind) (transport.Registration, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	return p.newRegistration(kind)
}

// newMR makes a registration. The caller holds mu, or nobody else has p yet.
func (p *Pool) newMR(kind transport.RegistrationKind) (*MR, error) {
	reg, err := p.newRegistration(kind)
	if err != nil {
		return nil, err
	}
	m := &MR{pool: p, reg: reg, kind: kind, keyByte: reg.KeyByte()}
	p.all = append(p.all, m)
	p.kinds[kind].size++
	return m, nil
}

// grow makes synchronous registrations until n are free, as far as the pool may
// have them: they exist only once they are needed. The caller holds mu.
func (p *Pool) grow(kind transport.RegistrationKind, n int) error {
	if kind != transport.SyncMR {
		return nil
	}
	s := &p.kinds[kind]
	for s.free.n < n && s.size < p.syncMax {
		m, err := p.newMR(kind)
		if err != nil {
			return err
		}
		s.free.pushBack(m)
	}
	return nil
}

// Take takes as many registrations of a kind as dst has room for: all or none
// ([ErrEmpty]). owner is named in the report of [Pool.Close] if they are never put
// back. Take never blocks.
func (p *Pool) Take(kind transport.RegistrationKind, dst []*MR, owner string) error {
	return p.TakeFrom(nil, kind, dst, owner)
}

// TakeFrom is Take for somebody with a reservation of that kind: its share first,
// then what is free for everybody. r may be nil.
func (p *Pool) TakeFrom(r *Reservation, kind transport.RegistrationKind, dst []*MR, owner string) error {
	p.mu.Lock()
	if s := &p.kinds[kind]; r == nil && len(dst) == 1 && s.free.n > s.idleShares && !p.closed { // what is most common
		m := s.free.popFront()
		s.takes++
		m.out, m.owner = true, owner
		dst[0] = m
		p.mu.Unlock()
		return nil
	}
	err := p.take(r, kind, dst, owner)
	p.mu.Unlock()
	return err
}

// take is TakeFrom for one who holds mu.
func (p *Pool) take(r *Reservation, kind transport.RegistrationKind, dst []*MR, owner string) error {
	if p.closed {
		return ErrClosed
	}
	s := &p.kinds[kind]
	share := 0
	if r != nil {
		share = min(r.idle(), len(dst))
	}
	if !s.spares(len(dst), share) {
		if err := p.grow(kind, len(dst)+s.idleShares-share); err != nil {
			return err
		}
		if !s.spares(len(dst), share) {
			s.empties++
			return ErrEmpty
		}
	}
	for i := range dst {
		m := s.free.popFront()
		m.out = true
		m.owner = owner
		if i < share {
			m.share = r
		}
		dst[i] = m
	}
	if share > 0 {
		r.used += share
		s.idleShares -= share
	}
	s.takes++
	return nil
}

// spares reports whether n can be taken by somebody who has a share of it set aside.
// A share is taken from what is free even when others' shares are short, since some
// of the registrations are broken: the first to ask has it.
func (s *shelf) spares(n, share int) bool {
	return s.free.n-s.idleShares+share >= n || share == n && s.free.n >= n
}

// AfterPut arranges for f to be called once, when a registration next becomes
// free, and Take that failed with [ErrEmpty] may succeed; or when there is no more use in
// waiting: some were taken for good ([MR.Keep]) or set aside for somebody ([Pool.Reserve]),
// or a Repair failed and no other is out. f is called from inside of what does that; it must
// not block and must not use the pool.
func (p *Pool) AfterPut(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, f)
}

func (p *Pool) put(m *MR) (repair bool) {
	p.mu.Lock()
	if !m.out {
		p.mu.Unlock()
		return false // put twice
	}
	repair = p.shelve(m)
	if len(p.waiting) == 0 || repair {
		p.mu.Unlock()
		return repair
	}
	waiting := p.takeWaiting()
	p.mu.Unlock()
	for _, f := range waiting {
		f()
	}
	return false
}

func (p *Pool) takeWaiting() []func() {
	waiting := p.waiting
	p.waiting = nil
	return waiting
}

// shelve puts an MR where its state allows. The caller holds mu.
func (p *Pool) shelve(m *MR) (repair bool) {
	m.out = false
	s := &p.kinds[m.kind]
	if m.kept {
		m.kept = false
		s.kept--
	}
	if r := m.share; r != nil {
		m.share = nil
		if r.used > 0 { // else it was released meanwhile
			r.used--
			s.idleShares++
		}
	}
	if m.settle() && m.wrapped() {
		m.state = lost // to be replaced: another index has other keys
	}
	if m.state != free {
		s.broken = append(s.broken, m)
		return true
	}
	if m.access&transport.RemoteAny == 0 {
		s.free.pushFront(m)
	} else {
		s.free.pushBack(m)
	}
	return false
}

// Repair revokes and replaces what was put back in an unknown state, and makes it
// free again. It may block: a call waits for one that is under way. What can't be
// replaced stays set aside, and the error says why; Repair may be called again.
func (p *Pool) Repair() error {
	p.repairing.Lock()
	defer p.repairing.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	var broken []*MR
	for i := range p.kinds {
		s := &p.kinds[i]
		broken = append(broken, s.broken...)
		s.broken = nil // out of everybody's reach while it is worked on
	}
	for _, m := range broken {
		m.out = true
		m.owner = "repair"
	}
	p.mu.Unlock()
	var errs []error
	for _, m := range broken {
		if err := m.Revoke(); err != nil {
			errs = append(errs, err)
		}
		m.access |= transport.RemoteAny // to the back: its key may be known
		p.mu.Lock()
		p.kinds[m.kind].repairs++ // before anybody can have it
		p.mu.Unlock()
		m.Put()
	}
	for _, f := range p.stranded() {
		f()
	}
	return errors.Join(errs...)
}

// stranded are those who wait, if some of what they may wait for is broken and none is
// out that could be put back.
func (p *Pool) stranded() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.kinds {
		if s := &p.kinds[i]; len(s.broken) > 0 && s.out() == s.kept {
			return p.takeWaiting()
		}
	}
	return nil
}

// LeakError tells which registrations were still out when the pool was closed.
type LeakError struct {
	// Owners counts them by the word given to Take.
	Owners map[string]int
}

// Error lists the owners.
func (e *LeakError) Error() string {
	var parts []string
	for owner, n := range e.Owners {
		parts = append(parts, fmt.Sprintf("%d by %q", n, owner))
	}
	slices.Sort(parts)
	return "registrations never put back: " + strings.Join(parts, ", ")
}

// Close takes all registrations away from the device, also those still out, and
// reports the latter by a [*LeakError]; persistent sinks are removed. Close endpoints before
// their pool: one that has nothing out isn't noticed. It may block. Closing twice is harmless.
func (p *Pool) Close() error {
	p.repairing.Lock() // what a Repair has in hand is to be closed, too
	defer p.repairing.Unlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	all, sinks := p.all, p.sinks
	p.all, p.sinks = nil, nil
	p.mu.Unlock()
	var errs []error
	for _, s := range sinks {
		p.sinkTable.Remove(s.region.ID())
		errs = append(errs, s.mr.giveUp())
	}
	leaked := make(map[string]int)
	for _, m := range all {
		if m.out {
			leaked[m.owner]++
		}
		if m.reg != nil {
			errs = append(errs, m.reg.Close())
		}
	}
	if len(leaked) > 0 {
		errs = append(errs, &LeakError{leaked})
	}
	if p.takeDown != nil {
		errs = append(errs, p.takeDown())
	}
	return errors.Join(errs...)
}
