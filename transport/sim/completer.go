package sim

import "rdmarw/transport"

// response is what a requester gets to know of a request: from the peer's
// responder, or from its own device if nothing of the peer is waited for.
type response struct {
	at        int64
	seq       uint64
	data      []byte
	status    transport.Status
	terminate bool // iWARP: the end of the stream, with the reason
	delayed   bool // by the fault plan, already
}

// answer enters a response, to be seen in order.
func (q *QP) answer(r response) {
	r.at = max(r.at, q.lastResponse)
	q.lastResponse = r.at
	q.responses.push(r)
	q.kickCompleter()
}

func (q *QP) kickCompleter() {
	if q.responsePending || q.responses.len() == 0 {
		return
	}
	q.responsePending = true
	q.dev.fabric.schedule(evResponse, q, q.responses.front().at)
}

// runCompleter takes in the next response.
func (q *QP) runCompleter() {
	if q.responses.len() == 0 || q.dead() {
		return
	}
	f := q.dev.fabric
	if q.state == transport.QPReady {
		if q.delayed(q.responses.front()) {
			return
		}
		r := q.responses.pop()
		q.takeIn(&r)
		f.buffers.put(r.data)
	} else {
		r := q.responses.pop() // too late
		f.buffers.put(r.data)
	}
	q.kickCompleter()
	q.kickRequester()
	if q.dev.iwarp && q.parked && q.responses.len() == 0 {
		q.parked = false // for the end of the stream
		q.kickResponder()
	}
}

// delayed asks the fault plan.
func (q *QP) delayed(r *response) bool {
	f := q.dev.fabric
	if r.delayed || r.terminate || r.seq < q.comp {
		return false
	}
	d := q.plannedDelay(r.seq, &q.sq.at(r.seq).wr)
	if d <= 0 {
		return false
	}
	r.delayed = true
	q.responsePending = true
	f.after(d, func() {
		if !q.closed {
			q.responsePending = false
			q.runCompleter()
		}
	})
	return true
}

// takeIn ends the request that a response is about.
func (q *QP) takeIn(r *response) {
	if r.terminate {
		q.terminated(r)
		return
	}
	if r.seq < q.comp {
		return
	}
	e := q.sq.at(r.seq)
	status := r.status
	if status == transport.StatusOK {
		switch {
		case e.wr.Op.IsRead():
			status = q.land(e, r.data)
		case e.wr.Op.IsAtomic():
			if !q.scatter(&q.sges, e.sge, e.numSGE, r.data, transport.LocalWrite) {
				status = q.dev.profile.BadSink
			}
		}
	}
	q.done(r.seq, status)
	q.complete()
}

// land puts a READ response into its sink. The sink's key is looked up now, and
// no sooner: a registration that was invalidated meanwhile refuses it.
func (q *QP) land(e *sqe, data []byte) transport.Status {
	d := q.dev
	need := transport.LocalWrite
	if d.caps.ReadSinkNeedsRemoteWrite {
		need |= transport.RemoteWrite
	}
	if !q.scatter(&q.sges, e.sge, e.numSGE, data, need) {
		return d.profile.BadSink
	}
	d.stats.BytesIn += uint64(len(data))
	if e.wr.Op == transport.OpReadWithInv {
		if m := d.local(q.sges.at(e.sge).LKey, q.pd); m != nil {
			m.invalidate()
			d.stats.LocalInvs++
		}
	}
	return transport.StatusOK
}

// terminated ends the connection for a request that the peer refused. Only a
// READ could still be waiting for an answer; a refused WRITE or SEND completed
// with success long ago.
func (q *QP) terminated(r *response) {
	if r.seq >= q.comp && q.sq.at(r.seq).wr.Op.IsRead() {
		if status := q.dev.profile.RefusedRead; status != transport.StatusFlushed {
			q.done(r.seq, status)
			q.complete()
		}
	}
	q.fatal("TERMINATE received: " + r.status.Error())
}

// done notes how a request ended; it completes when those before it have.
func (q *QP) done(seq uint64, status transport.Status) {
	e := q.sq.at(seq)
	if e.state == sqeDone {
		return
	}
	if e.deep {
		e.deep = false
		q.reads--
	}
	e.state, e.status = sqeDone, status
}

// complete completes what has ended, in order of posting. The first error ends
// the queue pair.
func (q *QP) complete() {
	for q.comp < q.next {
		e := q.sq.at(q.comp)
		if e.state != sqeDone {
			return
		}
		q.retire(e, e.status)
		if e.status != transport.StatusOK {
			q.dev.event(transport.EventQPFatal, q.num, e.status.Error())
			q.toError()
			return
		}
	}
}

// retire completes the oldest request. Errors and flushes complete even when
// unsignaled.
func (q *QP) retire(e *sqe, status transport.Status) {
	q.dev.fabric.timeline.ended(q, q.comp, status)
	q.comp++
	q.sges.head = e.sge + uint64(e.numSGE)
	q.dev.fabric.buffers.put(e.inline)
	e.inline = nil
	if status == transport.StatusOK && e.wr.Flags&transport.Signaled == 0 {
		return
	}
	c := cqe{slot: q.slot, gen: q.gen, retire: q.comp}
	c.Cookie, c.QPN, c.Status = e.wr.Cookie, q.num, status
	q.sendCQ.push(c)
}

func (q *QP) scheduleFlush() {
	if q.flushPending || q.dead() || q.closed {
		return
	}
	q.flushPending = true
	q.dev.fabric.schedule(evFlush, q, q.dev.fabric.now)
}

// flush completes everything that is queued in the error state. A request that
// had its own error already keeps it.
func (q *QP) flush() {
	if q.dead() {
		return
	}
	end := q.flushTo
	if q.dev.profile.FlushesLate {
		end = q.sq.tail
	}
	for q.comp < end {
		e := q.sq.at(q.comp)
		status := transport.StatusFlushed
		if e.state == sqeDone && e.status != transport.StatusOK {
			status = e.status
		}
		q.retire(e, status)
	}
	for q.rq.wrs.len() > 0 {
		r := q.rq.take()
		c := cqe{slot: q.slot, gen: q.gen, receive: true}
		c.Cookie, c.QPN, c.Status = r.cookie, q.num, transport.StatusFlushed
		q.recvCQ.push(c)
	}
}
