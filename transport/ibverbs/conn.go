//go:build ibverbs && linux && cgo

package ibverbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"math/bits"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"rdmarw/transport"
)

var _ transport.Conn = (*conn)(nil)

// Largest private data that every transport below can carry (rdma_connect(3)).
const (
	maxRequestData = 56
	maxAnswerData  = 196
	maxRejectData  = 148
)

// resolveTimeout is how long address and route resolution may each take when the
// context has no deadline.
const resolveTimeout = 5 * time.Second

type conn struct {
	dev           *device
	cm            *cm
	number        uint64 // as an owner
	passive       bool
	request       transport.ConnInfo
	local, remote string

	step chan struct{} // an address or a route was resolved
	up   chan struct{} // closed once established; info is set
	done chan struct{} // closed once ended; err is set
	info transport.ConnInfo
	err  error

	afterMu sync.Mutex
	after   func()

	// destroying is of one Close at a time, gone: it has done its work.
	destroying sync.Mutex
	gone       bool

	mu       sync.Mutex // guards id against use after Close began, and what follows
	id       *C.struct_rdma_cm_id
	qp       *qp
	closing  bool
	answered bool // Connect, Accept or Reject was called
	settling bool // established, and not up yet: see quirk.answersEarly
	// answering, if not nil, is closed when the Connect or Accept that is under way
	// lets go of id. It may be a long time on siw, so mu isn't held.
	answering chan struct{}
	// what was asked for
	initiator, responder int
}

func (d *device) newConn(passive bool) (*conn, error) {
	if err := d.children.add(kindConn); err != nil {
		return nil, err
	}
	return &conn{
		dev: d, cm: d.cm, passive: passive,
		step: make(chan struct{}, 1),
		up:   make(chan struct{}),
		done: make(chan struct{}),
	}, nil
}

func (d *device) Resolve(ctx context.Context, addr string) (transport.Conn, error) {
	if err := ctx.Err(); err != nil { // what comes below might be sooner than it is noticed
		return nil, err
	}
	list, err := lookup(ctx, addr)
	if err != nil {
		return nil, &transport.Error{Op: "resolve", Device: d.name, WR: -1, Err: transport.ErrUnreachable, Detail: err.Error()}
	}
	var last error
	for _, dst := range list {
		if !dst.Addr().IsValid() {
			return nil, d.invalid("resolve", "%q has no host", addr)
		}
		c, err := d.resolve(ctx, dst)
		if err == nil {
			return c, nil
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (d *device) resolve(ctx context.Context, dst netip.AddrPort) (_ transport.Conn, err error) {
	c, err := d.newConn(false)
	if err != nil {
		return nil, err
	}
	c.number = d.cm.add(c)
	if rc := C.rd_create_id(d.cm.channel, C.uint64_t(c.number), &c.id); rc != 0 {
		d.cm.forget(c.number)
		d.children.drop(kindConn)
		return nil, d.fail("resolve", rc, transport.ErrNoMemory)
	}
	inUse.ids.Add(1)
	defer func() {
		if err != nil {
			c.Close()
		}
	}()

	timeout := resolveTimeout
	if t, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(t), time.Millisecond)
	}
	ms := C.int(min(timeout.Milliseconds()+1, 1<<30))
	to := toC(dst)
	var from C.struct_rd_addr
	var src *C.struct_rd_addr
	if ip, ok := d.source(dst.Addr()); ok {
		from = toC(netip.AddrPortFrom(ip, 0))
		src = &from
	}
	rc := C.rd_resolve_addr(c.id, src, &to, ms)
	if err := c.await(ctx, "resolve address", dst, rc); err != nil {
		return nil, err
	}
	if c.id.verbs != d.ctx {
		return nil, &transport.Error{Op: "resolve address", Device: d.name, WR: -1, Err: transport.ErrUnreachable,
			Detail: fmt.Sprintf("the route to %v leads through another device, %s", dst, deviceName(c.id.verbs))}
	}
	rc = C.rd_resolve_route(c.id, ms)
	if err := c.await(ctx, "resolve route", dst, rc); err != nil {
		return nil, err
	}
	c.addresses()
	return c, nil
}

func deviceName(ctx *C.struct_ibv_context) string {
	if ctx == nil {
		return "none"
	}
	return C.GoString(C.ibv_get_device_name(ctx.device))
}

// await waits for a step of the resolution that was started with result rc.
func (c *conn) await(ctx context.Context, op string, dst netip.AddrPort, rc C.int) error {
	if rc != 0 {
		return &transport.Error{Op: op, Device: c.dev.name, WR: -1, Errno: syscall.Errno(rc), Err: transport.ErrUnreachable, Detail: dst.String()}
	}
	select {
	case <-c.step:
		return nil
	case <-c.done:
		return fmt.Errorf("%s %v: %w", op, dst, c.err)
	case <-ctx.Done():
		return fmt.Errorf("%s %v: no answer: %w", op, dst, ctx.Err())
	}
}

func (c *conn) addresses() {
	var a C.struct_rd_addr
	C.rd_local_addr(c.id, &a)
	c.local = fromC(&a).String()
	C.rd_remote_addr(c.id, &a)
	c.remote = fromC(&a).String()
}

func (c *conn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return nil, transport.ErrClosed
	case c.qp != nil || c.answered:
		return nil, c.badState("new queue pair")
	}
	q, err := c.newQP(cfg)
	if err != nil {
		return nil, err
	}
	c.qp = q
	if c.ended() {
		q.Fail()
	}
	return q, nil
}

func (c *conn) badState(op string) error {
	return &transport.Error{Op: op, Device: c.dev.name, WR: -1, Err: transport.ErrBadState}
}

func (c *conn) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *conn) QP() transport.QP {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.qp == nil {
		return nil
	}
	return c.qp
}

func (c *conn) Request() transport.ConnInfo { return c.request }
func (c *conn) LocalAddr() string           { return c.local }
func (c *conn) RemoteAddr() string          { return c.remote }
func (c *conn) Done() <-chan struct{}       { return c.done }

func (c *conn) Err() error {
	if c.ended() {
		return c.err
	}
	return nil
}

func (c *conn) Connect(p transport.ConnParams) error {
	if len(p.PrivateData) > maxRequestData {
		return c.dev.invalid("connect", "%d bytes of private data, at most %d", len(p.PrivateData), maxRequestData)
	}
	limit := transport.ConnInfo{InitiatorDepth: c.dev.caps.InitiatorDepth, ResponderResources: c.dev.caps.ResponderResources}
	return c.answer("connect", false, p, limit, func(cp *C.struct_rd_conn_param) C.int { return C.rd_connect(c.id, cp) })
}

func (c *conn) Accept(p transport.ConnParams) error {
	if len(p.PrivateData) > maxAnswerData {
		return c.dev.invalid("accept", "%d bytes of private data, at most %d", len(p.PrivateData), maxAnswerData)
	}
	// Depths above what the peer asked for and offers would break the protocol.
	limit := transport.ConnInfo{
		InitiatorDepth:     min(c.dev.caps.InitiatorDepth, c.request.InitiatorDepth),
		ResponderResources: min(c.dev.caps.ResponderResources, c.request.ResponderResources),
	}
	return c.answer("accept", true, p, limit, func(cp *C.struct_rd_conn_param) C.int { return C.rd_accept(c.id, cp) })
}

// answer sends the connection request, or accepts one. siw makes its TCP
// connection in this call, so to a peer that drops packets it blocks: events and
// Disconnect are served meanwhile.
func (c *conn) answer(op string, passive bool, p transport.ConnParams, limit transport.ConnInfo, send func(*C.struct_rd_conn_param) C.int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return transport.ErrClosed
	case c.passive != passive || c.qp == nil || c.answered:
		return c.badState(op)
	case c.ended():
		return c.err
	}
	c.initiator = depth(p.InitiatorDepth, limit.InitiatorDepth)
	c.responder = depth(p.ResponderResources, limit.ResponderResources)
	if err := c.setOptions(op, p); err != nil {
		return err
	}
	cp := C.struct_rd_conn_param{
		initiator_depth:     C.uint8_t(c.initiator),
		responder_resources: C.uint8_t(c.responder),
		retry_count:         C.uint8_t(retries(p.RetryCount)),
		rnr_retry_count:     C.uint8_t(retries(p.RNRRetryCount)),
		data_len:            C.uint8_t(len(p.PrivateData)),
	}
	if len(p.PrivateData) > 0 {
		data := C.CBytes(p.PrivateData)
		defer C.free(data)
		cp.data = data
	}
	c.answered = true
	c.answering = make(chan struct{})
	c.mu.Unlock()
	rc := send(&cp)
	c.mu.Lock()
	close(c.answering)
	c.answering = nil
	if rc != 0 {
		err := c.dev.fail(op, rc, transport.ErrNoMemory)
		if c.ended() {
			return fmt.Errorf("%s: %w", op, c.err) // Disconnect, or the device's removal, came first
		}
		c.end(err)
		return err
	}
	if c.ended() {
		c.disconnect() // it had to wait for this
		return c.err
	}
	if passive {
		// The queue pair is in RTS, and the peer's first message may be here.
		c.qp.ready(c.initiator)
	}
	return nil
}

func (c *conn) setOptions(op string, p transport.ConnParams) error {
	if p.TOS != 0 {
		if rc := C.rd_set_option(c.id, C.RDMA_OPTION_ID_TOS, C.uint8_t(p.TOS)); rc != 0 {
			return c.dev.fail(op+": type of service", rc, transport.ErrNoMemory)
		}
	}
	if p.AckTimeout > 0 && c.dev.caps.Protocol != transport.IWARP {
		if rc := C.rd_set_option(c.id, C.RDMA_OPTION_ID_ACK_TIMEOUT, C.uint8_t(ackTimeout(p.AckTimeout))); rc != 0 {
			return c.dev.fail(op+": ack timeout", rc, transport.ErrNoMemory)
		}
	}
	return nil
}

// depth applies the rule of ConnParams: zero is all there is, negative none.
func depth(want, limit int) int {
	switch {
	case want < 0:
		return 0
	case want == 0:
		return limit
	}
	return min(want, limit)
}

// retries applies the rule of ConnParams: zero is 7, negative none.
func retries(n int) int {
	switch {
	case n < 0:
		return 0
	case n == 0:
		return 7
	}
	return min(n, 7)
}

// ackTimeout encodes a local ACK timeout: 4.096 us times a power of two, at least
// what was asked for.
func ackTimeout(t time.Duration) int {
	units := uint64((t + 4095) / 4096)
	return min(max(bits.Len64(units-1), 1), 31)
}

func (c *conn) Reject(data []byte) error {
	if len(data) > maxRejectData {
		return c.dev.invalid("reject", "%d bytes of private data, at most %d", len(data), maxRejectData)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return transport.ErrClosed
	case !c.passive || c.answered:
		return c.badState("reject")
	}
	c.answered = true
	rc := C.rd_reject(c.id, unsafe.Pointer(unsafe.SliceData(data)), C.uint8_t(len(data)))
	c.end(fmt.Errorf("rejected by this side: %w", transport.ErrDisconnected))
	if rc != 0 {
		return c.dev.fail("reject", rc, transport.ErrNoMemory)
	}
	return nil
}

func (c *conn) Established(ctx context.Context) (transport.ConnInfo, error) {
	if c.isUp() {
		return c.info, nil
	}
	select {
	case <-c.up:
		return c.info, nil
	case <-c.done:
		return transport.ConnInfo{}, c.err
	case <-ctx.Done():
		return transport.ConnInfo{}, fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// end ends the connection, once, for the given reason. c.mu is held.
func (c *conn) end(err error) {
	if c.ended() {
		return
	}
	c.settled() // it was up
	if c.qp != nil {
		c.qp.Fail() // best effort: the device may be gone
	}
	c.err = err
	close(c.done)
	c.afterMu.Lock()
	f := c.after
	c.after = nil
	c.afterMu.Unlock()
	if f != nil {
		f()
	}
}

func (c *conn) AfterDone(f func()) {
	c.afterMu.Lock()
	ended := c.ended()
	if !ended {
		c.after = f
	}
	c.afterMu.Unlock()
	if ended {
		f()
	}
}

// removed: the device is gone.
func (c *conn) removed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(transport.ErrDeviceRemoved)
}

// notify passes an asynchronous event on to the CM.
func (c *conn) notify(event C.int32_t) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		C.rdma_notify(c.id, C.enum_ibv_event_type(event))
	}
}

// disconnect tells the peer and moves the queue pair to the error state. c.mu is
// held.
//
// The CM goes first: on iWARP librdmacm moves the queue pair to SQD, which fails
// from the error state, and the peer would not be told. Its errors don't matter:
// there may be no connection, or no peer.
//
// While a request is under way the CM has nothing to disconnect, and on iWARP
// would wait for the answer first (iw_cm_disconnect). While a call that answers is,
// the kernel would wait for that; it disconnects itself when it is through.
func (c *conn) disconnect() {
	if c.qp == nil {
		return
	}
	if c.answering == nil && (c.passive || c.isUp() || c.settling) {
		C.rd_disconnect(c.id)
	}
	c.qp.Fail()
}

func (c *conn) isUp() bool {
	select {
	case <-c.up:
		return true
	default:
		return false
	}
}

func (c *conn) Disconnect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || c.ended() {
		return nil
	}
	c.disconnect()
	c.end(fmt.Errorf("by this side: %w", transport.ErrDisconnected))
	return nil
}

// Close goes on from where a Close that failed stopped.
func (c *conn) Close() error {
	c.destroying.Lock()
	defer c.destroying.Unlock()
	if c.gone {
		return nil
	}
	q := c.shut()

	// Without mu: on rxe destroying takes a minute if a window is bound.
	if q != nil {
		if err := q.destroy(); err != nil {
			return err
		}
	}
	if err := c.dev.destroyID("close connection", c.id); err != nil {
		return err
	}
	c.cm.forget(c.number)
	c.dev.children.drop(kindConn)
	c.gone = true
	return nil
}

// shut ends the connection and keeps everybody off its id, and returns the queue
// pair that is to be destroyed.
func (c *conn) shut() *qp {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return c.qp
	}
	switch {
	case c.answered && !c.ended():
		c.disconnect()
	case c.passive && !c.answered:
		C.rd_reject(c.id, nil, 0)
	}
	c.end(fmt.Errorf("closed by this side: %w", transport.ErrDisconnected))
	c.closing = true
	for c.answering != nil {
		answered := c.answering
		c.mu.Unlock()
		<-answered
		c.mu.Lock()
	}
	// librdmacm may be handling an event of this id right now; from here on it
	// finds no queue pair.
	c.cm.taking.Lock()
	c.id.qp = nil
	c.cm.taking.Unlock()
	return c.qp
}
