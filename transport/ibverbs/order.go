package ibverbs

import (
	"sync"

	"rdmarw/transport"
)

// order puts the completions of a send queue back into the order of posting.
//
// That order is the rule of verbs, and what everybody builds on: a completion says
// that all that was posted before is over too. siw breaks it (Linux 6.12): a SEND or
// WRITE completes when it is handed to TCP, a READ when its response is there
// (siw_qp_sq_process, siw_rdmap_complete), so that a WRITE behind a READ
// overtakes it. Whoever then takes the READ's data for complete, or its sink away,
// is wrong. A fence would keep the order too, but it holds up the responses to the
// peer's READs as well: two sides that READ from each other would wait for ever.
//
// So READs are always signaled there, whatever was asked for, and what comes behind
// one is held back until it has completed. Within the two classes, READs and all
// else, siw keeps the order.
type order struct {
	// signals has a bit for each opcode that is signaled whatever was asked for, beside
	// READs.
	signals opSet

	mu   sync.Mutex
	ring []posted // a power of two
	head uint32
	tail uint32
}

// posted is a request whose end hasn't been told yet.
type posted struct {
	cookie   uint64
	read     bool
	signaled bool // as asked for
	shown    bool // completes with a sign
	ended    bool
	how      transport.Completion // if ended
}

func newOrder(queue int) *order {
	n := 16
	for n < queue {
		n *= 2
	}
	return &order{ring: make([]posted, n)}
}

func (o *order) at(i uint32) *posted { return &o.ring[i&uint32(len(o.ring)-1)] }

// posting notes requests that are about to be posted: their completions may be
// there before the call that posts returns.
func (o *order) posting(wrs []transport.WR) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range wrs {
		if int(o.tail-o.head) == len(o.ring) {
			o.grow()
		}
		*o.at(o.tail) = posted{
			cookie:   wrs[i].Cookie,
			read:     wrs[i].Op == transport.OpRead,
			signaled: wrs[i].Flags&transport.Signaled != 0,
			shown:    wrs[i].Op == transport.OpRead || wrs[i].Flags&transport.Signaled != 0 || o.signals>>wrs[i].Op&1 != 0,
		}
		o.tail++
	}
}

// grow makes room: devices take requests out of their queue before they complete,
// so more than a queue full can be on the way.
func (o *order) grow() {
	bigger := make([]posted, 2*len(o.ring))
	for i := o.head; i != o.tail; i++ {
		bigger[i&uint32(len(bigger)-1)] = *o.at(i)
	}
	o.ring = bigger
}

// refused takes back the last n of those requests.
func (o *order) refused(n int) {
	o.mu.Lock()
	o.tail -= uint32(n)
	o.mu.Unlock()
}

// completed takes in a completion, and appends to out what can be told now.
func (o *order) completed(c *transport.Completion, out []transport.Completion) []transport.Completion {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, ok := o.find(c)
	if !ok {
		return append(out, *c) // not of this queue: a receive, or of a queue pair that is gone
	}
	p := o.at(i)
	p.ended, p.how = true, *c
	if c.Status == transport.StatusFlushed {
		o.lose(i)
	}
	for o.head != o.tail {
		p := o.at(o.head)
		switch {
		case p.ended && (p.signaled || p.how.Status != transport.StatusOK):
			out = append(out, p.how)
		case p.ended:
		case p.read || p.signaled || !o.endedBehind(o.head):
			return out
			// else it completed without a sign, before what is behind it
		}
		o.head++
	}
	return out
}

// find finds the request that a completion is of, by its cookie: a failed one tells
// nothing else. Requests that are to complete without a sign do so by failing only.
func (o *order) find(c *transport.Completion) (at uint32, ok bool) {
	if c.Flags&transport.Receive != 0 {
		return 0, false
	}
	for i := o.head; i != o.tail; i++ {
		p := o.at(i)
		if !p.ended && p.cookie == c.Cookie && (p.shown || c.Status != transport.StatusOK) {
			return i, true
		}
	}
	return 0, false
}

// lose ends the READs before a request that was flushed. They should have been
// flushed before it, but siw forgets the READs behind the one whose response was
// cut off (siw_rdmap_complete clears its entry, siw_sq_flush stops at the first clear
// one).
func (o *order) lose(flushed uint32) {
	for i := o.head; i != flushed; i++ {
		if p := o.at(i); p.read && !p.ended {
			p.ended = true
			p.how = transport.Completion{Cookie: p.cookie, QPN: o.at(flushed).how.QPN, Status: transport.StatusFlushed}
		}
	}
}

func (o *order) endedBehind(i uint32) bool {
	for i++; i != o.tail; i++ {
		if o.at(i).ended {
			return true
		}
	}
	return false
}

// orders are those of the queue pairs of a CQ, by number. The CQ's lock guards it.
type orders struct {
	byQPN map[uint32]*order
	ready []transport.Completion // in order, and not told yet
	buf   []transport.Completion // what the device has, which is more than is told
	next  int
}

// poll fills dst by polls of the device, in order. As with the device's own, fewer
// than asked for means that there were no more.
func (o *orders) poll(dst []transport.Completion, device func([]transport.Completion) int) int {
	for len(o.ready)-o.next < len(dst) {
		if o.next == len(o.ready) {
			o.ready, o.next = o.ready[:0], 0
		}
		n := device(o.buf)
		if n < 0 {
			return n
		}
		for i := range o.buf[:n] {
			c := &o.buf[i]
			if q := o.byQPN[c.QPN]; q != nil {
				o.ready = q.completed(c, o.ready)
			} else {
				o.ready = append(o.ready, *c)
			}
		}
		if n < len(o.buf) {
			break
		}
	}
	n := copy(dst, o.ready[o.next:])
	o.next += n
	return n
}
