package rw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// EndpointConfig configures an endpoint.
type EndpointConfig struct {
	// Pool gives the registrations and names the protection domain. It may be
	// shared by many endpoints.
	Pool *mrpool.Pool
	// QueueCaps asks for queue sizes. Zero MaxSendWR and MaxRecvWR: 128; zero SGEs:
	// what the device has, at most 16. The granted sizes are used, not these.
	transport.QueueCaps
	// SRQ, if not nil, is where the endpoint's receives come from: a queue of the same
	// poller and protection domain. MaxRecvWR and MaxRecvSGE mean nothing then, and
	// PostRecv is refused.
	SRQ *SRQ
	// Policy is the choice of strategies.
	Policy Policy
	// Reserve is how many registrations of the pool, of each kind that it has, are
	// set aside for this endpoint, so that others can't keep it waiting. What needs more
	// than others' shares leave fails with [ErrTooLarge] while they have them. Zero:
	// none.
	Reserve int
	// Staging is the memory that READs may be staged in. Optional. It may be shared,
	// and must belong to the pool's protection domain.
	Staging *Staging
	// Owner names the endpoint in the pool's leak report.
	Owner string
	// DrainTimeout is how long a failed or closing endpoint waits for the device to
	// account for everything posted before the queue pair is destroyed. Zero: 2 s.
	DrainTimeout time.Duration
	// CancelGrace is how long a blocking call whose ctx has ended waits for its
	// posted requests before it fails the endpoint to get its buffers back. Zero:
	// 1 s.
	CancelGrace time.Duration
}

// Endpoint is one queue pair with its credits: send queue slots, READ depth,
// registrations. A context takes all it needs in one step, or waits in order and
// holds nothing. Its methods may be called from any goroutine and never block,
// unless they say so.
//
// Contexts that were submitted separately may overtake each other where one of
// them has to register memory first; what must stay in order goes into one
// chain.
type Endpoint struct {
	poller  *Poller
	conn    transport.Conn
	qp      transport.QP
	pool    *mrpool.Pool
	peer    *mrpool.Peer
	regions *transport.RegionTable // of the pool's protection domain
	staging *Staging
	srq     *SRQ
	granted transport.QueueCaps
	limits  Limits
	direct  Limits // limits without registrations, for when the pool is empty
	owner   string

	drainTimeout, cancelGrace time.Duration

	// All below is under the poller's lock.
	state     endpointState
	cause     error // of the failure
	flushed   error // of receives, once there is one
	sqFree    int
	depth     int // READ depth granted, known when established
	readsFree int
	recvFree  int
	queue     list // chains that wait for credits
	posted    list // in posting order
	pending   int  // contexts with a worker
	recvs     int  // receives posted
	marker    bool // the marker of a drain is posted
	ar        arena
	receives  receives
	exposures *Exposure
	// destroying: a worker is taking everything away from the device.
	destroying  bool
	afterKill   *Context // revokes that are done when it is through
	deadline    time.Time
	draining    bool // it is destroyed as soon as the device owes nothing
	closing     bool // StartClose was called
	reserved    [transport.NumRegistrationKinds]*mrpool.Reservation
	waitsOnPool bool
	unmendable  error // why a repair failed, while those who wait for it are told
	// waitsOnStaging likewise.
	waitsOnStaging bool
	mrs            []*mrpool.MR  // of a chain, while they are handed out
	closed         chan struct{} // closed when nothing is left
	closeErr       error
}

type endpointState uint8

const (
	connecting endpointState = iota
	ready
	// failed: the queue pair is, or is going to be, in the error state. Everything
	// flushes, nothing is posted.
	failed
	// gone: the queue pair was destroyed.
	gone
)

// NewEndpoint makes the connection's queue pair and attaches it to the poller.
// It comes between Resolve or Listener.Next, and Connect or Accept: receives are
// posted in between. The endpoint owns conn from now on; on error it doesn't, and the
// caller closes it: it may have its queue pair already.
func (p *Poller) NewEndpoint(conn transport.Conn, cfg EndpointConfig) (*Endpoint, error) {
	if cfg.Pool == nil {
		return nil, fmt.Errorf("new endpoint: no pool: %w", transport.ErrInvalid)
	}
	pd := cfg.Pool.PD()
	caps := pd.Device().Caps()
	ask := cfg.QueueCaps
	setDefault(&ask.MaxSendWR, min(128, caps.MaxSendWR))
	var srq transport.SRQ
	if s := cfg.SRQ; s != nil {
		if s.poller != p || s.regions != pd.Regions() {
			return nil, fmt.Errorf("new endpoint: the SRQ belongs to another poller or protection domain: %w", transport.ErrInvalid)
		}
		srq = s.srq
		ask.MaxRecvWR, ask.MaxRecvSGE = 0, 0
	} else {
		setDefault(&ask.MaxRecvWR, min(128, caps.MaxRecvWR))
		setDefault(&ask.MaxRecvSGE, min(16, caps.MaxRecvSGE))
	}
	setDefault(&ask.MaxSendSGE, min(16, caps.MaxSendSGE))
	if ask.MaxSendWR < 2 {
		return nil, fmt.Errorf("new endpoint: a send queue of %d has no room beside the slot kept for draining: %w", ask.MaxSendWR, transport.ErrInvalid)
	}
	if err := p.hasRoom(ask.MaxSendWR, ask.MaxRecvWR); err != nil {
		return nil, fmt.Errorf("new endpoint: %w", err) // and the connection is as it was
	}
	qp, err := conn.CreateQP(transport.QPConfig{PD: pd, SendCQ: p.cq, RecvCQ: p.cq, SRQ: srq, QueueCaps: ask})
	if err != nil {
		return nil, fmt.Errorf("new endpoint: %w", err)
	}
	ep := &Endpoint{
		poller: p, conn: conn, qp: qp, pool: cfg.Pool, srq: cfg.SRQ, regions: pd.Regions(), staging: cfg.Staging, granted: qp.Granted(), owner: cfg.Owner,
		drainTimeout: cfg.DrainTimeout, cancelGrace: cfg.CancelGrace,
		closed: make(chan struct{}),
	}
	if ep.drainTimeout == 0 {
		ep.drainTimeout = 2 * time.Second
	}
	if ep.cancelGrace == 0 {
		ep.cancelGrace = time.Second
	}
	ep.sqFree = ep.granted.MaxSendWR - 1 // one is kept for the drain's marker
	if ep.srq != nil {
		ep.granted.MaxRecvWR, ep.granted.MaxRecvSGE = 0, 0
	}
	ep.recvFree = ep.granted.MaxRecvWR
	ep.limits = Limits{
		Caps: caps, SendSGE: ep.granted.MaxSendSGE, SendWR: min(ep.sqFree, maxChain-1),
		FastMRs: cfg.Pool.Size(transport.FastMR), FastPages: cfg.Pool.FastPages(), PageShift: cfg.Pool.PageShift(),
		SyncMRs: cfg.Pool.Size(transport.SyncMR), Windows: cfg.Pool.Size(transport.Window),
		Sinks: cfg.Pool.Sinks(), Isolated: cfg.Pool.Isolated(), Policy: cfg.Policy,
	}
	if s := cfg.Staging; s != nil {
		ep.limits.StagingSlots, ep.limits.StagingSlot = s.slots, s.slot
	}
	ep.direct = ep.limits
	ep.direct.Policy.RegisterAbove = -1
	if err := ep.reserve(cfg.Reserve); err != nil {
		return nil, err
	}
	if err := p.attach(ep); err != nil {
		ep.release()
		return nil, err
	}
	ep.peer = cfg.Pool.NewPeer()
	conn.AfterDone(func() { p.connectionEnded(ep) })
	return ep, nil
}

// reserve sets registrations aside, of each kind or of none.
func (ep *Endpoint) reserve(n int) error {
	for kind := range transport.NumRegistrationKinds {
		if n == 0 || ep.pool.Size(kind) == 0 {
			continue
		}
		r, err := ep.pool.Reserve(kind, n)
		if err != nil {
			ep.release()
			return fmt.Errorf("new endpoint: reserve %d registrations by %v: %w", n, kind, err)
		}
		ep.reserved[kind] = r
	}
	return nil
}

func (ep *Endpoint) release() {
	for _, r := range ep.reserved {
		r.Release()
	}
}

func setDefault(v *int, def int) {
	if *v == 0 {
		*v = def
	}
}

// Conn returns the endpoint's connection, for its addresses and parameters, and for
// Done. Its AfterDone is the endpoint's own.
func (ep *Endpoint) Conn() transport.Conn { return ep.conn }

// Limits returns what plans for this endpoint depend on.
func (ep *Endpoint) Limits() Limits { return ep.limits }

// Connect sends the connection request and waits until the connection is up. It
// blocks; see [Endpoint.Established].
func (ep *Endpoint) Connect(ctx context.Context, params transport.ConnParams) (transport.ConnInfo, error) {
	if err := ep.conn.Connect(params); err != nil {
		return transport.ConnInfo{}, err
	}
	return ep.Established(ctx)
}

// Accept answers the request of a passive connection and waits until the
// connection is up. It blocks; see [Endpoint.Established].
func (ep *Endpoint) Accept(ctx context.Context, params transport.ConnParams) (transport.ConnInfo, error) {
	if err := ep.conn.Accept(params); err != nil {
		return transport.ConnInfo{}, err
	}
	return ep.Established(ctx)
}

// Established waits until the connection is up, and lets the contexts that were
// submitted meanwhile go. It blocks. The error is that of transport.Conn's method, or what
// the endpoint has failed of (with an exclusive poller that is for whoever polls to ask
// [Endpoint.Err]); the endpoint is to be closed then.
func (ep *Endpoint) Established(ctx context.Context) (transport.ConnInfo, error) {
	info, err := ep.conn.Established(ctx)
	if err != nil {
		return info, err
	}
	ep.poller.settle(func() {
		if ep.state == connecting {
			ep.state = ready
			ep.depth, ep.readsFree = info.InitiatorDepth, info.InitiatorDepth
			ep.pump()
		}
	})
	if ep.poller.mu.off {
		return info, nil
	}
	return info, ep.Err()
}

// Err returns why the endpoint failed, or nil.
func (ep *Endpoint) Err() error {
	ep.poller.mu.Lock()
	defer ep.poller.mu.Unlock()
	return ep.cause
}

// Credits returns the free send queue slots and READ depth.
func (ep *Endpoint) Credits() (sendWRs, reads int) {
	ep.poller.mu.Lock()
	defer ep.poller.mu.Unlock()
	return ep.sqFree, ep.readsFree
}

// failure is the error of what can't be done any more.
func (ep *Endpoint) failure() error {
	if ep.cause == nil {
		return ErrClosed
	}
	return ep.cause
}

// refusal is the error of what is asked for after the failure, and so isn't to blame.
func (ep *Endpoint) refusal(what string) error {
	cause := ep.failure()
	switch {
	case errors.Is(cause, ErrClosed):
		return fmt.Errorf("%s: %w", what, cause)
	case ep.closing:
		return fmt.Errorf("%s: %w, after it had failed: %w", what, ErrClosed, cause)
	}
	return fmt.Errorf("%s: the endpoint failed earlier: %w", what, cause)
}

// Fail ends the endpoint: the queue pair goes to the error state, everything
// queued or posted comes back with cause (nil: [ErrClosed]). Buffers are free when
// their contexts are. Close (or StartClose) must still be called: it is what tells the
// peer, but for iWARP, where this does.
func (ep *Endpoint) Fail(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	p := ep.poller
	p.mu.Lock()
	ep.fail(cause)
	p.mu.Unlock()
	p.wake()
}

// Close ends the endpoint and frees it: everything under way comes back first,
// exposures that are still valid are revoked, then the queue pair is destroyed and
// the connection closed. It blocks until then, for DrainTimeout and a little more
// at the worst, and wants somebody to poll: without [Poller.Run] call it from
// another goroutine, or use [Endpoint.StartClose]. If nobody polls it closes the
// endpoint all the same, and [ErrNotPolled] says so. Closing twice is harmless.
//
// With an exclusive poller it can't wait: it does what StartClose does, and returns
// [ErrExclusive] unless that was all; likewise transport.ErrDeadlock on a stepped
// simulation.
func (ep *Endpoint) Close() error {
	ep.StartClose()
	if err := ep.poller.mayWait(); err != nil {
		select {
		case <-ep.closed:
			return ep.closeErr
		default:
			return fmt.Errorf("close: poll until Closed() is: %w", err)
		}
	}
	seen := ep.poller.lookOut()
	if !seen.wait(ep.closed, ep.drainTimeout) {
		ep.poller.pollUntil(ep.closed, forever)
	}
	return seen.verdict(ep.closeErr)
}

// StartClose begins what Close does and returns. [Endpoint.Closed] tells when it
// is through.
func (ep *Endpoint) StartClose() {
	p := ep.poller
	p.mu.Lock()
	ep.fail(ErrClosed)
	ep.closing, ep.draining = true, true
	ep.destroyIfDrained()
	p.mu.Unlock()
	p.wake()
}

// Closed is closed when the endpoint's Close is through.
func (ep *Endpoint) Closed() <-chan struct{} { return ep.closed }

// idleNow reports whether the device owes nothing.
func (ep *Endpoint) idleNow() bool {
	return ep.posted.empty() && ep.recvs == 0 && ep.pending == 0 && !ep.marker
}
