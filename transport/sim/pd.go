package sim

import "rdmarw/transport"

// PD is a simulated protection domain. See [transport.PD].
type PD struct {
	dev   *Device
	table transport.RegionTable

	// Guarded by fabric.mu.
	regions map[transport.RegionID]*mr
	objects int // queue pairs, shared receive queues, registrations
	closed  bool
}

var _ transport.PD = (*PD)(nil)

// NewPD makes a protection domain.
func (d *Device) NewPD() (transport.PD, error) {
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if err := d.allocatable("new protection domain", AllocPD); err != nil {
		return nil, err
	}
	d.pds++
	return &PD{dev: d, regions: make(map[transport.RegionID]*mr)}, nil
}

// Device returns the device.
func (p *PD) Device() transport.Device { return p.dev }

// Regions returns the table of regions.
func (p *PD) Regions() *transport.RegionTable { return &p.table }

// AddRegion gives a region an lkey here.
func (p *PD) AddRegion(r *transport.Region) error {
	const op = "add region"
	// Not under the fabric's lock: a region's Close takes the two in this order.
	if err := r.Retain(); err != nil {
		return p.dev.errorf(op, err, "region %#x", r.ID())
	}
	err := p.addRegion(op, r)
	if err != nil {
		r.Release()
	}
	return err
}

func (p *PD) addRegion(op string, r *transport.Region) error {
	d := p.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	switch {
	case p.closed:
		return d.errorf(op, transport.ErrClosed, "")
	case p.regions[r.ID()] != nil:
		return d.errorf(op, transport.ErrBusy, "region %#x is here already", r.ID())
	}
	if s := d.span(r.Addr()); s == nil || s.region != r {
		return d.errorf(op, transport.ErrInvalid, "region %#x is not of this device", r.ID())
	}
	if err := d.allocatable(op, AllocRegionKey); err != nil {
		return err
	}
	m, err := d.newMR(op, p, transport.SyncMR)
	if err != nil {
		return err
	}
	m.region, m.access = r, r.Access()
	m.reset(r.Addr())
	m.append(r.Bytes())
	m.valid = true
	if err := p.table.Add(r, transport.LKey(m.lkey())); err != nil {
		m.drop()
		return d.errorf(op, err, "region %#x", r.ID())
	}
	p.regions[r.ID()] = m
	d.stats.Registrations++
	d.registerCost(r.Len())
	if d.fabric.log != nil {
		d.fabric.tracef(d, "region %#x added as %v", uint32(r.ID()), transport.LKey(m.lkey()))
	}
	return nil
}

// RemoveRegion takes a region out.
func (p *PD) RemoveRegion(r *transport.Region) error {
	removed, err := p.removeRegion(r)
	if removed {
		r.Release()
	}
	return err
}

func (p *PD) removeRegion(r *transport.Region) (bool, error) {
	d := p.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	m := p.regions[r.ID()]
	if m == nil {
		return false, nil
	}
	if m.users > 0 {
		return false, d.errorf("remove region", transport.ErrBusy, "%d valid registrations cover part of region %#x", m.users, r.ID())
	}
	p.table.Remove(r.ID())
	delete(p.regions, r.ID())
	m.drop()
	d.stats.Deregistrations++
	if d.fabric.log != nil {
		d.fabric.tracef(d, "region %#x removed", uint32(r.ID()))
	}
	return true, nil
}

// Close closes the domain, or fails with ErrBusy.
func (p *PD) Close() error {
	p.dev.fabric.mu.Lock()
	defer p.dev.fabric.unlock()
	if p.closed {
		return nil
	}
	if n := len(p.regions); n+p.objects > 0 {
		return p.dev.errorf("close protection domain", transport.ErrBusy, "%d regions and %d queue pairs, shared receive queues or registrations are left", n, p.objects)
	}
	p.closed = true
	p.dev.pds--
	return nil
}

// registerCost lets the caller's time pass.
func (d *Device) registerCost(n uint64) {
	c := &d.profile.Cost
	took := int64(c.Register) + int64(n/pageSize)*int64(c.RegisterPage)
	d.fabric.now += took
	d.fabric.timeline.call(d, "register", took)
}
