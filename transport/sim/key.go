package sim

import "rdmarw/transport"

// The index part of a key tells what kind of key it is, so that an lkey is
// never good as an rkey, nor the other way round, even of one object. Many real
// devices have one number for both, which hides the mistake.
const (
	classShift  = 22
	classLKey   = 0 << classShift
	classRKey   = 1 << classShift
	classWindow = 2 << classShift
	slotMask    = 1<<classShift - 1
)

func makeKey(class, slot uint32, keyByte uint8) uint32 { return (class|slot)<<8 | uint32(keyByte) }

func keyClass(key uint32) uint32 { return key >> 8 &^ slotMask }
func keySlot(key uint32) uint32  { return key >> 8 & slotMask }

// keyTable gives out the slots of one class of keys. A slot comes back with
// another key byte, and as late as possible.
type keyTable[T comparable] struct {
	limit   int
	objects []T     // by slot; slot 0 is never given out
	bytes   []uint8 // the key byte that the slot's next object starts with
	free    ring[uint32]
	used    int
}

func newKeyTable[T comparable](limit int) keyTable[T] {
	return keyTable[T]{limit: min(limit, slotMask), objects: make([]T, 1), bytes: make([]uint8, 1)}
}

// reuseAfter is how many slots must have been given back before one is reused.
const reuseAfter = 64

// take returns a slot and its first key byte, or false when there is none.
func (t *keyTable[T]) take(object T) (slot uint32, keyByte uint8, ok bool) {
	if t.used == t.limit {
		return 0, 0, false
	}
	t.used++
	if full := len(t.objects) > t.limit; t.free.len() > reuseAfter || full && t.free.len() > 0 {
		slot = t.free.pop()
		t.objects[slot] = object
	} else {
		slot = uint32(len(t.objects))
		t.objects = append(t.objects, object)
		t.bytes = append(t.bytes, uint8(slot)*37) // any bytes, so that tables don't look alike
	}
	return slot, t.bytes[slot], true
}

// give takes a slot back whose last key byte was keyByte.
func (t *keyTable[T]) give(slot uint32, keyByte uint8) {
	var none T
	t.objects[slot] = none
	t.bytes[slot] = keyByte + 1
	t.free.push(slot)
	t.used--
}

// get returns a slot's object or nothing.
func (t *keyTable[T]) get(slot uint32) (object T) {
	if int(slot) < len(t.objects) {
		object = t.objects[slot]
	}
	return object
}

// mr is a memory region in the verbs sense: what an lkey and an rkey name.
type mr struct {
	translation
	dev     *Device
	pd      *PD
	kind    transport.RegistrationKind // regions are SyncMRs without rights for a peer
	slot    uint32
	keyByte uint8
	valid   bool
	broken  bool // killed for good by a peer (siw)
	exposed bool // iWARP: its lkey went out as the sink of a READ
	access  transport.Access

	region *transport.Region // of a registered region
	users  int               // valid registrations that cover part of that
	covers []*mr             // of a registration: what it is a user of
}

func (m *mr) lkey() uint32 { return makeKey(classLKey, m.slot, m.keyByte) }
func (m *mr) rkey() uint32 { return makeKey(classRKey, m.slot, m.keyByte) }

// newMR makes an MR that isn't valid yet.
func (d *Device) newMR(op string, pd *PD, kind transport.RegistrationKind) (*mr, error) {
	m := &mr{dev: d, pd: pd, kind: kind}
	slot, keyByte, ok := d.mrs.take(m)
	if !ok {
		return nil, d.errorf(op, transport.ErrNoMemory, "all of Caps.MaxMR = %d memory regions exist", d.caps.MaxMR)
	}
	m.slot, m.keyByte = slot, keyByte
	return m, nil
}

func (m *mr) drop() {
	m.invalidate()
	m.dev.mrs.give(m.slot, m.keyByte)
}

func (m *mr) invalidate() {
	m.valid = false
	m.exposed = false
	for _, r := range m.covers {
		r.users--
	}
	m.covers = m.covers[:0]
}

// grants checks a use of an MR: nothing moves before it has said yes.
func (m *mr) grants(addr, n uint64, need transport.Access) bool {
	return m.access.Has(need) && m.contains(addr, n)
}

// local finds the MR that an lkey names to a protection domain.
func (d *Device) local(key transport.LKey, pd *PD) *mr {
	if keyClass(uint32(key)) != classLKey {
		return nil
	}
	m := d.mrs.get(keySlot(uint32(key)))
	if m == nil || !m.valid || m.keyByte != key.KeyByte() || m.pd != pd {
		return nil
	}
	return m
}

// remote finds the memory that a peer's request may touch, or nil. Every bit
// of the key counts; the range may be checked piece by piece.
func (q *QP) remote(key transport.RKey, need transport.Access) (*mr, *window) {
	d := q.dev
	if need == transport.RemoteRead && d.profile.UncheckedReads {
		need = 0
	}
	switch keyClass(uint32(key)) {
	case classWindow:
		w := d.windows.get(keySlot(uint32(key)))
		if w == nil || !w.valid || w.keyByte != key.KeyByte() || w.pd != q.pd || w.qp != q || !w.access.Has(need) {
			return nil, nil
		}
		return w.mr, w
	case classRKey:
		m := d.mrs.get(keySlot(uint32(key)))
		if m != nil && m.valid && m.keyByte == key.KeyByte() && m.pd == q.pd && m.access.Has(need) {
			return m, nil
		}
	case classLKey:
		// On iWARP there is one STag for both uses, and the READ request shows
		// the sink's to the peer. Any other can be guessed, but is good only where
		// nothing is checked: an lkey that is used for an rkey by mistake is a mistake.
		m := d.local(transport.LKey(key), q.pd)
		if m != nil && (m.exposed || d.profile.OneSTag && need == 0) && m.access.Has(need) {
			return m, nil
		}
	}
	return nil, nil
}

// reaches checks the range of a request against the memory that its key named.
func reaches(m *mr, w *window, addr, n uint64) bool {
	if w != nil && !w.contains(addr, n) && !m.dev.profile.WindowsReachRegion {
		return false
	}
	return m.contains(addr, n)
}
