package transport

import "context"

// Device is an opened RDMA device. Its methods may be called from any
// goroutine.
//
// Objects are closed in this order: registrations, connections with their
// queue pairs, shared receive queues, CQs, regions taken out of protection
// domains, protection domains, regions, device. Close of an object that others
// still use fails with [ErrBusy] and changes nothing; closing twice is harmless.
type Device interface {
	// Caps describes the device. The struct is not to be changed.
	Caps() *Caps
	// NewPD makes a protection domain.
	NewPD() (PD, error)
	// NewCQ makes a completion queue for at least entries completions. Size it
	// for whole send and receive queues: flushed requests complete even when
	// they were unsignaled.
	NewCQ(entries int) (CQ, error)
	// NewRegion allocates memory. It has no lkey until it is added to a
	// protection domain.
	NewRegion(cfg RegionConfig) (*Region, error)
	// WrapRegion makes a region of memory that somebody else allocated (huge
	// pages, memfd, C, vhost, never the Go heap): size bytes at addr. It keeps
	// owner alive until the region is closed, and never frees the memory.
	WrapRegion(addr uintptr, size int, access Access, owner any) (*Region, error)
	// Resolve starts an outgoing connection: it finds address and route of
	// "host:port".
	Resolve(ctx context.Context, addr string) (Conn, error)
	// Listen waits for connections on "host:port"; port 0 picks one.
	Listen(addr string) (Listener, error)
	// Events delivers what happens outside of any completion. The channel holds
	// 64 events; more are dropped, newest first. It is closed by Close.
	Events() <-chan Event
	Close() error
}

// Stepped is what those simulated devices implement that move only when the one goroutine
// that uses them says so: who would wait there for another to do something can be told so.
type Stepped interface {
	Device
	// Stepped reports whether the device is one of those.
	Stepped() bool
}

// EventKind tells what an [Event] is about.
type EventKind uint8

// Event kinds.
const (
	// EventQPFatal: a queue pair went to the error state.
	EventQPFatal EventKind = iota
	// EventQPAccess: a queue pair refused a peer's request.
	EventQPAccess
	// EventCQError: a CQ overran.
	EventCQError
	// EventPort: a port changed state.
	EventPort
	// EventDeviceRemoved: the device is gone. All connections end.
	EventDeviceRemoved
	// EventOther: anything else; see Event.Detail.
	EventOther
)

// Event is something that happened to the device.
type Event struct {
	Kind EventKind
	// QPN is the queue pair's number for events about one, else zero.
	QPN uint32
	// Detail is the device's own word for it.
	Detail string
}

// PD is a protection domain: keys and queue pairs of different domains don't
// know each other. Its methods may be called from any goroutine.
type PD interface {
	Device() Device
	// AddRegion registers a region here: pieces of it can be used by this
	// domain's queue pairs from now on. It may block.
	AddRegion(r *Region) error
	// RemoveRegion takes it out again: its lkey is dead when this returns. It
	// fails with ErrBusy while a registration covers part of it. Removing a
	// region that isn't there is harmless.
	RemoveRegion(r *Region) error
	// Regions is the table of the regions that were added.
	Regions() *RegionTable
	// NewRegistration makes a registration object. maxPages is the largest page
	// list of a FastMR, other kinds ignore it. Errors match ErrUnsupported or
	// ErrNoMemory.
	NewRegistration(kind RegistrationKind, maxPages int) (Registration, error)
	// NewSRQ makes a shared receive queue of at least the given size.
	NewSRQ(maxWR, maxSGE int) (SRQ, error)
	Close() error
}

// CQ is a completion queue. Poll and Wait are called by one goroutine at a
// time, Wake by any.
type CQ interface {
	// Poll fills dst with completions in the order they arrived, and returns how
	// many. It never blocks. ErrCQOverrun means that completions were lost: none
	// of the queue pairs can be trusted any more.
	Poll(dst []Completion) (int, error)
	// Arm asks for an event upon the next completion. Poll once more after it and
	// before Wait: a completion from before Arm makes no event.
	Arm() error
	// Wait parks until the event that was armed, a Wake, or the end of ctx. It
	// may return early without reason. It returns nil, or ctx's error, or
	// ErrClosed.
	Wait(ctx context.Context) error
	// Wake makes the Wait that is under way, or else the next one, return.
	Wake()
	Close() error
}

// QueueCaps are the sizes of a queue pair: asked for in QPConfig, and granted,
// which may be more.
type QueueCaps struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	// MaxInline is in bytes.
	MaxInline int
}

// QPConfig asks for a queue pair.
type QPConfig struct {
	PD     PD
	SendCQ CQ
	RecvCQ CQ
	// SRQ, if not nil, replaces the receive queue.
	SRQ SRQ
	QueueCaps
}

// QPState is the state of a queue pair.
type QPState uint8

// States.
const (
	// QPInit: receives can be posted, nothing moves.
	QPInit QPState = iota
	// QPReady: connected (RTS).
	QPReady
	// QPError: everything flushes.
	QPError
)

// String returns the state's name.
func (s QPState) String() string {
	return [...]string{"INIT", "RTS", "ERR"}[min(s, QPError)]
}

// QP is a reliable connected queue pair. PostSend is called by one goroutine at
// a time, and so is PostRecv; the two may run side by side.
type QP interface {
	// Num is the queue pair's number. Numbers are reused after Close.
	Num() uint32
	// Granted returns the real sizes.
	Granted() QueueCaps
	// PostSend posts a chain in one step and returns how many requests were
	// accepted, counted from the first. Those will run and complete whatever the
	// error says. wrs and sges are free again when it returns.
	//
	// Errors match ErrQueueFull, ErrTooManySGE, ErrInlineTooLong,
	// ErrMessageTooLong, ErrUnsupported, ErrReadDepth, ErrBadState, ErrNoMemory
	// or ErrInvalid; Error.WR is the refused request.
	PostSend(wrs []WR, sges []SGE) (int, error)
	// PostRecv posts receives, in states QPInit and QPReady; in QPError they
	// flush at once or are refused. Not for queue pairs with an SRQ.
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	// State returns the state as far as it is known here.
	State() QPState
	// Fail moves to the error state: what is outstanding flushes. On some devices
	// (siw) what is posted afterwards never completes. Nothing leads out of it: if the
	// connection isn't up yet, it will not be, which Accept (ErrInvalid) or Established
	// (ErrUnreachable) says. Then Close the connection, or the peer may wait on.
	Fail() error
}

// SRQ is a shared receive queue. Its methods may be called from any goroutine.
type SRQ interface {
	PostRecv(wrs []RecvWR, sges []SGE) (int, error)
	Granted() QueueCaps
	Close() error
}
