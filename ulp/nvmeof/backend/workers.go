package backend

import (
	"sync"

	"golang.org/x/sys/unix"
)

// workers are goroutines that carry out requests that block, in the order in which
// they were put. They are started as there is need for them, and stay.
type workers struct {
	do func(*Request) error

	mu      sync.Mutex
	more    sync.Cond
	queue   queue
	idle    int // workers that wait, less those that were woken
	running int
	limit   int
	stopped bool
	ended   sync.WaitGroup
}

func (w *workers) start(limit int, do func(*Request) error) {
	w.limit, w.do = limit, do
	w.more.L = &w.mu
}

// put hands a request over. It reports false after stop.
func (w *workers) put(r *Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	w.queue.push(r)
	switch {
	case w.idle > 0:
		w.idle--
		w.more.Signal()
	case w.running < w.limit:
		w.running++
		w.ended.Add(1)
		go w.run()
	}
	return true
}

func (w *workers) run() {
	defer w.ended.Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		r := w.queue.pop()
		for ; r == nil; r = w.queue.pop() {
			if w.stopped {
				return
			}
			w.idle++
			w.more.Wait()
		}
		w.mu.Unlock()
		r.Done(r, w.do(r))
		w.mu.Lock()
	}
}

// stop waits until everything that was put is over.
func (w *workers) stop() {
	w.mu.Lock()
	w.stopped = true
	w.more.Broadcast()
	w.mu.Unlock()
	w.ended.Wait()
}

// zeroPages is memory with zeros in it, aligned for direct I/O.
var zeroPages = sync.OnceValue(func() []byte {
	b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return make([]byte, 4096) // fine without direct I/O
	}
	return b
})
