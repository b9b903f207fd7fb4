package transport

import (
	"context"
	"time"
)

// ConnParams are the parameters of a connection. Zero values are sensible.
type ConnParams struct {
	// PrivateData goes to the peer with the request (at most 56 bytes) or the
	// answer (at most 196 bytes). Receivers may see it padded with zeros.
	PrivateData []byte
	// InitiatorDepth is how many own READs may be outstanding, ResponderResources
	// how many of the peer's are answered at a time. Zero: what device (and,
	// when accepting, the peer's request) allow; negative: none. Larger values
	// are cut to what is possible.
	InitiatorDepth, ResponderResources int
	// RetryCount is how often an unanswered packet is sent again (0 .. 7), by both
	// sides; the active one's counts, Accept's is ignored. RNRRetryCount is how often
	// the peer sends a message again for which this side has no receive posted, 7:
	// without end; it waits for at least 0.64 ms each time. Zero: 7 for both;
	// negative: none. (InfiniBand's CM messages carry both numbers to whom they tell
	// something: cm_req_handler and cm_rep_handler of Linux's ib_cm.)
	RetryCount, RNRRetryCount int
	// AckTimeout is how long to wait for an answer before sending again. Zero:
	// the CM's choice. iWARP ignores the last three.
	AckTimeout time.Duration
	// TOS is the type of service.
	TOS uint8
}

// Depths and data that a connection was asked for, or agreed on.
type ConnInfo struct {
	// PrivateData came from the peer. It may be padded with zeros.
	PrivateData []byte
	// InitiatorDepth and ResponderResources are from this side's point of view:
	// in a request, the most that the peer permits; once established, what is
	// in force.
	InitiatorDepth, ResponderResources int
}

// Conn is a connection in the making, or made. The order of calls is what
// receives need: they must be posted before the peer can send.
//
//	active:  Resolve -> CreateQP -> PostRecv -> Connect -> Established
//	passive: Listener.Next -> CreateQP -> PostRecv -> Accept -> Established
//	                       -> Reject
//
// Methods may be called from any goroutine, in that order.
type Conn interface {
	// CreateQP makes the connection's queue pair, once, in state QPInit.
	CreateQP(cfg QPConfig) (QP, error)
	// QP returns it, or nil.
	QP() QP

	// Request is what the peer asked for. Passive side only.
	Request() ConnInfo
	// Connect sends the connection request and returns.
	Connect(p ConnParams) error
	// Accept answers the request and returns. On iWARP the passive side must not
	// send before it has received something (RFC 5044 7.1.3: the initiator's first
	// message is what tells it that its answer arrived): siw fails the connection
	// now and then if it does.
	Accept(p ConnParams) error
	// Reject refuses the request, with up to 148 bytes of private data. The
	// connection is to be closed afterwards.
	Reject(privateData []byte) error
	// Established waits until the connection is up. Errors match ErrRejected (see
	// RejectedError), ErrTimeout, ErrUnreachable, ErrDisconnected or ctx's.
	Established(ctx context.Context) (ConnInfo, error)

	// Done is closed when the connection has ended, or has failed to come up,
	// for whatever reason. The queue pair is in the error state then: everything
	// outstanding flushes.
	Done() <-chan struct{}
	// AfterDone arranges for f to be called once when Done is closed; at once if
	// it is closed already. It spares owners of many connections a goroutine
	// each. f must not block, and must not call methods of the Conn other than
	// Err. Each call replaces the function of the one before.
	AfterDone(f func())
	// Err tells why: ErrDisconnected, ErrDeviceRemoved ..., nil before Done.
	Err() error
	// Disconnect ends the connection and moves the queue pair to the error state.
	// It does not wait. Calling it twice is harmless.
	Disconnect() error
	// Close disconnects, destroys the queue pair and frees the connection. No
	// memory of the connection's operations is touched after it returns, even
	// if they never completed. It may block. Closing twice is harmless.
	Close() error
	// LocalAddr and RemoteAddr are "host:port".
	LocalAddr() string
	RemoteAddr() string
}

// Listener receives connection requests.
type Listener interface {
	// Next waits for a request. A request that nobody answers times out at the
	// peer. Errors match ErrClosed or ctx's.
	Next(ctx context.Context) (Conn, error)
	// Addr is "host:port" with the real port.
	Addr() string
	// Close stops listening; requests that were not taken are rejected.
	Close() error
}
