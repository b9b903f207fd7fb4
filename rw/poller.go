package rw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rdmarw/transport"
)

// PollerConfig configures a poller.
type PollerConfig struct {
	// Workers is how many goroutines may make calls that block (registering,
	// deregistering, destroying) at a time. They exist only while there is such
	// work. Zero: 2. Negative: none; the calls are made inside Poll, which is what
	// a stepped simulation needs to be deterministic.
	Workers int
	// Now is the clock of deadlines. Nil: time.Now.
	Now func() time.Time
	// Spin is for how long [Poller.Run] polls on, before it sleeps, while completions
	// have been coming that soon; while they take longer it sleeps at once. Zero:
	// 20 µs, about what it takes to sleep and wake. Negative: it always sleeps.
	Spin time.Duration
	// Exclusive promises that one goroutine at a time uses the poller, its endpoints
	// and their contexts and exposures: the one that polls. No lock is taken then,
	// which is what a server with a poller for each core wants. Others may do what
	// waits for a connection ([Endpoint.Connect], Accept, Established), and have the
	// polling goroutine do the rest by [Poller.Call]. What blocks until somebody else
	// has polled (Read, Write, Do, Close) returns [ErrExclusive].
	Exclusive bool
	// Swept, if not nil, is called at the end of each Poll that has given a context to its
	// OnDone, or called what [Poller.Call] was given: by the goroutine that polls, without
	// a lock. Messages come in groups, and this is the place to hand over what they give
	// rise to in groups as well: answers that OnDones have prepared as one chain, which
	// takes one doorbell, and receives by one call.
	Swept func()
}

// mutex locks, but for the exclusive.
type mutex struct {
	sync.Mutex
	off bool
}

// Lock locks.
func (m *mutex) Lock() {
	if !m.off {
		m.Mutex.Lock()
	}
}

// Unlock unlocks.
func (m *mutex) Unlock() {
	if !m.off {
		m.Mutex.Unlock()
	}
}

// Poller owns a completion queue. Any number of endpoints attach to it, and
// everything of theirs happens under its lock: in Poll, and in the calls that
// submit. It has no goroutine of its own: the user polls, or has Run do it.
type Poller struct {
	cq      transport.CQ
	now     func() time.Time
	workers workers
	spin    time.Duration
	swept   func()
	stepped bool        // the devices are for one goroutine
	waiting atomic.Bool // somebody is in Wait, or about to be

	mu        mutex
	entries   int // of the CQ
	reserved  int
	slots     slots
	doneHead  *Context
	doneTail  *Context
	endpoints map[*Endpoint]uint64 // and which one it was
	attached  uint64               // how many there were so far
	sharing   map[uint32]*Endpoint // those with an SRQ, by QP number
	srqs      int
	draining  []*Endpoint
	progress  uint64
	polls     uint64 // calls of Poll
	batch     [64]transport.Completion

	calls []func() // to be made outside of the lock

	// What others leave for the goroutine that polls.
	inboxMu sync.Mutex
	inbox   atomic.Bool // there is something
	ended   []*Endpoint
	refills []*Endpoint
	settled []func() // to be made under the lock
	called  []func()
}

// NewPoller makes a completion queue on a device, for at least entries
// completions: the sum of the send and receive queues of all endpoints that will
// attach.
func NewPoller(dev transport.Device, entries int, cfg PollerConfig) (*Poller, error) {
	if entries < 1 {
		return nil, fmt.Errorf("new poller: %d entries: %w", entries, transport.ErrInvalid)
	}
	cq, err := dev.NewCQ(entries)
	if err != nil {
		return nil, fmt.Errorf("new poller: %w", err)
	}
	p := &Poller{cq: cq, entries: entries, now: cfg.Now, spin: cfg.Spin, swept: cfg.Swept, endpoints: make(map[*Endpoint]uint64), sharing: make(map[uint32]*Endpoint)}
	p.mu.off = cfg.Exclusive
	if s, ok := dev.(transport.Stepped); ok {
		p.stepped = s.Stepped()
	}
	if p.now == nil {
		p.now = time.Now
	}
	p.workers.limit = cfg.Workers
	if cfg.Workers == 0 {
		p.workers.limit = 2
	}
	return p, nil
}

func (p *Poller) attach(ep *Endpoint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.takeRoom(ep.granted.MaxSendWR, ep.granted.MaxRecvWR); err != nil {
		return err
	}
	p.attached++
	p.endpoints[ep] = p.attached
	if ep.srq != nil {
		ep.srq.join(ep)
	}
	return nil
}

// hasRoom tells before a queue pair is made whether there is room for the sizes that are
// asked for: if not, the connection can be tried again. Those granted may be larger.
func (p *Poller) hasRoom(send, recv int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checkRoom(send, recv)
}

func (p *Poller) checkRoom(send, recv int) error {
	if need := p.reserved + send + recv; need > p.entries {
		return fmt.Errorf("queues of %d and %d beside %d others, in a completion queue of %d: %w; NewPoller needs at least %d entries",
			send, recv, p.reserved, p.entries, ErrCQTooSmall, need)
	}
	return nil
}

// takeRoom sets aside as much of the completion queue as queues may fill.
func (p *Poller) takeRoom(send, recv int) error {
	if err := p.checkRoom(send, recv); err != nil {
		return err
	}
	p.reserved += send + recv
	return nil
}

func (p *Poller) detach(ep *Endpoint) {
	p.reserved -= ep.granted.MaxSendWR + ep.granted.MaxRecvWR
	delete(p.endpoints, ep)
}

// Close frees the completion queue. It fails with transport.ErrBusy while
// endpoints are attached, or SRQs are open.
func (p *Poller) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.endpoints); n > 0 {
		return fmt.Errorf("close poller: %d endpoints attached: %w", n, transport.ErrBusy)
	}
	if p.srqs > 0 {
		return fmt.Errorf("close poller: %d SRQs are open: %w", p.srqs, transport.ErrBusy)
	}
	return p.cq.Close()
}

// Poll makes progress and fills done with contexts that are over, in the order
// they ended. Those with an OnDone are given to that instead. It never blocks, and
// may be called by several goroutines.
//
// The error is transport.ErrCQOverrun when completions were lost (all endpoints
// have failed then, and their contexts come back), or another failure of the
// completion queue; what was found before is returned along with it.
func (p *Poller) Poll(done []*Context) (int, error) {
	p.mu.Lock()
	p.polls++
	err := p.advance()
	if p.workers.queuedHere() {
		p.mu.Unlock()
		p.runJobsHere()
		p.mu.Lock()
	}
	called := false
	for len(p.calls) > 0 {
		called = true
		f := p.calls[0]
		p.calls[0], p.calls = nil, p.calls[1:]
		p.mu.Unlock()
		f()
		p.mu.Lock()
	}
	n := 0
	for p.doneHead != nil {
		c := p.doneHead
		f := c.waiter
		if f == nil {
			f = c.OnDone
		}
		if f == nil && n == len(done) {
			break
		}
		p.doneHead = c.next
		c.next, c.state, c.waiter = nil, idle, nil
		if f == nil {
			done[n] = c
			n++
			continue
		}
		called = true
		p.mu.Unlock()
		f(c)
		p.mu.Lock()
	}
	p.mu.Unlock()
	if called && p.swept != nil {
		p.swept()
	}
	return n, err
}

// advance takes in what happened. The caller holds mu.
func (p *Poller) advance() error {
	var failure error
	for {
		n, err := p.cq.Poll(p.batch[:])
		p.progress += uint64(n)
		for i := range p.batch[:n] {
			p.dispatch(&p.batch[i])
		}
		if err != nil {
			failure = err
			p.failAll(err)
			break
		}
		if n < len(p.batch) {
			break
		}
	}
	// After the completions, so that a failed request's own status is known before
	// the connection's end that it led to.
	if p.inbox.Load() {
		p.readInbox()
	}
	if len(p.draining) > 0 {
		p.checkDeadlines()
	}
	return failure
}

// failAll ends all endpoints: completions were lost, so that nobody can say any
// more what is outstanding. It goes by age, for stepped runs to repeat themselves.
func (p *Poller) failAll(err error) {
	byAge := func(a, b *Endpoint) int { return cmp.Compare(p.endpoints[a], p.endpoints[b]) }
	for _, ep := range slices.SortedFunc(maps.Keys(p.endpoints), byAge) {
		ep.fail(err)
		ep.deadline = p.now()
	}
}

func (p *Poller) readInbox() {
	p.inboxMu.Lock()
	ended, refills, settled := p.ended, p.refills, p.settled
	p.calls = append(p.calls, p.called...)
	p.progress += uint64(len(ended) + len(refills) + len(settled) + len(p.called))
	p.ended, p.refills, p.settled, p.called = nil, nil, nil, nil
	p.inbox.Store(false)
	p.inboxMu.Unlock()
	for _, then := range settled {
		then()
	}
	for _, ep := range ended {
		if ep.state != gone {
			ep.connectionOver()
			ep.destroyIfDrained()
		}
	}
	for _, ep := range refills {
		ep.waitsOnPool, ep.waitsOnStaging = false, false
		ep.pump()
	}
}

// checkDeadlines destroys the queue pairs of endpoints whose device did not
// account for everything in time.
func (p *Poller) checkDeadlines() {
	now := p.now()
	keep := p.draining[:0]
	for _, ep := range p.draining {
		switch {
		case ep.state == gone:
		case ep.destroying || now.Before(ep.deadline):
			keep = append(keep, ep)
		case ep.pending > 0:
			keep = append(keep, ep) // a worker will be through soon
		case !ep.idleNow():
			ep.destroy()
			keep = append(keep, ep)
		}
	}
	clear(p.draining[len(keep):])
	p.draining = keep
}

// connectionEnded is called by the transport, possibly with its locks held.
func (p *Poller) connectionEnded(ep *Endpoint) {
	p.leave(func() { p.ended = append(p.ended, ep) })
	if p.waiting.Load() {
		go p.cq.Wake()
	}
}

// poolRefilled is called by the pool, possibly with another poller's lock held.
func (p *Poller) poolRefilled(ep *Endpoint) {
	p.leave(func() { p.refills = append(p.refills, ep) })
	p.wake()
}

// leave puts something into the inbox.
func (p *Poller) leave(put func()) {
	p.inboxMu.Lock()
	put()
	p.inbox.Store(true)
	p.inboxMu.Unlock()
}

// settle has f called under the poller's lock: here, or by the one who needs none.
func (p *Poller) settle(f func()) {
	if p.mu.off {
		p.leave(func() { p.settled = append(p.settled, f) })
	} else {
		p.mu.Lock()
		f()
		p.mu.Unlock()
	}
	p.wake()
}

// Call has f called by the goroutine that polls, in Poll, where it may do what the
// poller's endpoints can. It never blocks, and may be called from any goroutine.
func (p *Poller) Call(f func()) {
	p.leave(func() { p.called = append(p.called, f) })
	p.wake()
}

func (p *Poller) pushDone(c *Context) {
	c.state, c.next = done, nil
	if p.doneHead == nil {
		p.doneHead = c
	} else {
		p.doneTail.next = c
	}
	p.doneTail = c
	p.progress++
}

func (p *Poller) wake() {
	if p.waiting.Load() {
		p.cq.Wake()
	}
}

// Wait parks until Poll may find something. It returns nil then (or earlier,
// without reason), or ctx's error. One goroutine at a time.
func (p *Poller) Wait(ctx context.Context) error {
	p.waiting.Store(true)
	defer p.waiting.Store(false)
	p.mu.Lock()
	err := p.cq.Arm()
	if err == nil {
		err = p.advance() // a completion from before Arm makes no event
	}
	found := p.doneHead != nil || p.workers.queuedHere() || p.inbox.Load() || len(p.calls) > 0
	deadline, limited := p.nextDeadline()
	p.mu.Unlock()
	if err != nil || found {
		return err
	}
	if !limited {
		return p.cq.Wait(ctx)
	}
	short, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := p.cq.Wait(short); err != nil && ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func (p *Poller) nextDeadline() (deadline time.Time, limited bool) {
	for _, ep := range p.draining {
		if !ep.destroying && !ep.idleNow() && (!limited || ep.deadline.Before(deadline)) {
			deadline, limited = ep.deadline, true
		}
	}
	if limited {
		// On the real clock, whatever clock the deadlines are of; and never at once,
		// while a worker keeps the endpoint from being destroyed.
		deadline = time.Now().Add(max(deadline.Sub(p.now()), time.Millisecond))
	}
	return deadline, limited
}

// runDown goes on until all contexts are back, after completions were lost or can't be
// waited for, which cause says.
func (p *Poller) runDown(ctx context.Context, cause error, buf []*Context, handle func(*Context)) {
	for ctx.Err() == nil {
		n, _ := p.Poll(buf)
		for _, c := range buf[:n] {
			if handle != nil {
				handle(c)
			}
		}
		p.mu.Lock()
		p.failAll(cause) // those that were made meanwhile, too
		over := p.doneHead == nil
		for ep := range p.endpoints {
			over = over && ep.idleNow() && !ep.destroying
		}
		p.mu.Unlock()
		if over {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Run polls until ctx ends, and returns ctx's error or the first failure of the
// completion queue: then all endpoints have failed, and what was under way is back, but
// for the receives of SRQs. Contexts without an OnDone are given to handle; nil drops them. handle runs where the
// polling is done, and so must not wait for anything that polling brings (Read, Write,
// Do, Close). End ctx only when the endpoints are closed: closing them needs it. It
// sleeps while there is nothing to do; see PollerConfig.Spin.
func (p *Poller) Run(ctx context.Context, handle func(*Context)) error {
	var buf [64]*Context
	var seen uint64
	patience, start := newPatience(p.spin), time.Now()
	for ctx.Err() == nil {
		n, err := p.Poll(buf[:])
		for i, c := range buf[:n] {
			buf[i] = nil
			if handle != nil {
				handle(c)
			}
		}
		if err != nil {
			p.runDown(ctx, err, buf[:], handle)
			return err
		}
		p.mu.Lock()
		moved := p.progress != seen
		seen = p.progress
		p.mu.Unlock()
		if moved {
			if patience.idle {
				patience.found(time.Since(start))
			}
			continue
		}
		now := time.Since(start)
		if patience.again(now) {
			if patience.gives(now) {
				runtime.Gosched()
			}
			continue
		}
		if err := p.Wait(ctx); err != nil {
			if ctx.Err() == nil {
				p.mu.Lock()
				p.failAll(err)
				p.mu.Unlock()
				p.runDown(ctx, err, buf[:], handle)
			}
			return err
		}
	}
	return ctx.Err()
}
