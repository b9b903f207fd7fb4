//go:build ibverbs && linux && cgo

package ibverbs

// #include <errno.h>
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"rdmarw/transport"
)

var (
	_ transport.QP  = (*qp)(nil)
	_ transport.SRQ = (*srq)(nil)
)

type qp struct {
	dev     *device
	conn    *conn
	pd      *pd
	scq     *cq
	rcq     *cq
	srq     *srq
	owner   uint64 // what the device's events call it
	num     uint32
	granted transport.QueueCaps
	limits  sendLimits
	order   *order       // nil: the device keeps it
	state   atomic.Int32 // transport.QPState as far as known

	// The locks keep calls off a queue pair that is being destroyed: c is nil from
	// then on. Nobody ever waits for them otherwise.
	send, recv, control sync.Mutex
	c                   *C.struct_rd_qp
	timed               bool            // the RNR timer is set, see ready; guarded by control
	dying               *C.struct_rd_qp // what destroy has to destroy; guarded by the Close that calls it
}

func (c *conn) newQP(cfg transport.QPConfig) (*qp, error) {
	d := c.dev
	const op = "new queue pair"
	p, _ := cfg.PD.(*pd)
	scq, _ := cfg.SendCQ.(*cq)
	rcq, _ := cfg.RecvCQ.(*cq)
	s, isSRQ := cfg.SRQ.(*srq)
	switch {
	case p == nil || p.dev != d:
		return nil, d.invalid(op, "the protection domain is not of this device")
	case scq == nil || scq.dev != d || rcq == nil || rcq.dev != d:
		return nil, d.invalid(op, "a CQ is not of this device")
	case cfg.SRQ != nil && (!isSRQ || s.pd != p):
		return nil, d.invalid(op, "the shared receive queue is not of this protection domain")
	case cfg.MaxSendWR < 0 || cfg.MaxRecvWR < 0 || cfg.MaxSendSGE < 0 || cfg.MaxRecvSGE < 0 || cfg.MaxInline < 0,
		cfg.MaxSendWR > d.caps.MaxSendWR, cfg.MaxRecvWR > d.caps.MaxRecvWR,
		cfg.MaxSendSGE > d.caps.MaxSendSGE, cfg.MaxRecvSGE > d.caps.MaxRecvSGE, cfg.MaxInline > d.caps.MaxInline:
		return nil, d.invalid(op, "sizes %+v, the device's are send %d x %d, receive %d x %d, inline %d", cfg.QueueCaps,
			d.caps.MaxSendWR, d.caps.MaxSendSGE, d.caps.MaxRecvWR, d.caps.MaxRecvSGE, d.caps.MaxInline)
	}
	q := &qp{dev: d, conn: c, pd: p, scq: scq, rcq: rcq, srq: s}
	if err := q.retain(); err != nil {
		return nil, err
	}
	caps := C.struct_rd_qp_caps{
		send_wr: C.uint32_t(max(cfg.MaxSendWR, 1)), recv_wr: C.uint32_t(max(cfg.MaxRecvWR, 1)),
		send_sge: C.uint32_t(max(cfg.MaxSendSGE, 1)), recv_sge: C.uint32_t(max(cfg.MaxRecvSGE, 1)),
		inline_data: C.uint32_t(cfg.MaxInline),
	}
	var cs *C.struct_ibv_srq
	if s != nil {
		cs = s.c.srq
		caps.recv_wr, caps.recv_sge = 0, 0
	}
	q.owner = d.number()
	rc := C.int(C.ENOMEM)
	var ex *C.struct_ibv_qp_ex
	sendable := C.uint32_t(sendOps(&d.caps))
	batched := sendable
	if !d.caps.AtomicPost {
		batched = 0
	}
	if q.c = zeroed[C.struct_rd_qp](1); q.c != nil {
		rc = C.rd_create_qp(c.id, p.c, scq.c.cq, rcq.c.cq, cs, C.uint64_t(q.owner), batched, &caps, &ex)
	}
	if rc != 0 {
		C.free(ptr(q.c))
		q.release()
		return nil, d.fail(op, rc, transport.ErrNoMemory)
	}
	inUse.qps.Add(1)
	q.c.qp, q.c.ex, q.c.recv.qp = c.id.qp, ex, c.id.qp
	q.c.windows = p.windows
	q.c.ops = sendable
	q.c.inline_ops = C.uint32_t(d.quirk.inline)
	q.c.fence_ops = ^C.uint32_t(d.quirk.noFence)
	q.granted = transport.QueueCaps{
		MaxSendWR: int(caps.send_wr), MaxRecvWR: int(caps.recv_wr),
		MaxSendSGE: int(caps.send_sge), MaxRecvSGE: int(caps.recv_sge), MaxInline: min(int(caps.inline_data), C.RD_MAX_INLINE),
	}
	q.c.read_sges = C.uint32_t(d.caps.ReadSGEs(q.granted.MaxSendSGE))
	q.c.send_sges = C.uint32_t(q.granted.MaxSendSGE)
	q.c.inline_data = C.uint32_t(q.granted.MaxInline)
	if d.quirk.noEmptySGEs {
		q.c.no_empty_sges = 1
	}
	q.c.read_depth = -1
	q.limits = sendLimits{maxSGE: q.granted.MaxSendSGE, readSGE: int(q.c.read_sges), maxInline: q.granted.MaxInline, maxMsg: d.caps.MaxMsg}
	q.num = uint32(q.c.qp.qp_num)
	if d.quirk.unordered {
		q.order = newOrder(q.granted.MaxSendWR)
		if d.quirk.splices {
			q.order.signals = ops(transport.OpWrite, transport.OpWriteWithImm, transport.OpSend, transport.OpSendWithInv, transport.OpSendWithImm)
		}
		q.c.signal_ops = C.uint32_t(ops(transport.OpRead) | q.order.signals)
		scq.keepOrder(q.num, q.order)
	}
	d.mu.Lock()
	d.qps[q.owner] = q
	d.mu.Unlock()
	return q, nil
}

// retain notes this queue pair as a user of all that it uses.
func (q *qp) retain() error {
	users := []*children{&q.pd.children, &q.scq.children, &q.rcq.children}
	if q.srq != nil {
		users = append(users, &q.srq.children)
	}
	for i, u := range users {
		if err := u.add(kindQP); err != nil {
			for _, u := range users[:i] {
				u.drop(kindQP)
			}
			return err
		}
	}
	return nil
}

func (q *qp) release() {
	q.pd.children.drop(kindQP)
	q.scq.children.drop(kindQP)
	q.rcq.children.drop(kindQP)
	if q.srq != nil {
		q.srq.children.drop(kindQP)
	}
}

func (q *qp) Num() uint32                  { return q.num }
func (q *qp) Granted() transport.QueueCaps { return q.granted }
func (q *qp) State() transport.QPState     { return transport.QPState(q.state.Load()) }

func (q *qp) PostSend(wrs []transport.WR, sges []transport.SGE) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	q.send.Lock()
	if q.State() != transport.QPReady || q.c == nil {
		if err := q.notReady(); err != nil {
			q.send.Unlock()
			return 0, err
		}
	}
	if q.order != nil {
		q.order.posting(wrs)
	}
	C.rd_post_send(handle(q.c),
		(*C.struct_rd_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)),
		(*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.uint32_t(len(sges)))
	if q.c.posted.err == 0 {
		q.send.Unlock()
		return len(wrs), nil
	}
	r := q.c.posted
	if q.order != nil {
		q.order.refused(len(wrs) - int(r.accepted))
	}
	q.send.Unlock()
	return q.sendError(r, wrs, sges)
}

func (q *qp) sendError(r C.struct_rd_posted, wrs []transport.WR, sges []transport.SGE) (int, error) {
	n, at := int(r.accepted), int(r.at)
	var e *transport.Error
	if n == len(wrs) {
		// All are in the ring; ringing the doorbell failed.
		e = refusal(transport.ErrBadState, syscall.Errno(r.err), "the doorbell failed")
	} else if e = diagnoseSend(int(r.err), &wrs[at], sges, q.limits); e.Err == transport.ErrInvalid && e.Errno != 0 {
		if q.refresh(); q.State() != transport.QPReady {
			e.Err, e.Detail = transport.ErrBadState, "queue pair is in state "+q.State().String()
		}
	}
	e.Op, e.Device, e.WR = "post send", q.dev.name, min(at, len(wrs)-1)
	return n, e
}

// notReady tells why nothing can be posted. A queue pair that is believed not to
// be connected yet is asked first: the device may have connected it, and
// delivered the peer's first message, before the CM's event got here.
//
// Posting in INIT is refused here since software providers would write the
// request into their ring and only then fail; posting in ERR since siw would
// take it and never complete it.
func (q *qp) notReady() error {
	if q.c != nil && q.State() == transport.QPInit {
		q.refresh()
	}
	if q.c != nil && q.State() == transport.QPReady {
		return nil
	}
	if q.dev.isRemoved() {
		return &transport.Error{Op: "post send", Device: q.dev.name, WR: 0, Err: transport.ErrDeviceRemoved}
	}
	return &transport.Error{Op: "post send", Device: q.dev.name, WR: 0, Err: transport.ErrBadState,
		Detail: "queue pair is in state " + q.State().String()}
}

// refresh asks the device for the state.
func (q *qp) refresh() {
	q.control.Lock()
	defer q.control.Unlock()
	a, ok := q.query()
	if !ok {
		return
	}
	switch a.state {
	case C.IBV_QPS_RTS:
		q.state.CompareAndSwap(int32(transport.QPInit), int32(transport.QPReady))
	case C.IBV_QPS_SQD, C.IBV_QPS_SQE, C.IBV_QPS_ERR:
		q.state.Store(int32(transport.QPError))
	}
}

func (q *qp) PostRecv(wrs []transport.RecvWR, sges []transport.SGE) (int, error) {
	if q.srq != nil {
		return 0, q.dev.invalid("post receive", "the queue pair has a shared receive queue")
	}
	if len(wrs) == 0 {
		return 0, nil
	}
	q.recv.Lock()
	if q.c == nil || q.State() == transport.QPError {
		q.recv.Unlock()
		return 0, &transport.Error{Op: "post receive", Device: q.dev.name, WR: 0, Err: transport.ErrBadState}
	}
	C.rd_post_recv(handle(&q.c.recv),
		(*C.struct_rd_recv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)),
		(*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.uint32_t(len(sges)))
	r := q.c.recv.posted
	q.recv.Unlock()
	if r.err == 0 {
		return len(wrs), nil
	}
	return q.dev.recvError(r, wrs, len(sges), q.granted.MaxRecvSGE)
}

func (d *device) recvError(r C.struct_rd_posted, wrs []transport.RecvWR, arena, maxSGE int) (int, error) {
	n := int(r.accepted)
	at := min(n, len(wrs)-1)
	e := diagnoseRecv(int(r.err), &wrs[at], arena, maxSGE)
	e.Op, e.Device, e.WR = "post receive", d.name, at
	return n, e
}

// ready notes that the connection is up, which may be said twice: the passive side's is when it
// has answered.
//
// The CM leaves the RNR timer at 0 (cm_init_qp_rtr_attr of Linux's ib_cm), and has no option for
// it. That is no short time but the longest, 655 ms, for which one message that finds no receive
// stops all of the peer's. So it is set here: it is one of the few attributes that may change
// from RTS to RTS (qp_state_table of Linux's ib_core, which is IBTA's). A device that refuses
// that keeps the long one. iWARP has no such timer: there the connection ends.
func (q *qp) ready(readDepth int) {
	q.control.Lock()
	defer q.control.Unlock()
	if q.c == nil {
		return
	}
	atomic.StoreInt32((*int32)(unsafe.Pointer(&q.c.read_depth)), int32(readDepth))
	q.state.CompareAndSwap(int32(transport.QPInit), int32(transport.QPReady))
	if !q.timed && q.dev.caps.Protocol != transport.IWARP {
		q.timed = true
		C.rd_set_rnr_timer(q.c.qp)
	}
}

// query asks the device for attributes. q.control is held.
func (q *qp) query() (a C.struct_rd_qp_attr, ok bool) {
	ok = q.c != nil && C.rd_query_qp(q.c.qp, &a) == 0
	return a, ok
}

// depths asks the device for the READ depths in force, as initiator and as
// responder.
func (q *qp) depths() (initiator, responder int, ok bool) {
	q.control.Lock()
	defer q.control.Unlock()
	a, ok := q.query()
	if !ok {
		return 0, 0, false
	}
	if q.dev.quirk.depthsSwapped {
		return int(a.dest_rd_atomic), int(a.rd_atomic), true
	}
	return int(a.rd_atomic), int(a.dest_rd_atomic), true
}

func (q *qp) Fail() error {
	q.control.Lock()
	defer q.control.Unlock()
	q.state.Store(int32(transport.QPError))
	if q.c == nil {
		return nil
	}
	if rc := C.rd_qp_error(q.c.qp); rc != 0 {
		return q.dev.fail("move queue pair to error", rc, transport.ErrNoMemory)
	}
	return nil
}

// destroy destroys the queue pair. No memory is touched on its behalf once it
// returns nil. Where it fails it can be called again.
func (q *qp) destroy() error {
	q.send.Lock()
	q.recv.Lock()
	q.control.Lock()
	if q.c != nil {
		q.dying, q.c = q.c, nil
	}
	q.state.Store(int32(transport.QPError))
	q.control.Unlock()
	q.recv.Unlock()
	q.send.Unlock()
	if q.dying == nil {
		return nil
	}
	if err := q.dev.destroyed("destroy queue pair", C.ibv_destroy_qp(q.dying.qp)); err != nil {
		return err
	}
	q.dev.mu.Lock()
	delete(q.dev.qps, q.owner)
	q.dev.mu.Unlock()
	if q.order != nil {
		q.scq.dropOrder(q.num, q.order)
	}
	C.free(ptr(q.dying))
	q.dying = nil
	inUse.qps.Add(-1)
	q.release()
	return nil
}

type srq struct {
	pd       *pd
	granted  transport.QueueCaps
	children children

	mu sync.Mutex
	c  *C.struct_rd_recvq // nil: closed
}

func (p *pd) NewSRQ(maxWR, maxSGE int) (transport.SRQ, error) {
	d := p.dev
	if maxWR < 1 || maxWR > d.caps.MaxSRQWR || maxSGE < 1 || maxSGE > d.caps.MaxRecvSGE {
		return nil, d.invalid("new shared receive queue", "%d receives of %d SGEs, may be up to %d of %d", maxWR, maxSGE, d.caps.MaxSRQWR, d.caps.MaxRecvSGE)
	}
	if err := p.children.add(kindSRQ); err != nil {
		return nil, err
	}
	s := &srq{pd: p}
	wr, sge := C.uint32_t(maxWR), C.uint32_t(maxSGE)
	rc := C.int(C.ENOMEM)
	if s.c = zeroed[C.struct_rd_recvq](1); s.c != nil {
		rc = C.rd_create_srq(p.c, &wr, &sge, &s.c.srq)
	}
	if rc != 0 {
		C.free(ptr(s.c))
		p.children.drop(kindSRQ)
		return nil, d.fail("new shared receive queue", rc, transport.ErrNoMemory)
	}
	inUse.srqs.Add(1)
	s.granted = transport.QueueCaps{MaxRecvWR: int(wr), MaxRecvSGE: int(sge)}
	return s, nil
}

func (s *srq) Granted() transport.QueueCaps { return s.granted }

func (s *srq) PostRecv(wrs []transport.RecvWR, sges []transport.SGE) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	if s.c == nil {
		s.mu.Unlock()
		return 0, transport.ErrClosed
	}
	C.rd_post_recv(handle(s.c),
		(*C.struct_rd_recv_wr)(unsafe.Pointer(unsafe.SliceData(wrs))), C.uint32_t(len(wrs)),
		(*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(sges))), C.uint32_t(len(sges)))
	r := s.c.posted
	s.mu.Unlock()
	if r.err == 0 {
		return len(wrs), nil
	}
	return s.pd.dev.recvError(r, wrs, len(sges), s.granted.MaxRecvSGE)
}

func (s *srq) Close() error {
	return s.children.close("shared receive queue", s.pd.dev.name, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.pd.dev.destroyed("close shared receive queue", C.ibv_destroy_srq(s.c.srq)); err != nil {
			return err
		}
		C.free(ptr(s.c))
		s.c = nil
		inUse.srqs.Add(-1)
		s.pd.children.drop(kindSRQ)
		return nil
	})
}
