package target

import (
	"bytes"
	"errors"
	"fmt"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target/internal/core"
)

// slot is a receive, and all that its command needs. It goes round: listening, executing,
// responding, listening again; until its queue fails, when it goes home.
//
// It stays with the memory that its messages lie in, and serves one queue after the other.
// A slot belongs to its queue's poller, but for one stretch: from the submission of a
// backend request to the submission of the response it belongs to the backend, whose
// goroutine does both.
type slot struct {
	q *queue

	recv, read, write, send rw.Context
	request                 backend.Request

	command, response []byte // 64 and 16 bytes of the region
	capsule           []byte // in-capsule data behind the command
	recvList          [2]transport.Piece
	recvPieces        []transport.Piece // recvList, or the half of it
	sendList          [1]transport.Piece
	dataList          [1]transport.Piece
	remote            [1]transport.Remote
	contexts          [2]*rw.Context
	chain             []*rw.Context // the response: contexts, or the second of them

	cmd  nvme.Command
	plan core.Plan
	part part   // of the queue's memory
	data []byte // the command's data, in that or in the capsule
	done uint32 // ranges of a Dataset Management
	next *slot

	undecided bool
}

// newSlots makes n slots. In the region come their commands, their responses, and at an
// offset, in-capsule data.
func newSlots(region *transport.Region, n, capsules, inCapsule int) []slot {
	slots := make([]slot, n)
	for i := range slots {
		slots[i].init(region, uint64(i*commandArea), uint64(n*commandArea+i*responseArea), uint64(capsules+i*inCapsule), inCapsule)
	}
	return slots
}

// init says where the slot's messages are in the region.
func (s *slot) init(region *transport.Region, command, response, capsule uint64, inCapsule int) {
	memory := region.Bytes()
	s.command = memory[command : command+commandArea]
	s.response = memory[response : response+responseArea]
	s.recvList[0] = region.Piece(command, commandArea)
	s.recvPieces = s.recvList[:1]
	if inCapsule > 0 {
		// The data gets a page of its own, so that a backend can take it from there.
		s.capsule = memory[capsule : capsule+uint64(inCapsule)]
		s.recvList[1] = region.Piece(capsule, uint32(inCapsule))
		s.recvPieces = s.recvList[:]
	}
	s.sendList[0] = region.Piece(response, responseArea)
	s.contexts = [2]*rw.Context{&s.write, &s.send}
	s.recv.OnDone = func(*rw.Context) { s.received() }
	s.read.OnDone = func(*rw.Context) { s.fetched(s.read.Err()) }
	s.send.OnDone = func(*rw.Context) { s.responded() }
	s.request.Done = func(_ *backend.Request, err error) { s.carriedOut(err) }
}

// serve begins to work for a queue.
func (s *slot) serve(q *queue) { s.q, s.part, s.data, s.next, s.undecided = q, part{}, nil, nil, false }

// goHome ends the slot's service. Nothing of it may be touched afterwards: if it was the
// last, the next queue may have it at once.
func (s *slot) goHome() {
	if q := s.q; q.out.Add(-1) == 0 {
		close(q.home)
	}
}

// executed notes that the command is over.
func (s *slot) executed() {
	s.decided()
	s.q.executing.Add(-1)
}

// decided notes that nothing but the answer is left of the command.
func (s *slot) decided() {
	if s.undecided {
		s.undecided = false
		s.q.undecided.Add(-1)
	}
}

// received is called when a capsule has arrived.
func (s *slot) received() {
	q := s.q
	q.gather()
	if err := s.recv.Err(); err != nil {
		q.fail(err)
		s.goHome()
		return
	}
	n := s.recv.Received().Len
	if n < nvme.CommandLen {
		q.fail(fmt.Errorf("%w: %d bytes", ErrCapsule, n))
	}
	s.undecided = true
	q.undecided.Add(1)
	q.executing.Add(1) // first, so that whoever has set draining waits for it, or it is seen here
	if q.draining.Load() || q.failed.Load() {
		s.executed()
		s.goHome()
		return
	}
	if err := s.cmd.Decode(s.command); err != nil { // it can't be
		q.fail(err)
	}
	s.plan = s.decide(n - nvme.CommandLen)
	s.start()
}

// decide plans the command.
func (s *slot) decide(inCapsule int) core.Plan {
	q := s.q
	a := q.association.Load()
	switch {
	case a == nil:
		q.target.mu.Lock()
		defer q.target.mu.Unlock()
		return q.target.directory.PlanConnect(&s.cmd, inCapsule)
	case q.id != 0 && s.cmd.Opcode != nvme.Fabrics:
		if !a.heard.Load() {
			a.heard.Store(true)
		}
		if !a.ready.Load() {
			return core.Plan{Status: nvme.CommandSequence | nvme.DNR}
		}
		return core.PlanIO(a.sub.Subsystem, q.target.directory.Limits(), &s.cmd, inCapsule)
	}
	return s.decideAdmin(a)
}

// start goes on with the plan: with memory, if the command takes some.
func (s *slot) start() {
	switch s.plan.Action {
	case core.Answer:
		if s.plan.Status != nvme.Success {
			s.q.target.refused.Add(1)
		}
		s.answer(s.plan.Status)
		return
	case core.Hold, core.AbortHeld:
		s.hold()
		return
	}
	if s.needs() == 0 || s.q.waiting.head == nil && s.takeMemory() {
		s.proceed()
		return
	}
	if s.q.shut {
		s.executed()
		s.goHome()
		return
	}
	s.q.target.waits.Add(1)
	s.q.waiting.push(s)
}

// needs is how much memory the command takes in bytes: for its data, unless that is in
// the capsule, and once more for what a Compare compares with.
func (s *slot) needs() uint32 {
	n := s.plan.Data.Len
	if s.plan.Action == core.CompareBlocks {
		n *= 2
	}
	if s.plan.Data.InCapsule {
		n -= s.plan.Data.Len
	}
	return n
}

// takeMemory takes it, or reports that there isn't enough.
func (s *slot) takeMemory() (ok bool) {
	s.part, ok = s.q.memory.take(s.needs())
	return ok
}

// giveMemory takes it back, and lets those go on who have waited for it.
func (s *slot) giveMemory() {
	q := s.q
	if s.part.size == 0 {
		return
	}
	q.memory.give(s.part)
	s.part = part{}
	for q.waiting.head != nil && q.waiting.head.takeMemory() {
		q.waiting.pop().proceed()
	}
}

// proceed begins the command's data phase, or what comes in place of one.
func (s *slot) proceed() {
	q, d := s.q, &s.plan.Data
	switch {
	case d.Len == 0:
		s.execute()
		return
	case d.InCapsule:
		s.data = s.capsule[d.Addr : d.Addr+uint64(d.Len)]
		if d.Addr%page != 0 {
			// Where a backend that does direct I/O can't take it from. No host does this.
			copy(s.capsule, s.data)
			s.data = s.capsule[:d.Len]
		}
		s.execute()
		return
	}
	at := q.base + uint64(s.part.at)
	s.data = q.bytes[at : at+uint64(d.Len) : at+uint64(s.part.size)]
	s.dataList[0] = q.region.Piece(at, d.Len)
	s.remote[0] = transport.Remote{Addr: d.Addr, Len: d.Len, Key: transport.RKey(d.Key)}
	switch s.plan.Action {
	case core.ReadBlocks, core.Fill: // to the host, later
		s.execute()
		return
	}
	err := q.ep.Prepare(&s.read, rw.Transfer{Op: rw.Read, Local: s.dataList[:], Remote: s.remote[:]})
	if err != nil {
		// What a host can say in a descriptor was judged; but it costs only an answer.
		s.answer(nvme.DataTransferError | nvme.DNR)
		return
	}
	s.submit(&s.read)
}

// submit hands contexts over. If the queue has failed, it is the slot's end, and false is
// returned.
func (s *slot) submit(chain ...*rw.Context) bool {
	err := s.q.ep.Submit(chain...)
	if err != nil {
		s.q.fail(err)
		s.executed()
		s.goHome()
	}
	return err == nil
}

// fetched is called when the data of a command has been READ.
func (s *slot) fetched(err error) {
	s.q.gather()
	if err != nil {
		s.q.fail(err)
		s.executed()
		s.goHome()
		return
	}
	s.execute()
}

// execute does what the command is about. Its data is there, if it is the host's.
func (s *slot) execute() {
	if s.stale() {
		s.answer(nvme.AbortRequested)
		return
	}
	r := &s.request
	r.LBA, r.Blocks, r.FUA, r.Deallocate, r.Data = s.plan.LBA, s.plan.Blocks, s.plan.FUA, s.plan.Deallocate, s.data
	switch s.plan.Action {
	case core.Connect:
		s.connect()
		return
	case core.Fill:
		s.fill()
		return
	case core.ReadBlocks:
		r.Op = backend.Read
	case core.WriteBlocks:
		r.Op = backend.Write
	case core.CompareBlocks:
		r.Op = backend.Read
		at := s.q.base + uint64(s.part.at)
		r.Data = s.q.bytes[at+uint64(s.part.size-s.plan.Data.Len) : at+uint64(s.part.size)]
	case core.ZeroBlocks:
		r.Op, r.Data = backend.WriteZeroes, nil
	case core.Flush:
		r.Op, r.Data = backend.Flush, nil
	case core.Discard:
		s.done = 0
		s.discardNext()
		return
	}
	s.q.poller.sweep.request(s.q.association.Load().sub, s.plan.Namespace, r)
}

// stale reports whether the controller was reset or shut down since the command came: then
// it isn't begun any more.
func (s *slot) stale() bool {
	a := s.q.association.Load()
	return s.q.id != 0 && a != nil && !a.ready.Load()
}

func (s *slot) backend() backend.Backend {
	return s.q.association.Load().sub.backends[s.plan.Namespace]
}

func (s *slot) counters() *counters {
	return &s.q.association.Load().sub.counters[s.plan.Namespace]
}

// discardNext goes on with the next range of a Dataset Management.
func (s *slot) discardNext() {
	r := &s.request
	ns := &s.q.association.Load().sub.Namespaces[s.plan.Namespace]
	for s.done < s.plan.Blocks {
		one, status := core.RangeAt(ns, s.data, int(s.done))
		s.done++
		if status != nvme.Success {
			s.answer(status)
			return
		}
		if one.Blocks > 0 {
			r.Op, r.Data, r.LBA, r.Blocks = backend.Discard, nil, one.LBA, one.Blocks
			s.backend().Submit(r)
			return
		}
	}
	s.counters().others.Add(1)
	s.answer(nvme.Success)
}

// carriedOut is called by the backend when it is through with the slot's request.
func (s *slot) carriedOut(err error) {
	count := s.counters()
	if err != nil {
		count.failures.Add(1)
		s.q.logger().Warn("backend failed", "namespace", s.cmd.NSID, "op", s.request.Op, "lba", s.request.LBA, "blocks", s.request.Blocks, "err", err)
		s.answer(statusOf(err))
		return
	}
	switch s.plan.Action {
	case core.ReadBlocks:
		count.reads.Add(1)
		count.bytesRead.Add(uint64(len(s.data)))
	case core.WriteBlocks:
		count.writes.Add(1)
		count.bytesWritten.Add(uint64(len(s.data)))
	case core.Flush:
		count.flushes.Add(1)
	case core.Discard:
		s.discardNext()
		return
	case core.CompareBlocks:
		count.others.Add(1)
		if !bytes.Equal(s.data, s.request.Data) {
			s.answer(nvme.CompareFailure | nvme.DNR)
			return
		}
	default:
		count.others.Add(1)
	}
	s.answer(nvme.Success)
}

// statusOf says what a backend's error is to a host. The host may try again.
func statusOf(err error) nvme.Status {
	switch {
	case errors.Is(err, backend.ErrRange):
		return nvme.LBAOutOfRange | nvme.DNR
	case errors.Is(err, backend.ErrReadOnly):
		return nvme.NamespaceProtected | nvme.DNR
	case errors.Is(err, backend.ErrFull):
		return nvme.CapacityExceeded | nvme.DNR
	case errors.Is(err, backend.ErrRead):
		return nvme.UnrecoveredRead
	case errors.Is(err, backend.ErrWrite):
		return nvme.WriteFault
	}
	return nvme.InternalError
}

// answer sends the response, behind the data if there is some for the host: one chain,
// one doorbell, and the response can't overtake the data.
func (s *slot) answer(status nvme.Status) {
	q := s.q
	s.decided()
	e := nvme.Completion{Result: s.plan.Result, SQHead: q.nextHead(), SQID: q.id, CID: s.cmd.CID, Status: status}
	e.Encode(s.response)
	m := rw.Message{Local: s.sendList[:]}
	if d := &s.plan.Data; d.Invalidate && q.sends {
		m.Invalidate, m.HasInvalidate = transport.RKey(d.Key), true
		q.target.invalidations.Add(1)
	}
	if err := q.ep.PrepareSend(&s.send, m); err != nil {
		q.fail(err)
		s.executed()
		s.goHome()
		return
	}
	s.chain = s.contexts[1:]
	if status == nvme.Success && s.plan.Data.Len > 0 && (s.plan.Action == core.ReadBlocks || s.plan.Action == core.Fill) {
		if err := q.ep.Prepare(&s.write, rw.Transfer{Op: rw.Write, Local: s.dataList[:], Remote: s.remote[:]}); err == nil {
			s.chain = s.contexts[:]
		} else {
			e.Status = nvme.DataTransferError | nvme.DNR
			e.Encode(s.response)
		}
	}
	s.respond()
}

// nextHead is the head of the submission queue that the next response tells.
func (q *queue) nextHead() uint16 {
	if q.association.Load() == nil {
		return 0
	}
	if q.joined.NoFlowControl {
		return 0xFFFF
	}
	return uint16(q.head.Add(1) % uint64(q.joined.Entries))
}

// responded is called when the response has been sent: the slot begins anew.
func (s *slot) responded() {
	q := s.q
	q.gather()
	q.answers.leave()
	s.executed()
	if err := s.send.Err(); err != nil {
		q.fail(err)
		s.goHome()
		return
	}
	s.data = nil
	q.listening = append(q.listening, s)
	s.giveMemory()
}
