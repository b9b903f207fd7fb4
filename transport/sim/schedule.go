package sim

import (
	"time"
)

// eventKind tells what an event makes run.
type eventKind uint8

const (
	evSend     eventKind = iota // a queue pair's requester: next work request
	evRequest                   // its responder: next incoming request
	evResponse                  // its completer: next incoming response
	evFlush                     // its queues are flushed
	evCall                      // a timer or a message of the CM
)

// event is a thing that is going to happen: a value without pointers, so that
// the queue costs the garbage collector nothing.
//
// Each engine of a queue pair has at most one event in the queue, and takes
// its messages in the order in which they were sent. So whatever choice the
// seed makes among events, it is one that real devices could have made.
type event struct {
	at   int64  // virtual nanoseconds
	tie  uint32 // the seed's choice among events of one time
	seq  uint32 // and if that is equal too, the order of scheduling
	slot uint32 // of the queue pair, or of the call
	gen  uint32 // of the slot's content
	kind eventKind
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.tie != o.tie {
		return e.tie < o.tie
	}
	return int32(e.seq-o.seq) < 0
}

// eventHeap is a binary heap by [event.before].
type eventHeap []event

func (h *eventHeap) push(e event) {
	*h = append(*h, e)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = e
}

func (h *eventHeap) pop() event {
	q := *h
	top := q[0]
	last := q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	if len(q) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(&q[child]) {
			child++
		}
		if !q[child].before(&last) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = last
	return top
}

// call is a function that is to run later. A stopped call costs no time.
type call struct {
	fn      func()
	gen     uint32
	stopped bool
}

// timer names a call, to stop it. The zero value names none.
type timer struct {
	f    *Fabric
	slot uint32
	gen  uint32
}

func (t *timer) stop() {
	if t.f != nil && t.f.calls[t.slot].gen == t.gen {
		t.f.calls[t.slot].stopped = true
	}
	*t = timer{}
}

func (t *timer) running() bool { return t.f != nil }

// schedule enters an event of a queue pair at a virtual time.
func (f *Fabric) schedule(kind eventKind, q *QP, at int64) {
	f.enter(event{at: at, slot: q.slot, gen: q.gen, kind: kind})
}

func (f *Fabric) enter(e event) {
	e.at = max(e.at, f.now)
	e.tie = uint32(f.rng.Uint64())
	e.seq = f.seq
	f.seq++
	f.events.push(e)
	f.rouse()
}

// deliver runs fn after the latency of a CM message.
func (f *Fabric) deliver(latency time.Duration, fn func()) {
	slot := f.newCall(fn)
	f.enter(event{at: f.now + f.jittered(latency), slot: slot, gen: f.calls[slot].gen, kind: evCall})
}

// after runs fn when a time has passed. In stepped mode this is virtual time,
// as everything; in free-running mode, where messages take no time at all, it
// is real time.
func (f *Fabric) after(d time.Duration, fn func()) timer {
	slot := f.newCall(fn)
	gen := f.calls[slot].gen
	e := event{at: f.now + int64(d), slot: slot, gen: gen, kind: evCall}
	if f.stepped {
		f.enter(e)
	} else {
		e.at = f.clock() + int64(d)
		e.seq = f.seq
		f.seq++
		f.timers.push(e)
		f.rouse()
	}
	return timer{f: f, slot: slot, gen: gen}
}

func (f *Fabric) newCall(fn func()) uint32 {
	if n := len(f.freeCalls); n > 0 {
		slot := f.freeCalls[n-1]
		f.freeCalls = f.freeCalls[:n-1]
		f.calls[slot].fn = fn
		f.calls[slot].stopped = false
		return slot
	}
	f.calls = append(f.calls, call{fn: fn})
	return uint32(len(f.calls) - 1)
}

func (f *Fabric) takeCall(slot uint32) call {
	c := f.calls[slot]
	f.calls[slot].fn = nil
	f.calls[slot].gen++
	f.freeCalls = append(f.freeCalls, slot)
	return c
}

// jittered is a latency with the seed's deviation of up to half of it.
func (f *Fabric) jittered(latency time.Duration) int64 {
	return int64(latency) + int64(f.rng.Uint64()%uint64(latency/2+1))
}

// step runs the next event and reports whether there was one.
func (f *Fabric) step() bool {
	for len(f.events) > 0 {
		e := f.events.pop()
		if f.run(&e) {
			return true
		}
	}
	return false
}

// run runs an event, unless what it is about is gone.
func (f *Fabric) run(e *event) bool {
	if e.kind == evCall {
		c := f.takeCall(e.slot)
		if c.stopped {
			return false
		}
		f.now = max(f.now, e.at)
		f.ran++
		c.fn()
		return true
	}
	q := f.qps[e.slot]
	if q == nil || q.gen != e.gen {
		return false
	}
	f.now = max(f.now, e.at)
	f.ran++
	switch e.kind {
	case evSend:
		q.sendPending = false
		q.runRequester()
	case evRequest:
		q.requestPending = false
		q.runResponder()
	case evResponse:
		q.responsePending = false
		q.runCompleter()
	case evFlush:
		q.flushPending = false
		q.flush()
	}
	return true
}
