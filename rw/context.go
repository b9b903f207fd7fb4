package rw

import (
	"rdmarw/mrpool"
	"rdmarw/transport"
)

// Context is one operation on an endpoint: the "rw context" (Linux:
// rdma_rw_ctx; it has nothing to do with context.Context). It is owned by the
// caller, may be embedded in a request, and is used again and again: prepared,
// submitted, returned by [Poller.Poll]. Its memory is warm after the first use;
// then nothing is allocated.
//
// From Submit to its return a context, the lists it was prepared with and the
// memory they describe belong to the endpoint. The zero value is ready.
type Context struct {
	// Owner is the caller's, untouched.
	Owner any
	// OnDone, if not nil, is called when the context is done, by the goroutine
	// that polls, instead of returning the context from Poll. It must not block;
	// it may prepare and submit contexts, this one too.
	OnDone func(*Context)

	waiter func(*Context) // of a Do, instead of OnDone

	ep    *Endpoint
	srq   *SRQ // that a receive without an endpoint was prepared for
	op    Op
	state contextState
	// plain: takes nothing but queue slots and READ depth, and leaves nothing that has to
	// be put back.
	plain bool
	err   error
	next  *Context // in a chain, or in the list of those done

	transfer Transfer
	plan     plan
	regions  transport.RegionView // that a transfer, unless it is direct, was checked against
	mrs      []*mrpool.MR
	staged   []int32 // slots
	exposure *Exposure

	// span of the context in its chain: positions of its first request and of the
	// one after its last.
	first, end int

	received Received
}

// contextState is where a context is on its way.
type contextState uint8

const (
	idle contextState = iota
	prepared
	// queued: waits for credits and holds nothing.
	queued
	// registering: has its credits; a worker registers memory for it.
	registering
	// posted: the device has it.
	posted
	// finishing: the device is done with it; a worker makes its keys dead.
	finishing
	// done: about to be returned.
	done
)

// Received is what a receive got.
type Received struct {
	// Len is the length of the message in bytes.
	Len int
	// HasImm tells that Imm is valid.
	HasImm bool
	Imm    uint32
	// Invalidated is the exposure that the message invalidated, if any.
	Invalidated *Exposure
}

// Op returns what the context was prepared for.
func (c *Context) Op() Op { return c.op }

// Err returns how the context ended: nil if everything went well. The first
// failure of an endpoint is the error of the context it happened in, a
// *transport.Error with the status and the position of the request in its chain;
// what was flushed for it carries it as the cause.
func (c *Context) Err() error { return c.err }

// Plan returns the decision that Prepare took.
func (c *Context) Plan() Plan { return c.plan.Plan }

// Received returns what a receive got.
func (c *Context) Received() Received { return c.received }

// Endpoint returns the endpoint that the context was last prepared on; of a receive from
// an SRQ, the one that received by it.
func (c *Context) Endpoint() *Endpoint { return c.ep }

// begin readies the context for another use on ep.
func (c *Context) begin(ep *Endpoint, op Op) error {
	if c.state != idle && c.state != prepared {
		return ErrInUse
	}
	if x := c.exposure; x != nil {
		if x.live() {
			return ErrInUse
		}
		c.exposure = nil
	}
	if c.op == Recv {
		c.received = Received{}
	}
	c.ep, c.op, c.state, c.err = ep, op, idle, nil
	c.plain = false
	c.first, c.end = 0, 0
	return nil
}

// Prepare plans a transfer. It checks everything that can be checked, takes
// nothing and posts nothing; what it refuses is untouched. t's lists must stay
// unchanged until the context is done.
//
// Errors match transport.ErrInvalid, ErrRange, ErrAccess, ErrRegion or
// ErrUnsupported for a bad transfer, [ErrTooLarge] for one that could never run,
// [ErrInUse].
func (ep *Endpoint) Prepare(c *Context, t Transfer) error {
	if err := c.begin(ep, t.Op); err != nil {
		return err
	}
	c.transfer = t
	regions := ep.regions.View()
	if err := c.plan.make(&c.transfer, &ep.limits, regions); err != nil {
		return err
	}
	if c.plan.Strategy == Direct {
		c.plain = !c.plan.feeds(&ep.limits)
	} else {
		c.regions = regions
	}
	c.state = prepared
	return nil
}

// Message describes a SEND.
type Message struct {
	// Local is the message, gathered: at most the endpoint's SGEs.
	Local []transport.Piece
	// Invalidate, if HasInvalidate, is a key of the peer's that its device
	// invalidates before the message is delivered.
	Invalidate    transport.RKey
	HasInvalidate bool
	// Imm, if HasImm, travels with the message.
	Imm    uint32
	HasImm bool
	// Inline copies the message when it is posted.
	Inline bool
	// Solicited wakes peers that wait for such messages only.
	Solicited bool
}

// PrepareSend prepares a message. See [Endpoint.Prepare].
func (ep *Endpoint) PrepareSend(c *Context, m Message) error {
	if err := c.begin(ep, Send); err != nil {
		return err
	}
	wr := transport.WR{Op: transport.OpSend}
	caps := ep.limits.Caps
	switch {
	case m.HasInvalidate && m.HasImm:
		return refuse("SEND", transport.ErrInvalid, "a message can't both invalidate and carry immediate data")
	case m.HasInvalidate && !caps.SendWithInv:
		return refuse("SEND_WITH_INV", transport.ErrUnsupported, caps.Device)
	case m.HasImm && !caps.WriteWithImm:
		return refuse("SEND_WITH_IMM", transport.ErrUnsupported, caps.Device)
	case m.HasInvalidate:
		wr.Op, wr.RKey = transport.OpSendWithInv, m.Invalidate
	case m.HasImm:
		wr.Op, wr.Imm = transport.OpSendWithImm, m.Imm
	}
	if m.Inline {
		wr.Flags |= transport.Inline
	}
	if m.Solicited {
		wr.Flags |= transport.Solicited
	}
	n, err := c.gather(m.Local, 0, ep.regions, ep.limits.SendSGE)
	if err != nil {
		return err
	}
	if n > caps.MaxMsg && caps.MaxMsg > 0 {
		return refuse("SEND", transport.ErrMessageTooLong, "")
	}
	if m.Inline && n > uint64(ep.granted.MaxInline) {
		return refuse("SEND", transport.ErrInlineTooLong, "")
	}
	wr.NumSGE = uint16(len(c.plan.sges))
	c.plan.wrs = append(c.plan.wrs, wr)
	c.plan.Plan = Plan{Strategy: Direct, Bytes: n, Cost: Cost{WRs: 1}}
	c.plain = true
	c.state = prepared
	return nil
}

// PrepareRecv prepares a receive of at most the list's length. Post it with
// [Endpoint.PostRecv].
func (ep *Endpoint) PrepareRecv(c *Context, local []transport.Piece) error {
	return c.prepareRecv(ep, local, ep.regions, ep.granted.MaxRecvSGE)
}

func (c *Context) prepareRecv(ep *Endpoint, local []transport.Piece, regions *transport.RegionTable, limit int) error {
	if err := c.begin(ep, Recv); err != nil {
		return err
	}
	n, err := c.gather(local, transport.LocalWrite, regions, limit)
	if err != nil {
		return err
	}
	c.plan.Plan = Plan{Strategy: Direct, Bytes: n}
	c.state = prepared
	return nil
}

// gather turns a list into the context's SGEs.
func (c *Context) gather(local []transport.Piece, need transport.Access, table *transport.RegionTable, limit int) (uint64, error) {
	c.plan.reset()
	regions := table.View()
	var total uint64
	for _, piece := range local {
		if piece.Len == 0 {
			continue
		}
		e, err := regions.Check(piece, need)
		if err != nil {
			return 0, err
		}
		total += uint64(piece.Len)
		c.plan.sges = append(c.plan.sges, transport.SGE{Addr: piece.Addr, Len: piece.Len, LKey: e.LKey})
	}
	if len(c.plan.sges) > limit {
		return 0, refuse(c.op.String(), transport.ErrTooManySGE, "gather the message into fewer pieces")
	}
	return total, nil
}

func refuse(op string, err error, detail string) error {
	return &transport.Error{Op: op, WR: -1, Err: err, Detail: detail}
}
