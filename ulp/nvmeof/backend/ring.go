package backend

import (
	"sync"

	"rdmarw/ulp/nvmeof/backend/internal/uring"
)

// ring carries reads, writes and flushes out by io_uring. What is over when its
// submission returns, as it mostly is on fast devices, is reported right there: no other
// thread has a part in it. A goroutine waits for the rest.
type ring struct {
	file  *File
	limit int // of a part, in bytes

	mu    sync.Mutex
	ring  *uring.Ring
	parts []part   // under way, by tag
	free  []uint32 // tags
	ended chan struct{}
	stops bool
}

// newRing makes one for up to n parts of requests, each of up to limit bytes (zero: as
// many as the kernel takes). It returns nil where the kernel has no io_uring.
func newRing(f *File, n, limit int) *ring {
	u, err := uring.New(n)
	if err != nil {
		return nil
	}
	if limit == 0 {
		limit = uring.MaxTransfer
	}
	q := &ring{file: f, limit: limit, ring: u, parts: make([]part, u.Capacity()), ended: make(chan struct{})}
	for i := range q.parts {
		q.free = append(q.free, uint32(i))
	}
	go q.reap()
	return q
}

// submit starts requests, all that the ring takes by one system call. Workers get the
// others.
func (q *ring) submit(rs []*Request) {
	var back queue
	q.mu.Lock()
	for _, r := range rs {
		if r.done = false; !q.push(r) {
			back.push(r)
		}
	}
	if !q.stops {
		q.enter(&back)
		q.poll(&back)
	}
	q.mu.Unlock()
	q.finish(&back)
}

// finish reports requests that are done, and has workers do those that aren't.
func (q *ring) finish(back *queue) {
	for r := back.pop(); r != nil; r = back.pop() {
		if r.done {
			r.Done(r, nil)
		} else {
			q.file.work(r)
		}
	}
}

// reap reports what is over later.
func (q *ring) reap() {
	defer close(q.ended)
	for {
		err := q.ring.Event()
		var back queue
		q.mu.Lock()
		q.poll(&back)
		last := q.stops && len(q.free) == len(q.parts)
		q.mu.Unlock()
		q.finish(&back)
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
