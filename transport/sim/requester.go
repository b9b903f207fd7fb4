package sim

import (
	"time"

	"rdmarw/transport"
)

// request is a message from a requester to its peer's responder.
type request struct {
	at      int64 // arrival
	seq     uint64
	addr    uint64
	compare uint64
	swap    uint64
	data    []byte
	key     transport.RKey
	imm     uint32
	length  uint32
	op      transport.Opcode
}

// endOfStream is the request by which iWARP ends a connection: TCP's FIN.
const endOfStream = transport.OpInvalid

// kickRequester lets the requester look at its queue.
func (q *QP) kickRequester() {
	if q.sendPending || !q.running() || q.next == q.sq.tail {
		return
	}
	q.sendPending = true
	q.dev.fabric.schedule(evSend, q, q.dev.txFree)
}

func (q *QP) running() bool {
	return q.up && q.state == transport.QPReady && !q.halted && !q.dead()
}

// runRequester starts the next request, if nothing holds it back. What ends the
// wait kicks it again.
func (q *QP) runRequester() {
	if !q.running() || q.next == q.sq.tail {
		return
	}
	e := q.sq.at(q.next)
	if q.heldBack(e) {
		return
	}
	seq := q.next
	q.next++
	q.start(e, seq)
	q.kickRequester()
}

// heldBack tells whether a request has to wait for earlier ones. The head of
// the queue holds up everything behind it.
func (q *QP) heldBack(e *sqe) bool {
	switch {
	case e.wr.Flags&transport.Fence != 0 && q.reads > 0 && !(e.wr.Op.IsRead() && q.dev.profile.FencedReadFails):
		return true
	case e.wr.Op.IsRead() || e.wr.Op.IsAtomic():
		return q.reads >= q.ord
	case e.wr.Op == transport.OpLocalInv && q.dev.profile.LocalInvWaits:
		// rxe_wqe_is_fenced: LOCAL_INV waits for all, a fence for READs and atomics.
		return q.comp != q.next
	}
	return false
}

// start runs a request as far as it can without the peer.
func (q *QP) start(e *sqe, seq uint64) {
	d := q.dev
	f := d.fabric
	if f.log != nil {
		f.tracef(d, "qp %d wr %d start %v cookie %#x len %d", q.num, seq, e.wr.Op, e.wr.Cookie, e.length)
	}
	f.timeline.request("n", q, seq, "start", "")
	cost := &d.profile.Cost
	busy := cost.WR + time.Duration(max(0, int(e.numSGE)-1))*cost.SGE

	planned := q.plannedStatus(seq, &e.wr)
	status := planned
	m := request{seq: seq, op: e.wr.Op, length: e.length, addr: e.wr.RemoteAddr, key: e.wr.RKey, imm: e.wr.Imm}
	local := false // needs no answer of the peer's
	if status == transport.StatusOK {
		switch op := e.wr.Op; {
		case op == transport.OpLocalInv || op == transport.OpFastReg || op == transport.OpBindWindow:
			busy += cost.FastReg
			local = true
			status = q.runLocal(e)
		case op.IsRead():
			if d.profile.FencedReadFails && e.wr.Flags&transport.Fence != 0 {
				status = transport.StatusLocalQPOp
				break
			}
			e.deep = true
			q.reads++
			q.exposeSink(e)
		case op.IsAtomic():
			e.deep = true
			q.reads++
			m.compare, m.swap = e.wr.CompareAdd, e.wr.Swap
		default:
			busy += cost.bytes(uint64(e.length))
			// On iWARP a message is complete when TCP has it.
			local = d.iwarp
			m.data, status = q.gather(e)
		}
	}
	d.txFree = max(d.txFree, f.now) + int64(busy)
	e.state = sqeSent
	if status != planned && d.profile.OwnErrors != OwnErrorsInTurn {
		d.event(transport.EventQPFatal, q.num, status.Error())
		if d.profile.OwnErrors == OwnErrorsAtOnce {
			q.done(seq, status)
		}
		q.toError()
		return
	}
	if status != transport.StatusOK {
		// The requests before it complete first, in their own time.
		q.halted = true
		q.done(seq, status)
		q.complete()
		return
	}
	if local {
		q.answer(response{at: d.txFree, seq: seq})
	}
	switch e.wr.Op {
	case transport.OpLocalInv, transport.OpFastReg, transport.OpBindWindow:
	default:
		q.send(m)
	}
}

// send puts a request on the wire.
func (q *QP) send(m request) {
	f := q.dev.fabric
	p := q.peer
	gone := p == nil || p.state == transport.QPError || p.dead()
	var late int64
	if !gone && m.op != endOfStream { // that one is a reset in the worst case, which needs no retry
		late, gone = q.transmit(&q.cutOff)
	}
	if gone {
		f.buffers.put(m.data)
		q.unanswered()
		return
	}
	// In order: nothing overtakes on a reliable connection.
	m.at = max(p.lastRequest, q.dev.txFree+f.jittered(q.dev.profile.Cost.Latency)+late)
	p.lastRequest = m.at
	p.requests.push(m)
	p.kickResponder()
}

// gather collects the payload of a SEND or WRITE.
func (q *QP) gather(e *sqe) ([]byte, transport.Status) {
	d := q.dev
	if e.wr.Flags&transport.Inline != 0 {
		data := e.inline
		e.inline = nil
		return data, transport.StatusOK
	}
	if uint64(e.length) > d.caps.MaxMsg || q.good(&q.sges, e.sge, e.numSGE, e.length, 0) < e.length {
		return nil, d.profile.BadSource
	}
	data := d.fabric.buffers.get(int(e.length))
	to := data
	for i := range uint64(e.numSGE) {
		s := q.sges.at(e.sge + i)
		if s.Len > 0 {
			d.local(s.LKey, q.pd).read(to[:s.Len], s.Addr)
			to = to[s.Len:]
		}
	}
	return data, transport.StatusOK
}

// good checks the first length bytes of a list of SGEs and returns how many of them
// can be used: those of the SGEs before the first bad one. Empty SGEs are not looked at
// (rxe copy_data, siw_check_sgl_tx).
func (q *QP) good(sges *ring[transport.SGE], first uint64, num uint16, length uint32, need transport.Access) uint32 {
	var n uint32
	for seq := first; seq < first+uint64(num) && n < length; seq++ {
		s := sges.at(seq)
		size := min(s.Len, length-n)
		if size == 0 {
			continue
		}
		if m := q.dev.local(s.LKey, q.pd); m == nil || !m.grants(s.Addr, uint64(size), need) {
			break
		}
		n += size
	}
	return n
}

// scatter writes data to a list of SGEs, as far as they are good, and reports whether
// all of it was written.
func (q *QP) scatter(sges *ring[transport.SGE], first uint64, num uint16, data []byte, need transport.Access) bool {
	var room uint64
	for seq := first; seq < first+uint64(num); seq++ {
		room += uint64(sges.at(seq).Len)
	}
	if room < uint64(len(data)) {
		return false // an atomic's sink
	}
	good := q.good(sges, first, num, uint32(len(data)), need)
	all := good == uint32(len(data))
	data = data[:good]
	for seq := first; len(data) > 0; seq++ {
		s := sges.at(seq)
		if n := min(int(s.Len), len(data)); n > 0 {
			q.dev.local(s.LKey, q.pd).write(s.Addr, data[:n])
			data = data[n:]
		}
	}
	return all
}

// exposeSink notes that a READ request of iWARP shows the sink's key to the
// peer: as an STag, good for whatever the MR grants, until it is invalidated.
func (q *QP) exposeSink(e *sqe) {
	if !q.dev.iwarp || e.numSGE == 0 {
		return
	}
	if m := q.dev.local(q.sges.at(e.sge).LKey, q.pd); m != nil {
		m.exposed = true
	}
}
