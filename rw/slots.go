package rw

import "errors"

// A cookie names one request of one use of a slot: 24 bits of generation, 24 bits of
// slot, 16 bits of position. A completion of an earlier use of the slot, or of a queue
// pair that is gone, is recognised by its generation.
const (
	positionBits = 16
	slotBits     = 24
	maxChain     = 1 << positionBits
	generation   = 1 << (positionBits + slotBits)
)

// chain is contexts that are posted by one doorbell and completed by one signaled
// request, or one receive, or the marker of a drain. It lives in a slot of the poller's
// table.
type chain struct {
	// cookie is that of the first request. The others count on from there.
	cookie uint64
	ep     *Endpoint // nil: a receive of srq
	srq    *SRQ
	kind   chainKind
	next   *chain // in the endpoint's queue or list, or of those free

	head, tail *Context
	// What the chain takes: send queue slots at most, and as held at the moment;
	// READ depth.
	wrs, posted, reads int
	// last is the position whose completion ends what is posted.
	last int

	// cause is the chain's own failure: a status other than "flushed", at a
	// position.
	cause    error
	position int
	flushed  bool
}

type chainKind uint8

const (
	freeChain chainKind = iota
	sendChain
	recvChain
	drainChain
)

// slots is the table of chains. It grows and never shrinks, so that in steady
// state nothing is allocated.
type slots struct {
	table []*chain
	free  *chain
}

// take returns a chain with nothing in it.
func (s *slots) take(ep *Endpoint, kind chainKind) (*chain, error) {
	ch := s.free
	if ch == nil {
		if len(s.table) == 1<<slotBits {
			return nil, errors.New("2^24 operations are under way")
		}
		ch = &chain{cookie: uint64(len(s.table)) << positionBits}
		s.table = append(s.table, ch)
	}
	s.free, ch.next = ch.next, nil
	ch.ep, ch.kind = ep, kind
	return ch, nil
}

// give takes a chain back, and empties it. Its cookies mean nothing from now on.
func (s *slots) give(ch *chain) {
	ch.cookie += generation
	ch.kind = freeChain
	ch.wrs, ch.posted, ch.reads, ch.last, ch.position, ch.flushed = 0, 0, 0, 0, 0, false
	if ch.srq != nil {
		ch.srq = nil
	}
	if ch.cause != nil {
		ch.cause = nil
	}
	ch.ep, ch.head, ch.tail = nil, nil, nil
	ch.next, s.free = s.free, ch
}

// lookup finds the chain of a cookie and the position in it, or nil if that use is
// over.
func (s *slots) lookup(cookie uint64) (ch *chain, position int) {
	slot := cookie / maxChain % (1 << slotBits)
	if slot >= uint64(len(s.table)) {
		return nil, 0
	}
	ch = s.table[slot]
	if cookie -= ch.cookie; cookie >= maxChain {
		return nil, 0
	}
	return ch, int(cookie)
}

// list is a queue of chains, linked by their next.
type list struct{ head, tail *chain }

func (l *list) empty() bool { return l.head == nil }

func (l *list) push(ch *chain) {
	if l.head == nil {
		l.head = ch
	} else {
		l.tail.next = ch
	}
	l.tail = ch
}

func (l *list) pop() *chain {
	ch := l.head
	l.head, ch.next = ch.next, nil
	return ch
}

// remove takes out a chain that is in the list, near its head.
func (l *list) remove(ch *chain) {
	if l.head == ch {
		l.pop()
		return
	}
	before := l.head
	for before.next != ch {
		before = before.next
	}
	before.next, ch.next = ch.next, nil
	if l.tail == ch {
		l.tail = before
	}
}
