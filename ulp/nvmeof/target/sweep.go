package target

import (
	"fmt"

	"rdmarw/rw"
	"rdmarw/ulp/nvmeof/backend"
)

// sweep is what the messages give rise to that one Poll has found. They come in groups: while
// a few commands are carried out, a busy host sends the next. So requests gather until all of
// the messages have been looked at, and each backend is called once; responses and receives
// gather until then, and each queue rings its doorbell once for each.
//
// It belongs to the goroutine that polls.
type sweep struct {
	batches []batch
	bytes   int      // of data, of the requests
	queues  []*queue // whose responses and receives gather
}

// batch are requests to one backend.
type batch struct {
	sub       *subsystem
	namespace int
	requests  []*backend.Request
}

// sweepBytes is with how much data gathering ends early: where that is what takes the time,
// a response isn't kept waiting for the next command's data.
const sweepBytes = 64 << 10

// request adds a request to the namespace's backend.
func (w *sweep) request(sub *subsystem, namespace int, r *backend.Request) {
	at := 0
	for at < len(w.batches) && (w.batches[at].sub != sub || w.batches[at].namespace != namespace) {
		at++
	}
	if at == len(w.batches) {
		w.batches = append(w.batches, batch{sub: sub, namespace: namespace})
	}
	b := &w.batches[at]
	b.requests = append(b.requests, r)
	if w.bytes += len(r.Data); w.bytes >= sweepBytes {
		w.end()
	}
}

// end hands everything over. What is over at once is answered along with the rest.
func (w *sweep) end() {
	w.bytes = 0
	for i := range w.batches {
		if b := &w.batches[i]; len(b.requests) > 0 {
			backend.SubmitAll(b.sub.backends[b.namespace], b.requests)
			b.requests = b.requests[:0]
		}
	}
	for i, q := range w.queues {
		w.queues[i] = nil
		q.flush()
	}
	w.queues = w.queues[:0]
}

// gather has the queue's responses and receives gather until the sweep ends.
func (q *queue) gather() {
	if !q.gathers {
		q.gathers = true
		q.answers.hold()
		w := &q.poller.sweep
		w.queues = append(w.queues, q)
	}
}

// flush posts what has gathered: receives first, for they have to be there when the host
// answers the responses.
func (q *queue) flush() {
	q.gathers = false
	if len(q.listening) > 0 {
		q.listen(q.listening)
		q.listening = q.listening[:0]
	}
	for {
		q.responding = q.answers.next(q.responding[:0])
		if len(q.responding) == 0 {
			return
		}
		q.contexts = q.contexts[:0]
		for _, s := range q.responding {
			q.contexts = append(q.contexts, s.chain...)
		}
		if err := q.ep.Submit(q.contexts...); err != nil {
			q.fail(err)
			for _, s := range q.responding {
				q.answers.leave()
				s.executed()
				s.goHome()
			}
		}
	}
}

// listen posts the receives of slots. Everything that answering takes is there.
func (q *queue) listen(slots []*slot) {
	var err error
	q.contexts = q.contexts[:0]
	for _, s := range slots {
		if err == nil {
			err = q.ep.PrepareRecv(&s.recv, s.recvPieces)
		}
		q.contexts = append(q.contexts, &s.recv)
	}
	if err == nil {
		err = q.ep.PostRecv(q.contexts...)
	}
	if err != nil {
		q.fail(fmt.Errorf("post receives: %w", err))
		for _, s := range slots {
			s.goHome()
		}
	}
}

// buffers are what gathers, for n slots.
func (q *queue) buffers(n int) {
	q.listening, q.responding = make([]*slot, 0, n), make([]*slot, 0, n)
	q.contexts = make([]*rw.Context, 0, 2*n)
}
