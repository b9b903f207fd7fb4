package mrpool

import "slices"

// Peer is a connection that may be told keys of a pool. A key has only 8 bits that
// change from use to use: after 256 uses a registration would have a key again that
// a peer was told before. So one whose key byte has gone round is set aside when it is put
// back, and [Pool.Repair] replaces it by a new registration, whose index is another, unless
// all peers that were told one of its keys are gone. Waiting for them to go would be no
// alternative: who waits may be what keeps them.
type Peer struct {
	pool   *Pool
	closed bool
}

// NewPeer notes a connection. Pass it to [MR.Tell] for each key that it is told, and
// close it when the connection is gone.
func (p *Pool) NewPeer() *Peer { return &Peer{pool: p} }

// Close forgets the peer: its connection is gone, and nothing can arrive from it any
// more. Closing nil, or twice, is harmless.
func (q *Peer) Close() {
	if q == nil {
		return
	}
	q.pool.mu.Lock()
	q.closed = true
	q.pool.mu.Unlock()
}

// Tell notes that a peer is going to see the MR's key, or may: that it is exposed to
// it, or that it is the sink of a READ from it on iWARP.
func (m *MR) Tell(q *Peer) {
	if q == nil || slices.Contains(m.told, q) {
		return
	}
	m.told = append(m.told, q)
}

// keyBytes is how many uses have keys that differ.
const keyBytes = 256

// wrapped reports whether the next use would have a key that a living peer was told
// before.
func (m *MR) wrapped() bool {
	if m.uses < keyBytes {
		return false
	}
	m.told = slices.DeleteFunc(m.told, func(q *Peer) bool { return q.closed })
	if len(m.told) == 0 {
		m.uses = 0
	}
	return m.uses > 0
}
