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

// newRing makes one for up to n requests, or returns nil where the kernel has no io_uring.
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

// push has a request go with the next enter. It reports false if that is not for the ring
// to do, or there is no room. The caller holds mu, as for enter, poll and back.
func (q *ring) push(r *Request) bool {
	f, n := q.file, len(q.free)
	if n == 0 || q.stops || f.geometry.Check(r) != nil {
		return false
	}
	tag, at := q.free[n-1], int64(r.LBA<<f.geometry.BlockShift)
	switch {
	case r.Op == Read && len(r.Data) <= uring.MaxTransfer:
		q.ring.Read(f.fd, r.Data, at, uint64(tag))
	case r.Op == Write && len(r.Data) <= uring.MaxTransfer:
		q.ring.Write(f.fd, r.Data, at, r.FUA && durable, uint64(tag))
	case r.Op == Flush && durable:
		q.ring.Sync(f.fd, uint64(tag))
	default:
		return false
	}
	q.free, q.reqs[tag] = q.free[:n-1], r
	return true
}

// enter hands what was pushed to the kernel.
func (q *ring) enter(back *queue) {
	q.ring.Quiet(true) // what is over at once needs no event
	for range q.ring.Enter() {
		// Those that were not taken are the last that were pushed: their tags are still
		// there, behind the free ones.
		n := len(q.free)
		q.back(q.free[:n+1][n], false, back)
	}
}

// poll takes back what is over, and has events made for what is left.
func (q *ring) poll(back *queue) {
	for {
		tag, res, ok := q.ring.Poll()
		if !ok {
			if len(q.free) == len(q.reqs) {
				return
			}
			q.ring.Quiet(false)
			if tag, res, ok = q.ring.Poll(); !ok { // one from just before makes no event
				return
			}
		}
		want := int32(0)
		if r := q.reqs[tag]; r.Op != Flush {
			want = int32(len(r.Data))
		}
		q.back(uint32(tag), res == want, back)
	}
}

// back takes a request back from the ring. What isn't done, or only in part, is done again
// by a worker, which says what is wrong.
func (q *ring) back(tag uint32, done bool, back *queue) {
	r := q.reqs[tag]
	q.reqs[tag] = nil
	q.free = append(q.free, tag)
	r.done = done
	// It is put here, under mu, where stop waits for it: Close lets the worker finish then.
	if done || !q.file.pool.put(r) {
		back.push(r)
	}
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
		last := q.stops && len(q.free) == len(q.reqs)
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
