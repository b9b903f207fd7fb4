package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// queue is one NVMe queue: a connection, and a number of exchanges of a command for
// its answer.
type queue struct {
	assoc  *association
	id     uint16
	ep     *rw.Endpoint
	region *transport.Region // capsules, then answers
	depth  int
	// inCapsule is how many bytes of data fit into a command capsule.
	inCapsule int
	table     []exchange
	answers   []answer
	free      chan int // exchanges that are idle

	// mu is held from when a CID is given out until its capsule was handed over: the
	// answer to it, however early, finds everything in place.
	mu    sync.Mutex
	slots slots
}

// exchange is one command on its way, and what it takes.
type exchange struct {
	q        *queue
	i        int
	req      *Request
	send     rw.Context
	exposure rw.Exposure
	capsule  []transport.Piece
	deadline time.Time

	// The following are under the queue's lock.
	active    bool
	exposed   bool // and not being revoked yet
	sending   bool // the capsule, and with it in-capsule data, is the device's
	answering bool // the answer is due
	revoking  bool
	got       nvme.Completion
	err       error
}

// answer is a receive.
type answer struct {
	q     *queue
	recv  rw.Context
	piece [1]transport.Piece
	bytes []byte
}

// answerStride keeps answers in cache lines of their own.
const answerStride = 64

// queueSizes are what the connection of a queue of some depth takes.
func queueSizes(caps *transport.Caps, depth, most int) (rw.Sizes, error) {
	return rw.Size(rw.Workload{Sends: depth, Recvs: depth, Exposures: depth, Bytes: uint64(most)}, caps, rw.Policy{}, capsuleSGEs(caps))
}

// capsuleSGEs is how many pieces a capsule may have: the command, and in-capsule data.
func capsuleSGEs(caps *transport.Caps) int { return min(caps.MaxSendSGE, 16) }

// newQueue connects a queue. From when it has an endpoint the association takes it
// down, whether it comes up or not.
func newQueue(ctx context.Context, a *association, id uint16, depth, inCapsule int) (*queue, error) {
	cfg := &a.c.cfg
	q := &queue{
		assoc: a, id: id, depth: depth, inCapsule: inCapsule, slots: newSlots(depth),
		table: make([]exchange, depth), answers: make([]answer, depth), free: make(chan int, depth),
	}
	var err error
	q.region, err = cfg.Device.NewRegion(transport.RegionConfig{
		Size: depth * (nvme.CommandLen + answerStride), Access: transport.LocalWrite,
	})
	if err != nil {
		return nil, err
	}
	if err := a.c.pool.PD().AddRegion(q.region); err != nil {
		return nil, errors.Join(err, q.region.Close())
	}
	if err := q.newEndpoint(ctx); err != nil {
		return nil, errors.Join(err, q.release())
	}
	for i := range q.table {
		q.table[i].init(q, i)
	}
	if err := a.add(q); err != nil { // from here on it may be aborted
		return nil, err
	}
	for i := range q.answers {
		if err := q.answers[i].init(q, i); err != nil {
			return nil, err
		}
	}
	accepted, err := q.establish(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect queue %d: %w", id, rejected(err))
	}
	for i := range min(depth, accepted) {
		q.free <- i
	}
	return q, nil
}

func (q *queue) newEndpoint(ctx context.Context) error {
	c := q.assoc.c
	caps := c.cfg.Device.Caps()
	sizes, err := queueSizes(caps, q.depth, c.cfg.MaxTransfer)
	if err != nil {
		return err
	}
	conn, err := c.cfg.Device.Resolve(ctx, c.addr)
	if err != nil {
		return err
	}
	q.ep, err = q.assoc.poller.NewEndpoint(conn, rw.EndpointConfig{
		Pool: c.pool, Owner: fmt.Sprintf("%s queue %d", c.addr, q.id),
		QueueCaps: transport.QueueCaps{
			MaxSendWR: sizes.MaxSendWR, MaxRecvWR: sizes.MaxRecvWR, MaxSendSGE: capsuleSGEs(caps), MaxRecvSGE: 1,
		},
	})
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	return nil
}

// establish makes the connection, and returns how many capsules the controller is
// ready to receive at a time.
func (q *queue) establish(ctx context.Context) (accepted int, err error) {
	request := nvme.ConnRequest{QueueID: q.id, RecvQueueSize: uint16(q.depth), SendQueueSize: uint16(q.depth)}
	private := make([]byte, nvme.ConnRequestLen)
	request.Encode(private)
	// The host never READs; it answers as many of the controller's READs as it can.
	params := transport.ConnParams{PrivateData: private, InitiatorDepth: -1}
	if err := q.ep.Conn().Connect(params); err != nil {
		return 0, err
	}
	info, err := q.assoc.established(ctx, q.ep)
	if err != nil {
		return 0, err
	}
	var accept nvme.ConnAccept
	if err := accept.Decode(info.PrivateData); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if accept.RecvQueueSize == 0 {
		return 0, fmt.Errorf("a controller that takes no command: %w", ErrProtocol)
	}
	return int(accept.RecvQueueSize), nil
}

// release frees the queue's memory.
func (q *queue) release() error {
	return errors.Join(q.assoc.c.pool.PD().RemoveRegion(q.region), q.region.Close())
}

func (e *exchange) init(q *queue, i int) {
	e.q, e.i = q, i
	e.capsule = make([]transport.Piece, 1, capsuleSGEs(q.assoc.c.cfg.Device.Caps()))
	e.capsule[0] = q.region.Piece(uint64(i*nvme.CommandLen), nvme.CommandLen)
	e.send.OnDone = e.sent
	e.exposure.Revoke.OnDone = e.revoked
}

func (w *answer) init(q *queue, i int) error {
	w.q = q
	at := q.depth*nvme.CommandLen + i*answerStride
	w.piece[0] = q.region.Piece(uint64(at), nvme.CompletionLen)
	w.bytes = q.region.Bytes()[at : at+nvme.CompletionLen]
	w.recv.OnDone = w.received
	return w.post()
}

func (w *answer) post() error {
	if err := w.q.ep.PrepareRecv(&w.recv, w.piece[:]); err != nil {
		return err
	}
	return w.q.ep.PostRecv(&w.recv)
}

// start begins an exchange, with number i from q.free, of which the caller is rid. If
// it returns an error, nothing has begun.
func (q *queue) start(i int, r *Request, timeout time.Duration) error {
	e := &q.table[i]
	if err := q.assoc.enter(); err != nil {
		q.free <- i
		return err
	}
	e.req, e.err, e.exposed = r, nil, false
	err := e.describe()
	q.mu.Lock()
	if err == nil {
		r.cmd.CID = q.slots.begin(i)
		r.cmd.Encode(q.region.Bytes()[i*nvme.CommandLen:])
		r.state.Store(requestSubmitted)
		e.active, e.sending, e.answering = true, true, true
		e.deadline = q.assoc.c.cfg.Now().Add(timeout)
		if e.exposed {
			// One chain: the controller can't hear of a key before it is valid.
			err = q.ep.Submit(&e.exposure.Grant, &e.send)
		} else {
			err = q.ep.Submit(&e.send)
		}
		if err != nil {
			q.slots.cancel(i)
		}
	}
	if err == nil {
		q.mu.Unlock()
		return nil
	}
	e.sending, e.answering = false, false
	lost := q.ep.Err()
	if lost != nil {
		err = lostBy(lost)
	}
	if e.exposed { // not over before that is taken back
		e.active = true
		r.state.Store(requestSubmitted)
		e.err = err
		e.revoke()
		q.mu.Unlock()
		e.settle()
		err = nil
	} else {
		e.active = false
		r.state.Store(requestPrepared)
		q.mu.Unlock()
		q.free <- i
		q.assoc.leave()
	}
	if lost != nil {
		q.assoc.fail(lost)
	}
	return err
}

// describe puts the data into the capsule, or exposes it, and says so in the command.
func (e *exchange) describe() error {
	q, r := e.q, e.req
	e.capsule = e.capsule[:1]
	toTarget := r.cmd.Direction() == nvme.HostToTarget
	counts := &q.assoc.c.counters
	switch {
	case r.bytes == 0:
		r.cmd.SGL = nvme.Descriptor{Type: nvme.SGLKeyed}
	case toTarget && int(r.bytes) <= q.inCapsule && len(r.data) < cap(e.capsule):
		r.cmd.SGL = nvme.Descriptor{Type: nvme.SGLOffset, Len: r.bytes}
		e.capsule = append(e.capsule, r.data...)
		counts.inCapsule.Add(1)
	default:
		if err := q.ep.Expose(&e.exposure, r.data, exposedFor(toTarget)); err != nil {
			return err
		}
		e.exposed = true
		counts.exposed.Add(1)
		remotes := e.exposure.Remotes()
		if len(remotes) != 1 {
			return fmt.Errorf("memory that takes %d keys, a command has room for one: %w", len(remotes), ErrTooLarge)
		}
		r.cmd.SGL = nvme.Descriptor{Addr: remotes[0].Addr, Len: remotes[0].Len, Key: uint32(remotes[0].Key), Type: nvme.SGLKeyed}
		if e.exposure.OfferInvalidation() {
			r.cmd.SGL.Type = nvme.SGLKeyedInvalidate
		}
	}
	return q.ep.PrepareSend(&e.send, rw.Message{Local: e.capsule})
}

// sent: the capsule has gone out, or can't.
func (e *exchange) sent(c *rw.Context) {
	e.q.mu.Lock()
	e.sending = false
	e.q.mu.Unlock()
	if err := c.Err(); err != nil {
		e.q.assoc.fail(err)
	}
	e.settle()
}

// received: an answer is there.
func (w *answer) received(c *rw.Context) {
	q := w.q
	e, err := w.match(c)
	if err != nil {
		q.assoc.fail(err)
	}
	if e != nil {
		e.settle()
	}
}

// match finds the exchange that was answered and readies the receive for the next
// answer, before the exchange's place is free for another.
func (w *answer) match(c *rw.Context) (*exchange, error) {
	q := w.q
	if err := c.Err(); err != nil {
		return nil, err
	}
	got := c.Received()
	var completion nvme.Completion
	if err := completion.Decode(w.bytes[:got.Len]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.slots.answer(completion.CID)
	if !ok {
		return nil, fmt.Errorf("%w: queue %d: an answer to command %#x, which isn't under way", ErrProtocol, q.id, completion.CID)
	}
	e := &q.table[i]
	e.got = completion
	e.answering = false
	var err error
	switch got.Invalidated {
	case nil:
	case &e.exposure:
		q.assoc.c.counters.invalidated.Add(1)
	default:
		err = fmt.Errorf("%w: queue %d: the answer to one command invalidated the key of another", ErrProtocol, q.id)
		e.err = err
	}
	e.revoke()
	if err == nil {
		err = w.post()
	}
	return e, err
}

// revoke shuts the memory that the controller was given; where it has done so itself
// as it was asked, nothing is posted. The caller holds the lock, and calls settle.
func (e *exchange) revoke() {
	if !e.exposed {
		return
	}
	e.exposed = false
	// A revocation is never refused, but for reasons that leave nothing to revoke.
	e.revoking = e.q.ep.Submit(&e.exposure.Revoke) == nil
}

func (e *exchange) revoked(c *rw.Context) {
	e.q.mu.Lock()
	e.revoking = false
	e.q.mu.Unlock()
	if err := c.Err(); err != nil {
		e.q.assoc.fail(err)
	}
	e.settle()
}

// settle ends the exchange if nothing of it is under way any more.
func (e *exchange) settle() {
	q := e.q
	q.mu.Lock()
	if !e.active || e.sending || e.answering || e.revoking {
		q.mu.Unlock()
		return
	}
	e.active = false
	r, got, err := e.req, e.got, e.err
	e.req = nil
	q.mu.Unlock()

	r.result = got.Result
	counts := &q.assoc.c.counters
	switch {
	case err != nil:
		r.err, r.result = err, 0
	case !got.Status.OK():
		r.err = &CommandError{Command: r.name, Status: got.Status, Result: got.Result}
		counts.commands.Add(1)
		counts.failed.Add(1)
	default:
		counts.commands.Add(1)
		if r.cmd.Direction() == nvme.HostToTarget {
			counts.written.Add(uint64(r.bytes))
		} else {
			counts.read.Add(uint64(r.bytes))
		}
	}
	r.state.Store(requestIdle)
	q.free <- e.i
	if r.OnDone != nil {
		r.OnDone(r)
	}
	q.assoc.leave()
}

// abort ends all exchanges that wait for an answer: there will be none.
func (q *queue) abort(cause error) {
	q.ep.Fail(cause)
	for i := range q.table {
		e := &q.table[i]
		q.mu.Lock()
		if e.active && e.answering {
			q.slots.cancel(i)
			e.answering = false
			e.err = cause
			e.revoke()
		}
		q.mu.Unlock()
		e.settle()
	}
}

// overdue reports whether a command should have been answered by now.
func (q *queue) overdue(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.table {
		if e := &q.table[i]; e.answering && now.After(e.deadline) {
			return true
		}
	}
	return false
}
