package host

import (
	"errors"
	"fmt"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// Errors of this package. Those of rw and transport pass through, wrapped.
var (
	// ErrLost: the connection to the controller was lost before the answer came. The
	// command may have been carried out, or not. Its memory is the caller's again.
	ErrLost = errors.New("connection to the controller lost")
	// ErrClosed: the controller was closed here.
	ErrClosed = errors.New("controller closed")
	// ErrChanged: under the namespace's number there is another one by now, or none, or its
	// blocks are others. This Namespace is of no use any more.
	ErrChanged = errors.New("the namespace is not what it was: ask Controller.Namespace again for what is there now")
	// ErrTimeout: a command, or a keep alive, was not answered in time.
	ErrTimeout = errors.New("the controller does not answer")
	// ErrProtocol: the controller sent what the specification forbids.
	ErrProtocol = errors.New("the controller broke the protocol")
	// ErrFull: as many commands as the queues hold are under way.
	ErrFull = errors.New("all queues are full")
	// ErrInUse: the request is under way.
	ErrInUse = errors.New("request in use")
	// ErrNotPrepared: the request was never prepared, or has been carried out since.
	ErrNotPrepared = errors.New("request not prepared")
	// ErrUnaligned: not a multiple of the block size.
	ErrUnaligned = errors.New("not a multiple of the block size")
	// ErrTooLarge: more than one command can move.
	ErrTooLarge = errors.New("more than one command can move")
	// ErrUnsupported: the controller can't do this, or not in a way that this host
	// understands.
	ErrUnsupported = errors.New("not supported by the controller")
)

// CommandError is a command that the controller answered with a status other than
// success. It matches its [nvme.Status].
type CommandError struct {
	// Command is what it was, for people.
	Command string
	Status  nvme.Status
	// Result is what the completion holds besides: for a Connect, where the wrong
	// parameter is.
	Result uint64
}

// Error says which command ended how.
func (e *CommandError) Error() string { return e.Command + ": " + e.Status.String() }

// Unwrap returns the status.
func (e *CommandError) Unwrap() error { return e.Status }

// rejected says why a target refused a connection, where it said so.
func rejected(err error) error {
	var r *transport.RejectedError
	if !errors.As(err, &r) {
		return err
	}
	var why nvme.ConnReject
	if why.Decode(r.PrivateData) != nil || why.Reason == 0 {
		return err
	}
	return fmt.Errorf("%w: %v", err, why.Reason)
}
