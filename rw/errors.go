package rw

import (
	"errors"
	"fmt"

	"rdmarw/transport"
)

// Errors of this package. Those of the transport (a sentinel such as
// transport.ErrRange, or a transport.Status) and of package mrpool pass through,
// wrapped in a *transport.Error where a work request is to blame.
var (
	// ErrTooLarge: the transfer needs more than the endpoint can ever give it at
	// once: send queue slots, registrations that others have not taken for good or set
	// aside. Refused before anything is posted.
	ErrTooLarge = errors.New("larger than the endpoint can ever carry out")
	// ErrQPFailed: the queue pair went to the error state though its connection is up, and
	// no request of its own is to blame. It stands for transport.ErrDisconnected, too.
	ErrQPFailed = errors.New("the queue pair failed here while its connection was up: most often the peer used a key or a range that it doesn't have " +
		"(Device.Events tells), else the connection ended at this moment")
	// ErrInUse: the context is under way already.
	ErrInUse = errors.New("context in use")
	// ErrNotPrepared: the context has nothing to submit.
	ErrNotPrepared = errors.New("context not prepared")
	// ErrChain: these contexts can't be chained.
	ErrChain = errors.New("contexts can't be chained like this")
	// ErrClosed: the endpoint or poller was closed, or is being closed.
	ErrClosed = errors.New("endpoint closed")
	// ErrCanceled: the context was taken back before it was posted, or the endpoint
	// was failed to get it back.
	ErrCanceled = errors.New("canceled")
	// ErrInvalidation: the peer invalidated a key that it was not asked to.
	ErrInvalidation = errors.New("peer invalidated a key that was not offered for it")
	// ErrExclusive: a call that waits for others to poll, on an endpoint of a poller
	// that belongs to one goroutine.
	ErrExclusive = errors.New("the poller is exclusive: nobody else polls")
	// ErrNotPolled: a call that waits for others to poll has waited in vain. Beside it stands
	// how it ended: whatever it promises has been kept.
	ErrNotPolled = errors.New("nobody polls: start go poller.Run(ctx, nil), and end it after the endpoints are closed")
	// ErrCQTooSmall: the poller's completion queue can't hold what another
	// endpoint might complete.
	ErrCQTooSmall = errors.New("completion queue too small for one more endpoint")
)

// qpFailed is ErrQPFailed, for those, too, who ask only whether the connection is over.
type qpFailed struct{}

func (qpFailed) Error() string { return ErrQPFailed.Error() }

// Is matches what it stands for.
func (qpFailed) Is(target error) bool {
	return target == ErrQPFailed || target == transport.ErrDisconnected
}

// notPrepared says why a context isn't one that can be submitted (or, if receives, posted
// as a receive): it isn't mine, or not prepared, or of the other sort. All match
// ErrNotPrepared.
func notPrepared(c *Context, mine, receives bool) error {
	switch {
	case c == nil:
		return fmt.Errorf("nil is given: %w", ErrNotPrepared)
	case c.state == idle && c.op == Grant:
		return fmt.Errorf("grant of what was granted or revoked already, or never exposed: %w", ErrNotPrepared)
	case c.state == idle && c.op == Revoke:
		return fmt.Errorf("revocation of what was revoked already, or never exposed: %w", ErrNotPrepared)
	case c.state == idle:
		return ErrNotPrepared
	case c.state != prepared:
		return fmt.Errorf("the %v is under way: %w (%w)", c.op, ErrInUse, ErrNotPrepared)
	case !mine:
		return fmt.Errorf("the %v was prepared on another endpoint or SRQ: %w", c.op, ErrNotPrepared)
	case c.op == Recv && !receives:
		return fmt.Errorf("a receive is posted by PostRecv, not by Submit: %w", ErrNotPrepared)
	case c.op != Recv && receives:
		return fmt.Errorf("a %v is posted by Submit, not by PostRecv: %w", c.op, ErrNotPrepared)
	}
	return fmt.Errorf("the %v is given twice: %w", c.op, ErrNotPrepared)
}
