package sim

import "rdmarw/transport"

// registration is what the three kinds have in common for the device.
type registration interface {
	transport.Registration
	base() *regBase
}

// regBase is the identity of a registration.
type regBase struct {
	dev    *Device
	pd     *PD
	id     transport.RegistrationID
	closed bool
}

func (b *regBase) base() *regBase { return b }

// ID names the registration in work requests.
func (b *regBase) ID() transport.RegistrationID { return b.id }

// Registration ids are a slot and a generation, as region ids are.
const regSlotBits = 20

// NewRegistration makes a registration object.
func (p *PD) NewRegistration(kind transport.RegistrationKind, maxPages int) (transport.Registration, error) {
	const op = "new registration"
	d := p.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if p.closed {
		return nil, d.errorf(op, transport.ErrClosed, "")
	}
	if err := d.allocatable(op, AllocRegistration); err != nil {
		return nil, err
	}
	var r registration
	base := regBase{dev: d, pd: p}
	switch kind {
	case transport.SyncMR:
		r = &syncMR{regBase: base}
	case transport.FastMR:
		fr := &d.caps.FastReg
		if fr.MaxPages == 0 {
			return nil, d.errorf(op, transport.ErrUnsupported, "the device has no fast registration")
		}
		if maxPages <= 0 || maxPages > fr.MaxPages {
			return nil, d.errorf(op, transport.ErrInvalid, "%d pages; from 1 to Caps.FastReg.MaxPages = %d are possible", maxPages, fr.MaxPages)
		}
		m, err := d.newMR(op, p, kind)
		if err != nil {
			return nil, err
		}
		r = &fastMR{regBase: base, mr: m, maxPages: maxPages, firstByte: m.keyByte}
	case transport.Window:
		if d.caps.Windows == transport.NoWindows {
			return nil, d.errorf(op, transport.ErrUnsupported, "the device has no type-2 memory windows")
		}
		w := &window{regBase: base}
		slot, keyByte, ok := d.windows.take(w)
		if !ok {
			return nil, d.errorf(op, transport.ErrNoMemory, "all of Caps.MaxWindows = %d windows exist", d.caps.MaxWindows)
		}
		w.slot, w.keyByte, w.firstByte = slot, keyByte, keyByte
		r = w
	default:
		return nil, d.errorf(op, transport.ErrInvalid, "kind %d", kind)
	}
	r.base().id = d.enterRegistration(r)
	p.objects++
	if d.fabric.log != nil {
		d.fabric.tracef(d, "%v %#x new", kind, uint32(r.ID()))
	}
	return r, nil
}

func (d *Device) enterRegistration(r registration) transport.RegistrationID {
	var slot uint32
	if d.freeRegs.len() > 0 {
		slot = d.freeRegs.pop()
		d.regs[slot] = r
	} else {
		slot = uint32(len(d.regs))
		d.regs = append(d.regs, r)
		d.regGen = append(d.regGen, 0)
	}
	d.regGen[slot] = d.regGen[slot]%(1<<(32-regSlotBits)-1) + 1 // never 0
	return transport.RegistrationID(d.regGen[slot]<<regSlotBits | slot)
}

func (d *Device) dropRegistration(b *regBase) {
	slot := uint32(b.id) & (1<<regSlotBits - 1)
	d.regs[slot] = nil
	d.freeRegs.push(slot)
	b.closed = true
	b.pd.objects--
}

// registration finds a registration of a protection domain, or nil.
func (p *PD) registration(id transport.RegistrationID) registration {
	slot := uint32(id) & (1<<regSlotBits - 1)
	d := p.dev
	if int(slot) >= len(d.regs) || d.regGen[slot] != uint32(id)>>regSlotBits {
		return nil
	}
	r := d.regs[slot]
	if r == nil || r.base().pd != p {
		return nil
	}
	return r
}

// covered checks the part of a list that an extent covers, and calls fn for
// each piece of it, with the region's memory that it denotes.
func (p *PD) covered(m *transport.Mapping, ext *transport.Extent, need transport.Access, fn func(region *mr, addr uint64, n uint32)) error {
	view := p.table.View()
	left := ext.Len
	at := m.From
	for left > 0 {
		piece := m.List[at.Piece]
		if at.Offset >= piece.Len {
			at = transport.Cursor{Piece: at.Piece + 1}
			continue
		}
		entry, err := view.Check(piece, need)
		if err != nil {
			return err
		}
		region := p.regions[entry.ID]
		n := uint32(min(uint64(piece.Len-at.Offset), left))
		fn(region, piece.Addr+uint64(at.Offset), n)
		left -= uint64(n)
		at = transport.Cursor{Piece: at.Piece + 1}
	}
	return nil
}

// contiguous is the extent of a registration that covers one range.
func (d *Device) contiguous(m *transport.Mapping) transport.Extent {
	limit := d.caps.MaxMRSize
	if m.Len > 0 {
		limit = min(limit, m.Len)
	}
	return transport.Contiguous(m.List, m.From, limit)
}

// checkMapping refuses what makes no sense for any kind.
func (b *regBase) checkMapping(op string, m *transport.Mapping) error {
	switch {
	case b.closed:
		return b.dev.errorf(op, transport.ErrClosed, "")
	case m.From.Piece < 0:
		return b.dev.errorf(op, transport.ErrInvalid, "cursor %+v", m.From)
	}
	return b.dev.usable(op)
}

func (b *regBase) nothing(op string) error {
	return b.dev.errorf(op, transport.ErrRange, "the list is empty from there on: nothing to register")
}

// localNeed is the right that a region must have grant to a registration of
// part of it.
func localNeed(a transport.Access) transport.Access {
	if a&(transport.LocalWrite|transport.RemoteWrite|transport.RemoteAtomic) != 0 {
		return transport.LocalWrite
	}
	return 0
}
