package mrpool

import (
	"fmt"

	"rdmarw/transport"
)

// MR is one registration taken from a pool. It is used by one goroutine at a
// time, and goes back by [MR.Put].
type MR struct {
	pool  *Pool
	reg   transport.Registration // nil after a replacement could not be made
	kind  transport.RegistrationKind
	owner string

	state state
	// keyByte is the byte of the last accepted use.
	keyByte uint8
	// access of the current or (stale) last mapping.
	access transport.Access
	// stale: valid on the device under keyByte, with local rights, for nobody's
	// use. The next use begins by invalidating it.
	stale bool
	// covers is the memory of the last accepted use, mapping that of the last Map: of
	// a FastMR.
	covers, mapping footprint
	out             bool
	kept            bool
	share           *Reservation // that it was taken from
	// told are the peers that may know a key of this registration, uses how many
	// uses it had since nobody did.
	told []*Peer
	uses int
}

// Local is memory mapped for the local device.
type Local struct {
	transport.Extent
	// LKey is the key once the MR's work requests have run.
	LKey transport.LKey
}

// Remote is memory mapped for the peer.
type Remote struct {
	transport.Extent
	// RKey is the key once the MR's work requests have run.
	RKey transport.RKey
}

// Kind returns the registration's kind.
func (m *MR) Kind() transport.RegistrationKind { return m.kind }

// Valid reports whether the key works as far as is known here.
func (m *MR) Valid() bool { return m.state == valid }

// InvalidatesByWR reports whether the key is made invalid by the requests of
// [MR.AppendInvalid]; otherwise [MR.Revoke] is the way.
func (m *MR) InvalidatesByWR() bool {
	return m.kind != transport.SyncMR && m.pool.caps.LocalInv[m.kind] == transport.InvWorks
}

// Keep notes that the MR was taken for good, as memory for staging is: Pool.Size
// doesn't count it, until it is put back.
func (m *MR) Keep() {
	p := m.pool
	p.mu.Lock()
	if m.kept {
		p.mu.Unlock()
		return
	}
	m.kept = true
	p.kinds[m.kind].kept++
	waiting := p.takeWaiting() // who needs more than is left now
	p.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// MapBlocks reports whether mapping, and what undoes it ([MR.Revoke]), are calls that
// may block.
func (m *MR) MapBlocks() bool {
	return m.kind == transport.SyncMR || m.pool.caps.MapBlocks[m.kind]
}

// RKey returns the current key of a valid MR, to compare with what a completion
// says the peer invalidated.
func (m *MR) RKey() transport.RKey { return m.reg.RKey(m.keyByte) }

// step makes one transition.
func (m *MR) step(e event) error {
	if next := transitions[m.state][e]; next != illegal {
		m.state = next
		return nil
	}
	return m.refuse(e)
}

func (m *MR) refuse(e event) error {
	return fmt.Errorf("%v registration is %v, so %v can't be: %w", m.kind, m.state, e, ErrState)
}

// MapLocal maps as much of a list as one registration can hold, from a position
// on and at most n bytes (zero: all), for the local device. The result tells how
// far it got; covering less than asked is no error.
//
// Where [MR.MapBlocks] says so this registers the memory, and may block. A SyncMR is
// valid when it returns. Otherwise post what [MR.AppendValid] gives and say [MR.Posted].
// Windows have no lkey: transport.ErrUnsupported.
func (m *MR) MapLocal(list []transport.Piece, from transport.Cursor, n uint64, ops LocalOps) (Local, error) {
	return m.MapChecked(nil, list, from, n, ops)
}

// MapChecked is [MR.MapLocal] for a list that the caller has checked, for what ops
// need, against a view of the protection domain's regions. It isn't checked a second
// time, unless regions were added or removed since.
func (m *MR) MapChecked(view transport.RegionView, list []transport.Piece, from transport.Cursor, n uint64, ops LocalOps) (l Local, err error) {
	if m.kind == transport.Window {
		return l, fmt.Errorf("map for %v: a memory window has no lkey: %w", ops, transport.ErrUnsupported)
	}
	access := ops.Access(m.pool.caps)
	if err := m.mappable(view, list, from, n, access); err != nil {
		return l, err
	}
	if l.Extent, err = m.reg.Map(m.pool.mapping(list, from, n, access)); err != nil {
		return Local{}, err
	}
	m.mappedFor(access)
	if m.kind == transport.FastMR {
		m.mapping = footprintOf(list, from, l.Next)
	}
	l.LKey = m.reg.LKey(m.nextKeyByte())
	return l, nil
}

// MapRemote maps as much of a list as one registration can hold for the peer.
// See [MR.MapLocal]. An empty set of operations is refused.
func (m *MR) MapRemote(list []transport.Piece, from transport.Cursor, n uint64, ops RemoteOps) (r Remote, err error) {
	if ops == 0 {
		return r, fmt.Errorf("map for the peer: no operation named: %w", transport.ErrInvalid)
	}
	access := ops.Access()
	if err := m.mappable(nil, list, from, n, access); err != nil {
		return r, err
	}
	if r.Extent, err = m.reg.Map(m.pool.mapping(list, from, n, access)); err != nil {
		return Remote{}, err
	}
	m.mappedFor(access)
	r.RKey = m.reg.RKey(m.nextKeyByte())
	return r, nil
}

// mappable refuses what can't be mapped.
func (m *MR) mappable(checked transport.RegionView, list []transport.Piece, from transport.Cursor, n uint64, access transport.Access) error {
	if transitions[m.state][evMap] == illegal || m.reg == nil {
		return fmt.Errorf("map: the registration is %v: %w", m.state, ErrState)
	}
	if from.Piece >= len(list) {
		return fmt.Errorf("map: the list has %d pieces, asked to start at %d: %w", len(list), from.Piece, transport.ErrRange)
	}
	if checked == nil || !m.pool.regions.Current(checked) {
		return m.checkRegions(list, from, n, access)
	}
	return nil
}

func (p *Pool) mapping(list []transport.Piece, from transport.Cursor, n uint64, access transport.Access) transport.Mapping {
	return transport.Mapping{List: list, From: from, Len: n, Access: access, PageShift: p.pageShift}
}

// mappedFor notes that a list was mapped.
func (m *MR) mappedFor(access transport.Access) {
	m.state, m.access = mapped, access
	if m.kind == transport.SyncMR {
		m.state = valid
	}
}

// checkRegions refuses memory that doesn't grant what a mapping would give away. It
// looks at no more pieces than one registration may cover: a list that takes many is
// checked once, not once for each.
func (m *MR) checkRegions(list []transport.Piece, from transport.Cursor, n uint64, access transport.Access) error {
	need := regionAccess(access)
	if m.kind == transport.Window {
		need |= transport.BindWindow
	}
	if m.kind != transport.FastMR {
		n = transport.Contiguous(list, from, n).Len
	}
	_, err := m.pool.regions.View().CheckList(list, from, n, need)
	return err
}

// nextKeyByte is the byte that the next accepted use will have.
func (m *MR) nextKeyByte() uint8 { return m.keyByte + 1 }

// WRs returns how many requests [MR.AppendValid] would append.
func (m *MR) WRs() int {
	n := 1
	if m.kind == transport.SyncMR {
		n = 0
	}
	if m.stale {
		n++
	}
	return n
}

// AppendValid appends the requests that make the mapping valid: if the last use
// left it valid, first the invalidation of that. They are unsignaled and have
// no cookie. Nothing changes before [MR.Posted]: not calling it leaves the MR as
// it was, and building twice gives the same requests.
func (m *MR) AppendValid(wrs []transport.WR) []transport.WR {
	if m.stale {
		wrs = m.reg.AppendInvalid(wrs, m.keyByte)
	}
	return m.reg.AppendValid(wrs, m.nextKeyByte())
}

// Posted says that the device accepted the requests of [MR.AppendValid]. The key
// counts as valid from now on.
func (m *MR) Posted() error {
	if err := m.step(evPosted); err != nil {
		return err
	}
	m.keyByte = m.nextKeyByte()
	m.stale = false
	m.covers = m.mapping
	if len(m.told) > 0 {
		m.uses++
	}
	return nil
}

// KeyByte returns the key byte that the mapping has, or will have once its
// requests were accepted.
func (m *MR) KeyByte() uint8 {
	if m.state == mapped {
		return m.nextKeyByte()
	}
	return m.keyByte
}

// ID names the registration in work requests.
func (m *MR) ID() transport.RegistrationID { return m.reg.ID() }

// AppendInvalid appends the requests that make the key invalid, unsignaled. It
// may be called before [MR.Posted], to build a chain that does both.
func (m *MR) AppendInvalid(wrs []transport.WR) []transport.WR {
	return m.reg.AppendInvalid(wrs, m.KeyByte())
}

// InvalidatePosted says that the device accepted the requests of
// [MR.AppendInvalid].
func (m *MR) InvalidatePosted() error { return m.step(evInvalidatePosted) }

// Invalidated says that the key is known to be dead: the invalidation's
// completion arrived, or that of a READ_WITH_INV, or of the peer's
// SEND_WITH_INV with exactly this key.
func (m *MR) Invalidated() error { return m.step(evInvalidated) }

// Lost says that nobody knows what the device did with the MR's requests: they
// were flushed, or the post failed in the middle. Only [MR.Revoke] helps.
func (m *MR) Lost() {
	if m.state != free || m.stale {
		m.state = lost
	}
}

// Revoke kills the key whatever state it is in, by taking the registration away
// from the device: a SyncMR is deregistered, others are replaced by a new one if
// their key may be alive. The key is dead, and the mapping undone, when it returns
// without error. It may block.
//
// If it fails the MR stays lost; [MR.Put] keeps such out of use.
func (m *MR) Revoke() error {
	dead := m.state == free && !m.stale || m.state == mapped
	if m.state != lost && m.reg != nil && (m.kind == transport.SyncMR || dead) {
		if err := m.reg.Unmap(); err != nil {
			m.state = lost
			return err
		}
		return m.step(evRevoked)
	}
	m.state = lost
	if m.reg != nil {
		if err := m.reg.Close(); err != nil {
			return err
		}
		m.reg = nil
	}
	reg, err := m.pool.replacement(m.kind)
	if err != nil {
		return fmt.Errorf("%v: %w: %w", m.kind, ErrNotReplaced, err)
	}
	m.reg = reg
	m.keyByte = reg.KeyByte()
	m.stale = false
	m.told, m.uses = m.told[:0], 0 // another index: keys that nobody knows
	return m.step(evRevoked)
}

// Put gives the MR back. It is free again if its key is dead, or was never
// posted, or (FastMR with local rights) may stay valid until its next use.
// Anything else is set aside for [Pool.Repair], and Put returns true to say so.
func (m *MR) Put() (repair bool) { return m.pool.put(m) }

// settle brings the MR into a state in which it can be used again, and reports
// whether it could.
func (m *MR) settle() bool {
	switch {
	case m.state == mapped && !m.MapBlocks():
		m.state = free // never posted: nothing happened
	case m.state == valid && m.mayStayValid():
		m.state, m.stale = free, true
	}
	return m.state == free
}

// mayStayValid reports whether the next use may be what invalidates this one.
func (m *MR) mayStayValid() bool {
	return m.kind == transport.FastMR && m.access&transport.RemoteAny == 0 && m.InvalidatesByWR()
}
