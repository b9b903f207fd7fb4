package mrpool

import (
	"errors"

	"rdmarw/transport"
)

// NewIsolated makes a pool in a protection domain of its own, for one peer: no key
// of it is of any use to another. The regions are registered in it, too. Close takes
// all of it down.
//
// It costs a registration of each region per peer, and is what to do with peers
// that don't trust each other wherever keys answer to a whole domain: on devices
// without windows, and with any sink policy other than the strict one.
func NewIsolated(dev transport.Device, cfg Config, regions ...*transport.Region) (*Pool, error) {
	pd, err := dev.NewPD()
	if err != nil {
		return nil, err
	}
	var undo []func() error
	fail := func(err error) error {
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
		return errors.Join(err, pd.Close())
	}
	for _, r := range regions {
		if err := pd.AddRegion(r); err != nil {
			return nil, fail(err)
		}
		undo = append(undo, func() error { return pd.RemoveRegion(r) })
	}
	p, err := New(pd, cfg)
	if err != nil {
		return nil, fail(err)
	}
	p.takeDown = func() error { return fail(nil) }
	return p, nil
}

// Isolated reports whether the pool has a protection domain of its own.
func (p *Pool) Isolated() bool { return p.takeDown != nil }
