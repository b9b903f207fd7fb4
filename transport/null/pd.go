package null

import (
	"fmt"

	"rdmarw/transport"
)

// Keys are an index and a key byte. The index tells what they are of.
const registrationKey transport.LKey = 1 << 31

// pd is a protection domain.
type pd struct {
	dev     *Device
	regions transport.RegionTable
	regs    []*registration // by RegistrationID - 1
}

func (p *pd) Device() transport.Device { return p.dev }

func (p *pd) AddRegion(r *transport.Region) error {
	if err := r.Retain(); err != nil {
		return err
	}
	if err := p.regions.Add(r, transport.LKey(r.ID()<<8)&^registrationKey); err != nil {
		r.Release()
		return err
	}
	return nil
}

func (p *pd) RemoveRegion(r *transport.Region) error {
	if p.regions.Remove(r.ID()) {
		r.Release()
	}
	return nil
}

func (p *pd) Regions() *transport.RegionTable { return &p.regions }

func (p *pd) NewRegistration(kind transport.RegistrationKind, maxPages int) (transport.Registration, error) {
	caps := &p.dev.caps
	switch {
	case kind >= transport.NumRegistrationKinds,
		kind == transport.FastMR && (maxPages < 1 || maxPages > caps.FastReg.MaxPages),
		kind == transport.Window && caps.Windows == transport.NoWindows:
		return nil, fmt.Errorf("new %v of %d pages on a null device: %w", kind, maxPages, transport.ErrUnsupported)
	}
	r := &registration{caps: caps, kind: kind, id: transport.RegistrationID(len(p.regs) + 1)}
	if kind == transport.FastMR {
		r.pages = make([]uint64, maxPages)
	}
	p.regs = append(p.regs, r)
	return r, nil
}

func (p *pd) NewSRQ(int, int) (transport.SRQ, error) {
	return nil, fmt.Errorf("new SRQ: %w", transport.ErrUnsupported)
}

func (p *pd) Close() error { return nil }
