package mrpool

import (
	"errors"
	"fmt"

	"rdmarw/transport"
)

// sink is a region that was registered whole as the sink of READs.
type sink struct {
	region *transport.Region
	mr     *MR
}

// AddSink registers a whole region as a persistent sink of READs, with the rights
// that the device asks for: on iWARP hardware that is remote write access, for
// every peer of the domain that has seen the key, for as long as the sink exists.
// It takes a SyncMR of the pool and may block. The region stays in the domain's own
// table, with its own key, too.
func (p *Pool) AddSink(r *transport.Region) error {
	if r.Len() > 1<<32-1 {
		return fmt.Errorf("add sink: region of %d bytes, a piece has at most 2^32-1: %w", r.Len(), transport.ErrUnsupported)
	}
	var one [1]*MR
	if err := p.Take(transport.SyncMR, one[:], "sink"); err != nil {
		return fmt.Errorf("add sink: %w", err)
	}
	one[0].Keep()
	list := [1]transport.Piece{r.Piece(0, uint32(r.Len()))}
	local, err := one[0].MapLocal(list[:], transport.Cursor{}, 0, ReadSink)
	if err == nil {
		err = p.sinkTable.Add(r, local.LKey)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("add sink: %w", err), one[0].giveUp())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sinks = append(p.sinks, sink{r, one[0]})
	return nil
}

// RemoveSink deregisters a persistent sink: its key is dead when this returns
// without error. It may block. READs into it must be over. Removing what isn't there
// is harmless.
func (p *Pool) RemoveSink(r *transport.Region) error {
	p.mu.Lock()
	var mr *MR
	for i, s := range p.sinks {
		if s.region == r {
			mr = s.mr
			p.sinks = append(p.sinks[:i], p.sinks[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	if mr == nil {
		return nil
	}
	p.sinkTable.Remove(r.ID())
	return mr.giveUp()
}

// Sinks is the table of the persistent sinks.
func (p *Pool) Sinks() *transport.RegionTable { return &p.sinkTable }

// giveUp revokes and puts back.
func (m *MR) giveUp() error {
	err := m.Revoke()
	m.Put()
	return err
}
