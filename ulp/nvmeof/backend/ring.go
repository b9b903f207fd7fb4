package backend

import (
	"sync"

	"rdmarw/ulp/nvmeof/backend/internal/uring"
)

// ring carries reads, writes and flushes out by io_uring. What is over when its
// submission returns, as it mostly is on fast devices, is reported right there: no other
// thread has a part in it. A goroutine waits for the rest.
type ring struct {
	file *File

	mu    sync.Mutex
	ring  *uring.Ring
	reqs  []*Request // by tag
	free  []uint32   // tags
	ended chan struct{}
	stops bool
}

// newRing makes one, or returns nil where the kernel has no io_uring.
func newRing(f *File, n int) *ring {
	u, err := uring.New(n)
	if err != nil {
		return nil
	}
	q := &ring{file: f, ring: u, reqs: make([]*Request, u.Capacity()), ended: make(chan struct{})}
	for i := range q.reqs {
		q.free = append(q.free, uint32(i))
	}
	go q.reap()
	return q
}

// submit starts a request. It reports false if it can't: workers can.
func (q *ring) submit(r *Request, at int64) bool {
	q.mu.Lock()
	n := len(q.free)
	if n == 0 || q.stops {
		q.mu.Unlock()
		return false
	}
	tag := q.free[n-1]
	q.ring.Quiet(true) // what is over at once needs no event
	var err error
	switch r.Op {
	case Read:
		err = q.ring.Read(q.file.fd, r.Data, at, uint64(tag))
	case Write:
		err = q.ring.Write(q.file.fd, r.Data, at, r.FUA && durable, uint64(tag))
	default:
		err = q.ring.Sync(q.file.fd, uint64(tag))
	}
	if err == nil {
		q.free = q.free[:n-1]
		q.reqs[tag] = r
	}
	over := q.poll()
	q.mu.Unlock()
	q.finish(over)
	return err == nil
}

// poll returns the requests that are over, linked by next, and has events made for those
// that are left. The caller holds mu.
func (q *ring) poll() (over *Request) {
	for {
		tag, res, ok := q.ring.Poll()
		if !ok {
			if len(q.free) == len(q.reqs) {
				return over
			}
			q.ring.Quiet(false)
			if tag, res, ok = q.ring.Poll(); !ok { // one from just before makes no event
				return over
			}
		}
		r := q.reqs[tag]
		q.reqs[tag] = nil
		q.free = append(q.free, uint32(tag))
		r.whole = res == int32(len(r.Data)) && r.Op != Flush || r.Op == Flush && res == 0
		r.next, over = over, r
	}
}

// finish reports requests that are over. What isn't done, or only in part, is done again by
// a worker, which says what is wrong.
func (q *ring) finish(over *Request) {
	for over != nil {
		r := over
		over, r.next = r.next, nil
		switch {
		case r.whole:
			r.Done(r, nil)
		case !q.file.pool.put(r):
			r.Done(r, ErrClosed)
		}
	}
}

// reap reports what is over later.
func (q *ring) reap() {
	defer close(q.ended)
	for {
		err := q.ring.Event()
		q.mu.Lock()
		over := q.poll()
		last := q.stops && len(q.free) == len(q.reqs)
		q.mu.Unlock()
		q.finish(over)
		if last || err != nil {
			return
		}
	}
}

// stop waits for what is under way, and frees the ring.
func (q *ring) stop() error {
	q.mu.Lock()
	stopped := q.stops
	q.stops = true
	q.mu.Unlock()
	if stopped {
		return nil
	}
	if err := q.ring.Wake(); err != nil {
		return err
	}
	<-q.ended
	return q.ring.Close()
}
