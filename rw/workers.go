package rw

import (
	"sync"
	"sync/atomic"
)

// workers runs the calls that may block: a bounded number of goroutines that
// exist while there is work, or (limit < 0) the goroutine that polls.
type workers struct {
	limit  int
	queued atomic.Int32 // jobs that nobody has begun

	mu      sync.Mutex
	jobs    []job
	running int
}

// job is a call that may block, made without the poller's lock, and what becomes of
// its outcome, under it.
type job struct{ call, then func() }

// work has a worker call one function, and then another under the poller's lock. It
// never blocks.
func (p *Poller) work(call, then func()) {
	w := &p.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs = append(w.jobs, job{call, then})
	w.queued.Add(1)
	if w.running < w.limit {
		w.running++
		go p.runJobs(p.settle)
	}
}

func (w *workers) next() (j job, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) == 0 {
		w.running--
		return job{}, false
	}
	w.queued.Add(-1)
	j = w.jobs[0]
	w.jobs[0] = job{}
	w.jobs = w.jobs[1:]
	return j, true
}

func (p *Poller) runJobs(settle func(then func())) {
	for j, ok := p.workers.next(); ok; j, ok = p.workers.next() {
		j.call()
		settle(j.then)
	}
}

// runJobsHere does the jobs in the caller, where there are no goroutines for them.
func (p *Poller) runJobsHere() {
	w := &p.workers
	w.mu.Lock()
	w.running++
	w.mu.Unlock()
	p.runJobs(func(then func()) {
		p.mu.Lock()
		then()
		p.mu.Unlock()
	})
}

// queuedHere reports whether jobs wait for runHere.
func (w *workers) queuedHere() bool { return w.limit < 0 && w.queued.Load() > 0 }
