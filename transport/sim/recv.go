package sim

import "rdmarw/transport"

// recvWR is a posted receive.
type recvWR struct {
	cookie uint64
	sge    uint64 // sequence number of its first SGE
	num    uint16
}

// recvQueue holds posted receives, of one queue pair or shared. taken counts
// those whose slot has not come back: it does when the completion is polled.
type recvQueue struct {
	wrs    ring[recvWR]
	sges   ring[transport.SGE]
	taken  int
	size   int
	maxSGE int
}

// post appends receives until one is refused.
func (r *recvQueue) post(d *Device, wrs []transport.RecvWR, sges []transport.SGE) (int, error) {
	const op = "post receive"
	for i := range wrs {
		w := &wrs[i]
		var err error
		switch end := uint64(w.FirstSGE) + uint64(w.NumSGE); {
		case r.taken == r.size:
			err = transport.ErrQueueFull
		case int(w.NumSGE) > r.maxSGE:
			err = transport.ErrTooManySGE
		case w.NumSGE == 0 && d.profile.NoEmptyReceives:
			err = transport.ErrInvalid
		case end > uint64(len(sges)) && w.NumSGE > 0:
			err = transport.ErrInvalid
		}
		if err != nil {
			return i, &transport.Error{Op: op, Device: d.name, WR: i, Err: err}
		}
		first := r.sges.tail
		if w.NumSGE > 0 { // else FirstSGE means nothing
			for _, s := range sges[w.FirstSGE:][:w.NumSGE] {
				r.sges.push(s)
			}
		}
		r.wrs.push(recvWR{cookie: w.Cookie, sge: first, num: w.NumSGE})
		r.taken++
		d.stats.Receives++
	}
	return len(wrs), nil
}

// take removes the oldest receive. Its SGEs are good until the next post.
func (r *recvQueue) take() recvWR {
	w := r.wrs.pop()
	r.sges.head = w.sge + uint64(w.num)
	return w
}

// PostRecv posts receives. In the error state they flush on devices that flush
// late requests, and are refused on others: there, they would never complete.
func (q *QP) PostRecv(wrs []transport.RecvWR, sges []transport.SGE) (int, error) {
	const op = "post receive"
	f := q.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	switch {
	case q.closed:
		return 0, q.dev.errorf(op, transport.ErrBadState, "the queue pair was destroyed")
	case q.srq != nil:
		return 0, q.dev.errorf(op, transport.ErrInvalid, "the queue pair has a shared receive queue")
	case q.state == transport.QPError && !q.dev.profile.FlushesLate, q.knownToFail() && !q.dev.profile.Kernel:
		return 0, q.dev.errorf(op, transport.ErrBadState, "the queue pair is in the error state")
	}
	n, err := q.rq.post(q.dev, wrs, sges)
	if q.state == transport.QPError {
		q.scheduleFlush()
	} else if n > 0 {
		q.recvPosted()
	}
	return n, err
}

// recvPosted lets a message that waits for a receive go on; one whose tries are
// counted waits for its next try.
func (q *QP) recvPosted() {
	if q.parked && !q.rnrTimer.running() {
		q.parked = false
		q.kickResponder()
	}
}

// SRQ is a simulated shared receive queue. See [transport.SRQ].
type SRQ struct {
	recvQueue
	granted transport.QueueCaps
	dev     *Device
	pd      *PD
	users   int
	waiting []*QP // messages of theirs wait for a receive
	closed  bool
}

var _ transport.SRQ = (*SRQ)(nil)

// NewSRQ makes a shared receive queue.
func (p *PD) NewSRQ(maxWR, maxSGE int) (transport.SRQ, error) {
	const op = "new SRQ"
	d := p.dev
	sges := d.caps.MaxRecvSGE
	if n := d.profile.SRQSGEs; n > 0 {
		sges = n
	}
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	switch {
	case p.closed:
		return nil, d.errorf(op, transport.ErrClosed, "")
	case d.caps.MaxSRQWR == 0:
		return nil, d.errorf(op, transport.ErrUnsupported, "")
	case maxWR <= 0 || maxWR > d.caps.MaxSRQWR || maxSGE < 0 || maxSGE > sges:
		return nil, d.errorf(op, transport.ErrInvalid, "%d receives of %d SGEs; the most are %d of %d", maxWR, maxSGE, d.caps.MaxSRQWR, sges)
	}
	if err := d.allocatable(op, AllocQueue); err != nil {
		return nil, err
	}
	size := min(d.profile.QueueSizes.round(maxWR), d.caps.MaxSRQWR)
	granted := transport.QueueCaps{MaxRecvWR: size, MaxRecvSGE: max(maxSGE, 1)}
	if d.profile.HiddenRounding {
		granted.MaxRecvWR = maxWR
	}
	p.objects++
	return &SRQ{dev: d, pd: p, granted: granted, recvQueue: recvQueue{size: size, maxSGE: d.receiveSGEs(granted.MaxRecvSGE)}}, nil
}

// PostRecv posts receives for whichever queue pair gets a message first.
func (s *SRQ) PostRecv(wrs []transport.RecvWR, sges []transport.SGE) (int, error) {
	f := s.dev.fabric
	f.mu.Lock()
	defer f.unlock()
	if s.closed {
		return 0, s.dev.errorf("post receive", transport.ErrClosed, "")
	}
	n, err := s.post(s.dev, wrs, sges)
	if n > 0 {
		waiting := s.waiting
		s.waiting = nil
		for _, q := range waiting {
			q.recvPosted()
		}
	}
	return n, err
}

// Granted returns the real sizes.
func (s *SRQ) Granted() transport.QueueCaps { return s.granted }

// receiveSGEs is the most SGEs of a receive where so many were granted.
func (d *Device) receiveSGEs(granted int) int {
	if d.profile.DeviceLimits {
		return d.caps.MaxRecvSGE
	}
	return granted
}

// Close closes the queue, or fails with ErrBusy.
func (s *SRQ) Close() error {
	s.dev.fabric.mu.Lock()
	defer s.dev.fabric.unlock()
	if s.closed {
		return nil
	}
	if s.users > 0 {
		return s.dev.errorf("close SRQ", transport.ErrBusy, "%d queue pairs use it", s.users)
	}
	s.closed = true
	s.pd.objects--
	return nil
}
