package sim

import "rdmarw/transport"

// syncMR is a synchronous registration: an MR that exists while it is mapped.
type syncMR struct {
	regBase
	mr *mr
}

func (r *syncMR) Kind() transport.RegistrationKind { return transport.SyncMR }

// Map registers. The keys are new ones each time.
func (r *syncMR) Map(m transport.Mapping) (transport.Extent, error) {
	const op = "register"
	d := r.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if err := r.checkMapping(op, &m); err != nil {
		return transport.Extent{}, err
	}
	if !m.Access.Valid() || m.Access.Has(transport.BindWindow) {
		return transport.Extent{}, d.errorf(op, transport.ErrInvalid, "access %v: rights for a peer to write need local-write, and windows are bound over regions", m.Access)
	}
	r.deregister()
	ext := d.contiguous(&m)
	if ext.Len == 0 {
		return transport.Extent{}, r.nothing(op)
	}
	if err := r.pd.covered(&m, &ext, localNeed(m.Access), func(*mr, uint64, uint32) {}); err != nil {
		return transport.Extent{}, d.errorf(op, err, "")
	}
	if err := d.allocatable(op, AllocMap); err != nil {
		return transport.Extent{}, err
	}
	n, err := d.newMR(op, r.pd, transport.SyncMR)
	if err != nil {
		return transport.Extent{}, err
	}
	n.access = m.Access
	n.reset(ext.IOVA)
	_ = r.pd.covered(&m, &ext, 0, func(region *mr, addr uint64, size uint32) {
		n.append(region.at(addr - region.iova)[:size])
		n.cover(region)
	})
	n.valid = true
	r.mr = n
	d.stats.Registrations++
	d.registerCost(ext.Len)
	if d.fabric.log != nil {
		d.fabric.tracef(d, "MR %#x [%#x,+%d) %v as %v %v", uint32(r.id), ext.IOVA, ext.Len, m.Access, r.lkey(), r.rkey())
	}
	return ext, nil
}

func (m *mr) cover(region *mr) {
	for _, r := range m.covers {
		if r == region {
			return
		}
	}
	m.covers = append(m.covers, region)
	region.users++
}

// Unmap deregisters.
func (r *syncMR) Unmap() error {
	r.dev.fabric.mu.Lock()
	defer r.dev.fabric.unlock()
	r.deregister()
	return nil
}

func (r *syncMR) deregister() {
	if r.mr == nil {
		return
	}
	if r.dev.fabric.log != nil {
		r.dev.fabric.tracef(r.dev, "MR %#x deregistered %v %v", uint32(r.id), r.lkey(), r.rkey())
	}
	r.mr.drop()
	r.mr = nil
	r.dev.stats.Deregistrations++
	r.dev.flushCost()
}

func (r *syncMR) KeyByte() uint8 { return 0 }

func (r *syncMR) lkey() transport.LKey {
	if r.mr == nil {
		return 0
	}
	return transport.LKey(r.mr.lkey())
}

func (r *syncMR) rkey() transport.RKey {
	if r.mr == nil {
		return 0
	}
	return transport.RKey(r.mr.rkey())
}

func (r *syncMR) LKey(uint8) transport.LKey {
	r.dev.fabric.mu.Lock()
	defer r.dev.fabric.unlock()
	return r.lkey()
}

func (r *syncMR) RKey(uint8) transport.RKey {
	r.dev.fabric.mu.Lock()
	defer r.dev.fabric.unlock()
	return r.rkey()
}

func (r *syncMR) AppendValid(wrs []transport.WR, _ uint8) []transport.WR   { return wrs }
func (r *syncMR) AppendInvalid(wrs []transport.WR, _ uint8) []transport.WR { return wrs }

func (r *syncMR) Close() error {
	r.dev.fabric.mu.Lock()
	defer r.dev.fabric.unlock()
	if r.closed {
		return nil
	}
	r.deregister()
	r.dev.dropRegistration(&r.regBase)
	return nil
}
