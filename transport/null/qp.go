package null

import (
	"rdmarw/transport"
)

// QP is a queue pair to nobody.
type QP struct {
	dev     *Device
	pd      *pd
	send    *cq
	recv    *cq
	granted transport.QueueCaps
	state   transport.QPState
	// receives are the cookies of those posted: they are flushed in the end.
	receives []uint64
}

func newQP(d *Device, cfg transport.QPConfig) (*QP, error) {
	p, okPD := cfg.PD.(*pd)
	send, okSend := cfg.SendCQ.(*cq)
	recv, okRecv := cfg.RecvCQ.(*cq)
	if !okPD || !okSend || !okRecv || cfg.SRQ != nil {
		return nil, refuse(d, "new QP", -1, transport.ErrInvalid)
	}
	return &QP{dev: d, pd: p, send: send, recv: recv, granted: cfg.QueueCaps}, nil
}

// Num is always the same.
func (q *QP) Num() uint32 { return 1 }

// Granted returns the sizes that were asked for.
func (q *QP) Granted() transport.QueueCaps { return q.granted }

// State returns the state.
func (q *QP) State() transport.QPState { return q.state }

// PostSend copies requests into the device's ring, and completes those that are signaled.
func (q *QP) PostSend(wrs []transport.WR, sges []transport.SGE) (int, error) {
	if q.state != transport.QPReady {
		return 0, refuse(q.dev, "post send", 0, transport.ErrBadState)
	}
	for i := range wrs {
		wr := &wrs[i]
		if int(wr.NumSGE) > q.granted.MaxSendSGE {
			return i, refuse(q.dev, "post send", i, transport.ErrTooManySGE)
		}
		if wr.Op == transport.OpFastReg {
			q.postFastReg(wr)
		} else {
			to, list := q.dev.ring.Request(int(wr.NumSGE))
			write(to, wr)
			copy(list, sges[wr.FirstSGE:])
		}
		if wr.Flags&transport.Signaled != 0 {
			q.Complete(wr.Cookie)
		}
	}
	return len(wrs), nil
}

// write writes a request into the ring, a field at a time as drivers do: what was
// written in small parts a moment ago can't be read in large ones without waiting.
func write(to, wr *transport.WR) {
	to.Cookie, to.RemoteAddr, to.CompareAdd, to.Swap = wr.Cookie, wr.RemoteAddr, wr.CompareAdd, wr.Swap
	to.RKey, to.Imm, to.FirstSGE, to.Reg = wr.RKey, wr.Imm, 0, wr.Reg
	to.NumSGE, to.Op, to.Flags, to.KeyByte = wr.NumSGE, wr.Op, wr.Flags, wr.KeyByte
}

func (q *QP) postFastReg(wr *transport.WR) {
	reg := q.pd.regs[wr.Reg-1]
	to, pages := q.dev.ring.FastReg(reg.used)
	write(to, wr)
	to.RemoteAddr, to.CompareAdd, to.Imm = reg.iova, reg.length, uint32(reg.access)
	copy(pages, reg.pages)
}

// Complete puts a successful completion into the queue for sends: by hand, what a
// signaled request does by itself.
func (q *QP) Complete(cookie uint64) { q.send.push(cookie, transport.StatusOK) }

// PostRecv takes in receives. Nothing comes.
func (q *QP) PostRecv(wrs []transport.RecvWR, _ []transport.SGE) (int, error) {
	for i := range wrs {
		switch {
		case q.state == transport.QPError:
			return i, refuse(q.dev, "post receive", i, transport.ErrBadState)
		case len(q.receives) == q.granted.MaxRecvWR:
			return i, refuse(q.dev, "post receive", i, transport.ErrQueueFull)
		}
		q.receives = append(q.receives, wrs[i].Cookie)
	}
	return len(wrs), nil
}

// Fail flushes the receives: nothing else is ever outstanding.
func (q *QP) Fail() error {
	q.state = transport.QPError
	for _, cookie := range q.receives {
		q.recv.push(cookie, transport.StatusFlushed)
	}
	q.receives = nil
	return nil
}

func refuse(d *Device, op string, wr int, err error) error {
	return &transport.Error{Op: op, Device: d.caps.Device, WR: wr, Err: err, Detail: "of a null device"}
}
