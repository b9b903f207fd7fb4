package sim

import (
	"encoding/binary"
	"time"

	"rdmarw/transport"
)

// rnrDelay is how long a requester waits between tries when there is no receive: as package
// ibverbs sets the RNR timer of queue pairs.
const rnrDelay = 640 * time.Microsecond

// forever is the RNR retry count that means "without end".
const forever = 7

// kickResponder lets the responder take in what has arrived.
func (q *QP) kickResponder() {
	if q.requestPending || q.parked || q.requests.len() == 0 {
		return
	}
	q.requestPending = true
	q.dev.fabric.schedule(evRequest, q, q.requests.front().at)
}

// runResponder carries out the next request that came in.
func (q *QP) runResponder() {
	if q.state != transport.QPReady || q.dead() {
		q.dropInbound()
		return
	}
	if q.parked || q.requests.len() == 0 {
		return
	}
	if q.requests.front().op == endOfStream {
		if q.responses.len() > 0 {
			q.parked = true // the answers on their way were sent before it
			return
		}
		q.requests.pop()
		q.conn.end(transport.ErrDisconnected, false)
		return
	}
	if f := q.dev.fabric; f.happens(f.faults.Chances.Death) {
		q.conn.kill()
		return
	}
	if q.requests.front().op.IsSend() && q.receives().wrs.len() == 0 {
		if q.dev.iwarp {
			// RFC 5041: no buffer for the message is the end of the stream.
			m := q.requests.pop()
			q.dev.fabric.buffers.put(m.data)
			q.refuse(&m, transport.StatusRNRExceeded)
			return
		}
		q.notReady()
		return
	}
	q.rnrTries = 0
	m := q.requests.pop()
	q.carryOut(&m)
	q.dev.fabric.buffers.put(m.data)
	if q.dead() { // the request was the machine's end
		q.dropInbound()
		if q.peer != nil {
			q.peer.unanswered()
		}
		return
	}
	q.kickResponder()
}

func (q *QP) receives() *recvQueue {
	if q.srq != nil {
		return &q.srq.recvQueue
	}
	return &q.rq
}

// notReady holds the first message until there is a receive, or until its
// sender has tried often enough. Retries without end are no events at all.
func (q *QP) notReady() {
	p := q.peer
	q.parked = true
	if p == nil || p.rnrRetry == forever {
		if q.srq != nil {
			q.srq.waiting = append(q.srq.waiting, q)
		}
		return
	}
	if q.rnrTries == p.rnrRetry {
		q.rnrTries = 0
		q.parked = false
		m := q.requests.pop()
		q.dev.fabric.buffers.put(m.data)
		q.reply(response{seq: m.seq, status: transport.StatusRNRExceeded})
		// What was sent behind it is dropped: the requester is in error.
		q.dropInbound()
		return
	}
	q.rnrTries++
	q.rnrTimer = q.dev.fabric.after(rnrDelay, func() {
		q.rnrTimer = timer{}
		if !q.closed && q.parked {
			q.parked = false
			q.kickResponder()
		}
	})
}

// carryOut runs a request at the responder.
func (q *QP) carryOut(m *request) {
	d := q.dev
	f := d.fabric
	if f.log != nil {
		f.tracef(d, "qp %d in %v addr %#x key %06x.%02x len %d", q.num, m.op, m.addr, uint32(m.key)>>8, uint8(m.key), m.length)
	}
	if f.timeline != nil {
		f.timeline.mark(q, "in "+m.op.String())
	}
	switch m.op {
	case transport.OpRead, transport.OpReadWithInv:
		q.carryOutRead(m)
	case transport.OpCompareSwap, transport.OpFetchAdd:
		q.carryOutAtomic(m)
	case transport.OpWrite, transport.OpWriteWithImm:
		if !q.place(m) {
			if m.op == transport.OpWriteWithImm { // its receive was taken already
				q.completeReceive(q.receives().take(), m, transport.StatusRemoteAccess)
			}
			q.refuse(m, transport.StatusRemoteAccess)
			return
		}
		d.stats.BytesIn += uint64(m.length)
		if m.op == transport.OpWriteWithImm {
			q.completeReceive(q.receives().take(), m, transport.StatusOK)
		}
		q.acknowledge(m)
	default:
		q.carryOutSend(m)
	}
}

// place writes an incoming WRITE to memory: all of it or nothing, or, on
// devices that check as the segments come, as many segments as are good. No byte
// outside of what the key grants is touched. A WRITE of nothing needs no key.
func (q *QP) place(m *request) bool {
	if m.length == 0 {
		return true
	}
	mr, w := q.remote(m.key, transport.RemoteWrite)
	if mr == nil {
		return false
	}
	segment := uint32(q.dev.profile.Segment)
	if segment == 0 {
		segment = m.length
	}
	for off := uint32(0); off < m.length; off += segment {
		n := min(segment, m.length-off)
		addr := m.addr + uint64(off)
		if !reaches(mr, w, addr, uint64(n)) {
			return false
		}
		mr.write(addr, m.data[off:off+n])
	}
	return true
}

func (q *QP) carryOutRead(m *request) {
	d := q.dev
	var data []byte
	if m.length > 0 {
		mr, w := q.remote(m.key, transport.RemoteRead)
		if mr == nil || !reaches(mr, w, m.addr, uint64(m.length)) {
			q.refuse(m, transport.StatusRemoteAccess)
			return
		}
		data = d.fabric.buffers.get(int(m.length))
		mr.read(data, m.addr)
	}
	d.stats.BytesOut += uint64(m.length)
	d.txFree = max(d.txFree, d.fabric.now) + int64(d.profile.Cost.bytes(uint64(m.length)))
	q.reply(response{seq: m.seq, data: data})
}

func (q *QP) carryOutAtomic(m *request) {
	if m.addr%8 != 0 {
		q.refuse(m, transport.StatusRemoteInvalid)
		return
	}
	mr, w := q.remote(m.key, transport.RemoteAtomic)
	if mr == nil || !reaches(mr, w, m.addr, 8) {
		q.refuse(m, transport.StatusRemoteAccess)
		return
	}
	old := q.dev.fabric.buffers.get(8)
	mr.read(old, m.addr)
	// In the byte order of the host, which is what verbs promise.
	value := binary.NativeEndian.Uint64(old)
	switch {
	case m.op == transport.OpFetchAdd:
		value += m.compare
	case value == m.compare:
		value = m.swap
	}
	var after [8]byte
	binary.NativeEndian.PutUint64(after[:], value)
	mr.write(m.addr, after[:])
	q.reply(response{seq: m.seq, data: old})
}

func (q *QP) carryOutSend(m *request) {
	d := q.dev
	rq := q.receives()
	r := rq.take()
	var room uint64
	for i := range uint64(r.num) {
		room += uint64(rq.sges.at(r.sge + i).Len)
	}
	if uint64(m.length) > room {
		q.completeReceive(r, m, d.profile.LongReceive)
		q.refuse(m, d.profile.LongSend)
		return
	}
	if !q.scatter(&rq.sges, r.sge, r.num, m.data, transport.LocalWrite) {
		q.completeReceive(r, m, d.profile.BadReceive)
		q.refuse(m, transport.StatusRemoteOp)
		return
	}
	d.stats.BytesIn += uint64(m.length)
	if m.op == transport.OpSendWithInv {
		if !q.invalidate(uint32(m.key), &d.caps.RemoteInv) {
			if q.dead() {
				return
			}
			q.completeReceive(r, m, transport.StatusRemoteInvalid)
			if d.iwarp {
				q.refuse(m, transport.StatusRemoteInvalid)
				return
			}
			// A class J error of the InfiniBand responder: there is no NAK for it, so
			// the peer's retries run out.
			d.event(transport.EventQPAccess, q.num, "invalidation refused")
			if d.profile.AcksBadInv {
				q.acknowledge(m)
			} else if q.peer != nil {
				q.peer.unanswered()
			}
			q.toError()
			return
		}
		d.stats.RemoteInvs++
	}
	q.completeReceive(r, m, transport.StatusOK)
	q.acknowledge(m)
}

// completeReceive completes a receive that was taken for a message.
func (q *QP) completeReceive(r recvWR, m *request, status transport.Status) {
	e := cqe{slot: q.slot, gen: q.gen, srq: q.srq, receive: true}
	e.Cookie, e.QPN, e.Status = r.cookie, q.num, status
	if status == transport.StatusOK {
		e.Flags = transport.Receive
		e.ByteLen = m.length
		switch m.op {
		case transport.OpSendWithImm, transport.OpWriteWithImm:
			e.Flags |= transport.WithImm
			e.Imm = m.imm
		case transport.OpSendWithInv:
			if q.dev.caps.CompletionReportsInv {
				e.Flags |= transport.WithInv
				e.InvKey = m.key
			}
		}
	}
	q.recvCQ.push(e)
}

// acknowledge tells the peer that a request was carried out. IWARP doesn't: TCP
// has it, is all that a completion there says.
func (q *QP) acknowledge(m *request) {
	if !q.dev.iwarp {
		q.reply(response{seq: m.seq})
	}
}

// refuse answers a request with an error and ends this queue pair. On
// InfiniBand that is a NAK, on iWARP a TERMINATE, which says nothing about
// which request it was but to the READ that waits.
func (q *QP) refuse(m *request, status transport.Status) {
	d := q.dev
	d.event(transport.EventQPAccess, q.num, status.Error())
	if d.fabric.log != nil {
		d.fabric.tracef(d, "qp %d refused %v: status %d", q.num, m.op, status)
	}
	if !d.iwarp {
		q.reply(response{seq: m.seq, status: status})
		q.toError()
		return
	}
	// The peer learns of the end by the TERMINATE and not before it.
	q.reply(response{seq: m.seq, status: status, terminate: true})
	if q.enterError() {
		q.conn.end(transport.ErrDisconnected, false)
	}
}

// reply sends an answer to the peer's completer.
func (q *QP) reply(r response) {
	p := q.peer
	if p == nil {
		q.dev.fabric.buffers.put(r.data)
		return
	}
	f := q.dev.fabric
	late, lost := p.transmit(&p.unheard)
	if lost {
		f.buffers.put(r.data)
		p.unanswered()
		return
	}
	at := f.now
	if r.data != nil {
		at = max(at, q.dev.txFree)
	}
	r.at = at + f.jittered(q.dev.profile.Cost.Latency) + late
	p.answer(r)
}
