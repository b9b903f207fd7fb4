package target

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target/internal/core"
)

// queue is one connection of a host, and what is its own. All but what is said to be
// otherwise happens in the goroutine of its poller.
type queue struct {
	target *Target
	port   *port
	host   string // its address
	born   time.Time

	id      uint16
	entries int // as its connection asked for

	ep     *rw.Endpoint
	poller *poller
	room   int // completions claimed of the poller
	arena  *arena
	handed bool              // the arena may be another queue's already
	region *transport.Region // the arena's
	bytes  []byte            // the region's
	sends  bool              // SEND_WITH_INV can be posted
	slots  []slot
	out    atomic.Int32 // slots that are not home
	home   chan struct{}

	memory  *memory
	base    uint64 // offset of the data memory in the region
	waiting list   // commands that wait for memory
	held    list   // asynchronous event requests
	shut    bool   // nothing waits or is held any more

	// association is set when the queue's Connect has succeeded; joined belongs to it.
	association atomic.Pointer[association]
	joined      *core.Joined
	head        atomic.Uint64 // of the submission queue: responses so far

	// What gathers during a sweep.
	gathers               bool
	listening, responding []*slot
	contexts              []*rw.Context // while they are posted

	answers   answers
	executing atomic.Int32 // commands from their arrival to the end of their response
	undecided atomic.Int32 // those that may still change something
	draining  atomic.Bool  // what arrives stays unanswered
	failed    atomic.Bool
	once      sync.Once
	begun     bool  // its end, where nothing runs by itself
	cause     error // set before failed is seen by whoever takes the queue down
}

// Sizes of a slot's messages in bytes.
const (
	commandArea  = nvme.CommandLen
	responseArea = nvme.CompletionLen
)

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// newQueue makes a queue, with its receives posted. On error conn is the caller's.
func newQueue(p *port, conn transport.Conn, r *nvme.ConnRequest, entries int) (_ *queue, err error) {
	t := p.target
	q := &queue{
		target: t, port: p, born: t.cfg.Now(), host: conn.RemoteAddr(),
		id: r.QueueID, entries: entries, sends: p.dev.Caps().SendWithInv, home: make(chan struct{}),
	}
	transfer, inCapsule, data := t.cfg.MaxTransfer, t.cfg.InCapsule, t.cfg.queueMemory(entries)
	if q.id == 0 {
		transfer, inCapsule, data = adminMemory, 0, adminMemory
	}
	sizes, err := p.sizes(entries, transfer)
	if err != nil {
		return nil, err
	}
	n := sizes.MaxRecvWR // twice the entries, unless the device has less
	messages := roundUp(n*(commandArea+responseArea), page)
	q.base = uint64(messages + n*inCapsule)
	q.memory = newMemory(data)

	var undo []func() error
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				err = errors.Join(err, undo[i]())
			}
		}
	}()
	q.arena, err = p.newArena(arenaKind{q.id == 0, entries, p.stayWith(q.host)}, int(q.base)+data, registrations(&sizes, transfer, p.dev.Caps()))
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() error { return p.drop(q.arena, true) })
	q.region, q.bytes = q.arena.region, q.arena.region.Bytes()
	if q.arena.slots == nil {
		q.arena.slots = newSlots(q.region, n, messages, inCapsule)
	}
	q.slots = q.arena.slots
	q.room = sizes.CQEntries
	q.poller, err = p.assign(q.room)
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() error { p.resign(q.poller, q.room); return nil })
	caps := transport.QueueCaps{MaxSendWR: sizes.MaxSendWR, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1}
	if inCapsule > 0 {
		caps.MaxRecvSGE = 2
	}
	q.ep, err = q.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: q.arena.pool, QueueCaps: caps, Policy: p.policy, Owner: q.host})
	if err != nil {
		return nil, err
	}
	for i := range q.slots {
		q.slots[i].serve(q)
	}
	q.out.Store(int32(n))
	q.answers.limit = max(n-entries, 1)
	q.buffers(n)

	t.mu.Lock()
	closing := t.closing
	if !closing {
		t.queues = append(t.queues, q)
	}
	t.mu.Unlock()
	p.mu.Lock()
	p.list[q] = struct{}{}
	p.mu.Unlock()
	if closing {
		q.draining.Store(true)
	}
	listening := make([]*slot, n)
	for i := range q.slots {
		listening[i] = &q.slots[i]
	}
	q.listen(listening)
	return q, nil
}

// acceptance is what the queue's connection is accepted with.
func (q *queue) acceptance() transport.ConnParams {
	private := make([]byte, nvme.ConnAcceptLen)
	(&nvme.ConnAccept{RecvQueueSize: uint16(q.entries)}).Encode(private)
	return transport.ConnParams{PrivateData: private, ResponderResources: -1}
}

// fail ends the queue, once. It may be called from any goroutine, and doesn't wait.
func (q *queue) fail(cause error) {
	q.once.Do(func() {
		q.failed.Store(true)
		q.cause = cause
		if t := q.target; t.cfg.Step != nil {
			t.endMu.Lock()
			t.ending = append(t.ending, q)
			t.endMu.Unlock()
			return
		}
		go func() {
			q.beginEnd()
			if q.endsWell() {
				q.linger()
			}
			q.ep.StartClose()
			<-q.ep.Closed()
			<-q.home
			q.end()
		}()
	})
}

// beginEnd has everything of the queue come back, from the device and the backends.
func (q *queue) beginEnd() {
	q.ep.Fail(q.cause)
	q.leave()
	q.poller.Call(q.shutDown)
}

// endsWell reports whether the host, or the target's user, has ended the queue.
func (q *queue) endsWell() bool {
	return errors.Is(q.cause, transport.ErrDisconnected) || errors.Is(q.cause, ErrClosed) || errors.Is(q.cause, ErrAdminQueue)
}

// lingers is for how long a queue keeps its queue pair when it has ended well. Taking that down
// needs CPUs for a while, and a host that resets its controller comes back at once: what it
// waits for goes first.
const lingers = 100 * time.Millisecond

// linger hands on what the next queue can use, and waits for a quieter moment, unless there are
// many queues.
func (q *queue) linger() {
	late := time.NewTimer(lingers)
	defer late.Stop()
	select {
	case <-q.home: // the queue pair has failed, and nothing is left to do for it
		q.handed = q.port.offer(q.arena)
	case <-late.C:
		return
	case <-q.port.ending:
		return
	}
	if q.target.crowded() {
		return
	}
	select {
	case <-late.C:
	case <-q.port.ending:
	}
}

// end frees what the queue has, when everything is back.
func (q *queue) end() {
	err := q.ep.Close()
	switch {
	case q.handed:
		err = errors.Join(err, q.port.drop(q.arena, false))
	case err == nil:
		err = q.port.retire(q.arena, q.endsWell())
	default:
		err = errors.Join(err, q.port.drop(q.arena, true))
	}
	q.port.resign(q.poller, q.room)
	q.port.mu.Lock()
	delete(q.port.list, q)
	q.port.mu.Unlock()
	switch {
	case err != nil:
		q.logger().Error("connection ended, and something is left of it", "cause", q.cause, "err", err)
	case q.endsWell():
		q.note("connection ended", "cause", q.cause)
	default:
		q.logger().Warn("connection failed", "cause", q.cause)
	}
	t := q.target
	t.mu.Lock()
	t.queues = slices.DeleteFunc(t.queues, func(other *queue) bool { return other == q })
	t.mu.Unlock()
	q.port.queues.Done()
}

// note logs what is as it should be: an admin queue stands for its host's coming and going,
// and the others come and go with it.
func (q *queue) note(what string, args ...any) {
	level := slog.LevelDebug
	if q.id == 0 {
		level = slog.LevelInfo
	}
	if q.target.log.Enabled(context.Background(), level) {
		q.logger().Log(context.Background(), level, what, args...)
	}
}

// logger says whose queue it is. It is made when there is something to say: a host that connects
// doesn't wait for it.
func (q *queue) logger() *slog.Logger { return q.target.log.With("host", q.host, "qid", q.id) }

// leave takes the queue out of its controller. If it was the admin queue, the others
// end with it.
func (q *queue) leave() {
	t := q.target
	var others []*queue
	t.mu.Lock()
	if a := q.association.Load(); a != nil {
		t.directory.Leave(q.joined)
		if q.id == 0 {
			a.ready.Store(false)
			for _, other := range t.queues {
				if other != q && other.association.Load() == a {
					others = append(others, other)
				}
			}
		}
	}
	t.mu.Unlock()
	for _, other := range others {
		other.fail(ErrAdminQueue)
	}
}

// shutDown sends home what waits for something that won't come any more.
func (q *queue) shutDown() {
	q.shut = true
	for s := q.waiting.pop(); s != nil; s = q.waiting.pop() {
		s.executed()
		s.goHome()
	}
	for s := q.held.pop(); s != nil; s = q.held.pop() {
		s.goHome()
	}
}

// list is a queue of slots.
type list struct{ head, tail *slot }

func (l *list) push(s *slot) {
	s.next = nil
	if l.head == nil {
		l.head = s
	} else {
		l.tail.next = s
	}
	l.tail = s
}

func (l *list) pop() *slot {
	s := l.head
	if s != nil {
		l.head, s.next = s.next, nil
	}
	return s
}

// take takes the slot of a command out of the list, or returns nil.
func (l *list) take(cid uint16) (found *slot) {
	var keep list
	for s := l.pop(); s != nil; s = l.pop() {
		if found == nil && s.cmd.CID == cid {
			found = s
		} else {
			keep.push(s)
		}
	}
	*l = keep
	return found
}
