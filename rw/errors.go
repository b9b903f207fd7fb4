package rw

import "errors"

// Errors of this package. Those of the transport (a sentinel such as
// transport.ErrRange, or a transport.Status) and of package mrpool pass through,
// wrapped in a *transport.Error where a work request is to blame.
var (
	// ErrTooLarge: the transfer needs more than the endpoint can ever give it at
	// once: send queue slots, registrations. Refused before anything is posted.
	ErrTooLarge = errors.New("larger than the endpoint can ever carry out")
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
