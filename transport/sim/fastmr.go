package sim

import (
	"math/bits"

	"rdmarw/transport"
)

// fastMR is a fast registration: an MR that a FAST_REG makes valid with the
// page list that was filled in last, as the kernel's drivers do.
type fastMR struct {
	regBase
	mr        *mr
	maxPages  int
	firstByte uint8

	// The page list: what was last given to Map.
	pages   translation
	access  transport.Access
	regions []*mr
}

func (r *fastMR) Kind() transport.RegistrationKind { return transport.FastMR }

// Map fills the page list.
func (r *fastMR) Map(m transport.Mapping) (transport.Extent, error) {
	const op = "map"
	d := r.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if err := r.checkMapping(op, &m); err != nil {
		return transport.Extent{}, err
	}
	if !m.Access.Valid() {
		return transport.Extent{}, d.errorf(op, transport.ErrInvalid, "access %v: rights for a peer to write need local-write", m.Access)
	}
	fr := &d.caps.FastReg
	shift := m.PageShift
	if shift == 0 {
		shift = uint8(bits.TrailingZeros64(fr.PageSizes))
	}
	if shift >= 64 || fr.PageSizes>>shift&1 == 0 {
		return transport.Extent{}, d.errorf(op, transport.ErrUnsupported, "page shift %d; Caps.FastReg.PageSizes = %#x", shift, fr.PageSizes)
	}
	limit := d.caps.MaxMRSize
	if m.Len > 0 {
		limit = min(limit, m.Len)
	}
	ext := transport.Coverage(m.List, m.From, limit, shift, r.maxPages, fr.Gaps)
	if ext.Len == 0 {
		return transport.Extent{}, r.nothing(op)
	}
	if err := r.pd.covered(&m, &ext, localNeed(m.Access), func(*mr, uint64, uint32) {}); err != nil {
		return transport.Extent{}, d.errorf(op, err, "")
	}
	if err := d.allocatable(op, AllocMap); err != nil {
		return transport.Extent{}, err
	}
	r.access = m.Access
	r.regions = r.regions[:0]
	r.pages.reset(ext.IOVA)
	_ = r.pd.covered(&m, &ext, 0, func(region *mr, addr uint64, size uint32) {
		r.pages.append(region.at(addr - region.iova)[:size])
		r.regions = append(r.regions, region)
	})
	return ext, nil
}

func (r *fastMR) Unmap() error { return nil }

func (r *fastMR) KeyByte() uint8 { return r.firstByte }

func (r *fastMR) LKey(keyByte uint8) transport.LKey {
	return transport.LKey(makeKey(classLKey, r.mr.slot, keyByte))
}

func (r *fastMR) RKey(keyByte uint8) transport.RKey {
	return transport.RKey(makeKey(classRKey, r.mr.slot, keyByte))
}

func (r *fastMR) AppendValid(wrs []transport.WR, keyByte uint8) []transport.WR {
	return append(wrs, transport.WR{Op: transport.OpFastReg, Reg: r.id, KeyByte: keyByte})
}

func (r *fastMR) AppendInvalid(wrs []transport.WR, keyByte uint8) []transport.WR {
	return append(wrs, transport.WR{Op: transport.OpLocalInv, Reg: r.id, KeyByte: keyByte})
}

func (r *fastMR) Close() error {
	r.dev.fabric.mu.Lock()
	defer r.dev.fabric.unlock()
	if r.closed {
		return nil
	}
	r.mr.drop()
	r.dev.dropRegistration(&r.regBase)
	return nil
}

// validate is the FAST_REG. It fails when the MR is valid already (every
// driver: "mr->state != FREE"), when nothing was mapped, and when mapped memory
// is gone.
func (r *fastMR) validate(keyByte uint8) bool {
	if r.mr.valid || r.pages.length == 0 {
		return false
	}
	for _, region := range r.regions {
		if !region.valid {
			return false
		}
	}
	m := r.mr
	m.keyByte = keyByte
	m.access = r.access
	m.iova, m.length = r.pages.iova, r.pages.length
	m.parts = append(m.parts[:0], r.pages.parts...)
	for _, region := range r.regions {
		m.cover(region)
	}
	m.valid = true
	return true
}
