package mrpool

import (
	"fmt"

	"rdmarw/transport"
)

// Reservation sets registrations of a pool aside for one user, an endpoint for
// example: others can't take the pool so empty that its share isn't there. What it
// doesn't use stays idle. The zero share is nil.
type Reservation struct {
	pool  *Pool
	kind  transport.RegistrationKind
	share int
	used  int
}

// Reserve sets n registrations of a kind aside: all or none ([ErrEmpty]). Release it
// when everything taken from it was put back. For as long as it stands, others can't have
// more at once than [Pool.SizeFor] tells.
func (p *Pool) Reserve(kind transport.RegistrationKind, n int) (*Reservation, error) {
	p.mu.Lock()
	r, err := p.reserve(kind, n)
	var waiting []func()
	if err == nil {
		waiting = p.takeWaiting() // who needs more than is left now
	}
	p.mu.Unlock()
	for _, f := range waiting {
		f()
	}
	return r, err
}

// reserve is Reserve for one who holds mu.
func (p *Pool) reserve(kind transport.RegistrationKind, n int) (*Reservation, error) {
	if p.closed {
		return nil, ErrClosed
	}
	if n < 0 {
		return nil, fmt.Errorf("reserve %d registrations: %w", n, transport.ErrInvalid)
	}
	s := &p.kinds[kind]
	if err := p.grow(kind, n+s.idleShares); err != nil {
		return nil, err
	}
	if s.free.n-s.idleShares < n {
		s.empties++
		return nil, ErrEmpty
	}
	s.idleShares += n
	s.reserved += n
	return &Reservation{pool: p, kind: kind, share: n}, nil
}

// Release gives the share up. Releasing nil, or twice, is harmless.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	p := r.pool
	p.mu.Lock()
	s := &p.kinds[r.kind]
	s.idleShares -= r.share - r.used
	s.reserved -= r.share
	r.share, r.used = 0, 0
	waiting := p.takeWaiting()
	p.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// idle is what is left of the share. The caller holds the pool's mutex.
func (r *Reservation) idle() int {
	if r == nil {
		return 0
	}
	return r.share - r.used
}
