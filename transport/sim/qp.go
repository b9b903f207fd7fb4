package sim

import (
	"time"

	"rdmarw/transport"
)

// QP is a simulated queue pair: three engines that take turns, each with its
// queue. The requester starts work requests in order; the responder carries out
// what the peer's requester sent; the completer takes in what the peer's
// responder answered. All run under the fabric's lock.
type QP struct {
	dev            *Device
	conn           *Conn
	pd             *PD
	sendCQ, recvCQ *CQ
	srq            *SRQ
	slot, gen      uint32
	num            uint32
	granted        transport.QueueCaps
	readSGE        int
	sendSlots      int // of which granted may hide some

	// Guarded by fabric.mu.
	state  transport.QPState
	closed bool
	failed bool // by Fail
	peer   *QP  // nil before the connection is up, and after the peer was destroyed
	up     bool // both ends are ready
	ord    int  // READs and atomics that may be outstanding

	// The send queue: [sq.head, comp) is complete but not retired by polling,
	// [comp, next) is started, [next, sq.tail) is not.
	sq      ring[sqe]
	sges    ring[transport.SGE]
	comp    uint64
	next    uint64
	reads   int    // outstanding READs and atomics
	halted  bool   // the requester met a local error, which completes in its turn
	flushTo uint64 // in the error state: requests before it flush

	rq recvQueue

	requests                      ring[request]
	responses                     ring[response]
	lastRequest, lastResponse     int64 // arrival of the newest of each
	sendPending, requestPending   bool
	responsePending, flushPending bool
	parked                        bool // the first request waits for a receive
	rnrTries                      int
	rnrTimer, ackTimer            timer
	rnrRetry, retry               int
	ackTimeout                    time.Duration
	windows                       int  // bound here
	cutOff, unheard               bool // its requests, or the answers to them, get lost for good
}

var _ transport.QP = (*QP)(nil)

// sqe is a slot of the send queue.
type sqe struct {
	wr     transport.WR
	sge    uint64 // sequence number of its first SGE
	inline []byte
	length uint32
	state  sqeState
	status transport.Status
	numSGE uint16 // in the ring
	deep   bool   // takes a unit of READ depth
}

type sqeState uint8

const (
	sqePosted sqeState = iota
	sqeSent
	sqeDone
)

func newQP(c *Conn, cfg *transport.QPConfig) (*QP, error) {
	const op = "create queue pair"
	d := c.dev
	bad := func(format string, args ...any) (*QP, error) {
		return nil, d.errorf(op, transport.ErrInvalid, format, args...)
	}
	pd, ok1 := cfg.PD.(*PD)
	scq, ok2 := cfg.SendCQ.(*CQ)
	rcq, ok3 := cfg.RecvCQ.(*CQ)
	if !ok1 || !ok2 || !ok3 || pd == nil || scq == nil || rcq == nil {
		return bad("protection domain and CQs must be given, and be of this device")
	}
	if pd.dev != d || scq.dev != d || rcq.dev != d {
		return bad("protection domain and CQs must be of this device")
	}
	if pd.closed || scq.closed || rcq.closed {
		return nil, d.errorf(op, transport.ErrClosed, "protection domain or CQ")
	}
	var srq *SRQ
	if cfg.SRQ != nil {
		var ok bool
		if srq, ok = cfg.SRQ.(*SRQ); !ok || srq == nil || srq.pd != pd || srq.closed {
			return bad("the shared receive queue must be of the same protection domain")
		}
	}
	ask, caps := cfg.QueueCaps, &d.caps
	switch {
	case ask.MaxSendWR < 0 || ask.MaxSendWR > caps.MaxSendWR:
		return bad("MaxSendWR %d; Caps.MaxSendWR = %d", ask.MaxSendWR, caps.MaxSendWR)
	case ask.MaxRecvWR < 0 || ask.MaxRecvWR > caps.MaxRecvWR:
		return bad("MaxRecvWR %d; Caps.MaxRecvWR = %d", ask.MaxRecvWR, caps.MaxRecvWR)
	case ask.MaxSendSGE < 0 || ask.MaxSendSGE > caps.MaxSendSGE:
		return bad("MaxSendSGE %d; Caps.MaxSendSGE = %d", ask.MaxSendSGE, caps.MaxSendSGE)
	case ask.MaxRecvSGE < 0 || ask.MaxRecvSGE > caps.MaxRecvSGE:
		return bad("MaxRecvSGE %d; Caps.MaxRecvSGE = %d", ask.MaxRecvSGE, caps.MaxRecvSGE)
	case ask.MaxInline < 0 || ask.MaxInline > caps.MaxInline:
		return bad("MaxInline %d; Caps.MaxInline = %d", ask.MaxInline, caps.MaxInline)
	}
	if err := d.allocatable(op, AllocQueue); err != nil {
		return nil, err
	}
	p := &d.profile
	granted := transport.QueueCaps{
		MaxSendWR:  min(p.QueueSizes.round(ask.MaxSendWR), caps.MaxSendWR),
		MaxRecvWR:  min(p.QueueSizes.round(ask.MaxRecvWR), caps.MaxRecvWR),
		MaxSendSGE: max(ask.MaxSendSGE, 1),
		MaxRecvSGE: max(ask.MaxRecvSGE, 1),
		MaxInline:  ask.MaxInline,
	}
	if p.InlineSGEs {
		const sge = 16 // size of an ibv_sge
		area := max(granted.MaxSendSGE*sge, granted.MaxInline)
		granted.MaxSendSGE = min(area/sge, caps.MaxSendSGE)
		granted.MaxInline = min(area, caps.MaxInline)
	}
	if srq != nil {
		granted.MaxRecvWR, granted.MaxRecvSGE = srq.granted.MaxRecvWR, srq.granted.MaxRecvSGE
	}
	q := &QP{
		dev: d, conn: c, pd: pd, sendCQ: scq, recvCQ: rcq, srq: srq,
		granted: granted, readSGE: caps.ReadSGEs(granted.MaxSendSGE), sendSlots: granted.MaxSendWR,
		rq: recvQueue{size: granted.MaxRecvWR, maxSGE: d.receiveSGEs(granted.MaxRecvSGE)},
	}
	if p.HiddenRounding {
		q.granted.MaxSendWR = max(ask.MaxSendWR, 1)
		if srq == nil {
			q.granted.MaxRecvWR = max(ask.MaxRecvWR, 1)
		}
	}
	d.fabric.enterQP(q)
	pd.objects++
	scq.users++
	rcq.users++
	if srq != nil {
		srq.users++
	}
	return q, nil
}

// firstQPN is past the special queue pairs 0 and 1, and then some.
const firstQPN = 17

// enterQP gives a queue pair a slot, which makes its number. Slots are reused
// oldest first, as devices do to keep old packets from hitting new queue pairs.
func (f *Fabric) enterQP(q *QP) {
	if f.freeQPs.len() > 0 {
		q.slot = f.freeQPs.pop()
		f.qps[q.slot] = q
	} else {
		q.slot = uint32(len(f.qps))
		f.qps = append(f.qps, q)
		f.qpGen = append(f.qpGen, 0)
	}
	f.qpGen[q.slot]++
	q.gen = f.qpGen[q.slot]
	q.num = firstQPN + q.slot
}

// destroy ends the queue pair: nothing of it moves any more.
func (q *QP) destroy() {
	if q.closed {
		return
	}
	f, d := q.dev.fabric, q.dev
	q.closed = true
	q.state = transport.QPError
	if q.windows > 0 {
		if d.profile.FreeWindowsFirst && d.down == nil {
			f.now += int64(50 * time.Second)
			f.report(d, "queue pair %d is destroyed with %d windows bound on it: this blocks for 50 s in Linux 6.12, and leaks; close the windows first", q.num, q.windows)
		}
		for _, w := range d.windows.objects {
			if w != nil && w.qp == q {
				w.invalidate()
			}
		}
	}
	q.stopTimers()
	q.dropInbound()
	for q.responses.len() > 0 {
		m := q.responses.pop()
		f.buffers.put(m.data)
	}
	for q.comp < q.sq.tail {
		f.timeline.ended(q, q.comp, transport.StatusFlushed)
		f.buffers.put(q.sq.at(q.comp).inline)
		q.comp++
	}
	if q.peer != nil {
		q.peer.peer = nil
	}
	f.qps[q.slot] = nil
	f.freeQPs.push(q.slot)
	q.pd.objects--
	q.sendCQ.users--
	q.recvCQ.users--
	if q.srq != nil {
		q.srq.users--
	}
	if f.log != nil {
		f.tracef(d, "qp %d destroyed", q.num)
	}
}

func (q *QP) stopTimers() {
	q.rnrTimer.stop()
	q.ackTimer.stop()
}

// Num is the queue pair's number.
func (q *QP) Num() uint32 { return q.num }

// Granted returns the real sizes.
func (q *QP) Granted() transport.QueueCaps { return q.granted }

// State returns the state.
func (q *QP) State() transport.QPState {
	q.dev.fabric.mu.Lock()
	defer q.dev.fabric.unlock()
	return q.state
}

// Fail moves to the error state. On iWARP that ends the connection; elsewhere
// the peer isn't told.
func (q *QP) Fail() error {
	q.dev.fabric.mu.Lock()
	defer q.dev.fabric.unlock()
	if q.closed {
		return q.dev.errorf("fail queue pair", transport.ErrClosed, "")
	}
	q.failed = true
	q.toError()
	return nil
}

// fatal moves to the error state for a reason of the device's.
func (q *QP) fatal(why string) {
	if q.state != transport.QPError {
		q.dev.event(transport.EventQPFatal, q.num, why)
		q.toError()
	}
}

// toError moves to the error state. IWARP ends the connection with it, if there is one:
// RFC 5040 and 5043 let no stream outlive its queue pair.
func (q *QP) toError() {
	if q.enterError() && q.dev.iwarp && q.conn.state >= connAnswered {
		q.conn.end(transport.ErrDisconnected, true)
	}
}

// enterError is the queue pair's part of it. The flush is an event of its own:
// there is no telling, on real devices either, what of it is seen when this
// returns.
func (q *QP) enterError() bool {
	if q.state == transport.QPError || q.dead() {
		return false
	}
	f := q.dev.fabric
	q.state = transport.QPError
	q.flushTo = q.sq.tail
	f.timeline.mark(q, "error state")
	if f.log != nil {
		f.tracef(q.dev, "qp %d error", q.num)
	}
	q.stopTimers()
	q.dropInbound()
	q.scheduleFlush()
	return true
}

// dead tells that the device has stopped without a word.
func (q *QP) dead() bool { return q.dev.dead || q.conn.killed }

// dropInbound loses the requests that were on their way here. IWARP tells the
// peer by other means; elsewhere, and when dead, it is for the peer's timer.
func (q *QP) dropInbound() {
	if q.requests.len() == 0 {
		return
	}
	for q.requests.len() > 0 {
		m := q.requests.pop()
		q.dev.fabric.buffers.put(m.data)
	}
	if q.peer != nil {
		q.peer.unanswered()
	}
}

// unanswered notes that a request of this queue pair was lost for good. Nothing
// that is lost here is ever resent with success, so the retries are one timer.
func (q *QP) unanswered() {
	if q.state != transport.QPReady || q.dead() || q.ackTimer.running() {
		return
	}
	q.ackTimer = q.dev.fabric.after(q.ackTimeout*time.Duration(1+q.retry), func() {
		q.ackTimer = timer{}
		switch {
		case q.closed || q.state != transport.QPReady:
		case q.dev.iwarp:
			q.dev.event(transport.EventQPFatal, q.num, "stream timed out")
			q.toError()
		case q.comp < q.next:
			q.done(q.comp, transport.StatusRetryExceeded)
			q.complete()
		}
	})
}
