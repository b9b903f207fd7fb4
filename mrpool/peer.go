package mrpool

import "slices"

// Peer is a connection that may be told keys of a pool. A key has only 8 bits that
// change from use to use: after 256 uses a registration would have a key again that
// a peer was told before. So one whose key byte has gone round is parked until all
// peers that were told one of its keys are gone: a key stays refused for the life
// of the connection that learned it. If more than Config.MaxParked are parked it is
// replaced by a new registration instead.
type Peer struct {
	pool   *Pool
	closed bool
}

// NewPeer notes a connection. Pass it to [MR.Tell] for each key that it is told, and
// close it when the connection is gone.
func (p *Pool) NewPeer() *Peer { return &Peer{pool: p} }

// Close forgets the peer: its connection is gone, and nothing can arrive from it any
// more. Parked registrations that waited for it are free again. Closing nil, or
// twice, is harmless.
func (q *Peer) Close() {
	if q == nil {
		return
	}
	p := q.pool
	p.mu.Lock()
	q.closed = true
	freed := false
	for i := range p.kinds {
		s := &p.kinds[i]
		keep := s.parked[:0]
		for _, m := range s.parked {
			if m.forgetClosed(); len(m.told) > 0 {
				keep = append(keep, m)
				continue
			}
			m.uses = 0
			s.free.pushBack(m)
			freed = true
		}
		clear(s.parked[len(keep):])
		s.parked = keep
	}
	var waiting []func()
	if freed {
		waiting = p.takeWaiting()
	}
	p.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// Tell notes that a peer is going to see the MR's key, or may: that it is exposed to
// it, or that it is the sink of a READ from it on iWARP.
func (m *MR) Tell(q *Peer) {
	if q == nil || slices.Contains(m.told, q) {
		return
	}
	m.told = append(m.told, q)
}

// forgetClosed drops the peers that are gone.
func (m *MR) forgetClosed() {
	m.told = slices.DeleteFunc(m.told, func(q *Peer) bool { return q.closed })
}

// keyBytes is how many uses have keys that differ.
const keyBytes = 256

// wrapped reports whether the next use would have a key that a living peer was told
// before.
func (m *MR) wrapped() bool {
	if m.uses < keyBytes {
		return false
	}
	if m.forgetClosed(); len(m.told) == 0 {
		m.uses = 0
		return false
	}
	return true
}
