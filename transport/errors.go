package transport

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Errors that callers test for with errors.Is. Whatever a transport returns
// matches one of these, a [Status], or context.Canceled and
// context.DeadlineExceeded.
var (
	// ErrInvalid: an argument that no device accepts.
	ErrInvalid = errors.New("invalid argument")
	// ErrRegion: a piece names a region that its protection domain doesn't have.
	ErrRegion = errors.New("unknown region: it was closed, or not added to this protection domain")
	// ErrRange: a piece is not inside its region, or a remote range too short.
	ErrRange = errors.New("out of range")
	// ErrAccess: the memory lacks a right that the operation needs.
	ErrAccess = errors.New("access right missing")
	// ErrUnsupported: the device can't do this.
	ErrUnsupported = errors.New("not supported by the device")
	// ErrQueueFull: no room in the queue.
	ErrQueueFull = errors.New("queue full")
	// ErrTooManySGE: more SGEs than the operation may have.
	ErrTooManySGE = errors.New("too many SGEs")
	// ErrInlineTooLong: more inline data than the queue pair takes.
	ErrInlineTooLong = errors.New("inline data too long")
	// ErrMessageTooLong: a message over Caps.MaxMsg.
	ErrMessageTooLong = errors.New("message too long")
	// ErrReadDepth: a READ or atomic on a queue pair whose READ depth is 0.
	ErrReadDepth = errors.New("READ depth is 0: the connection was set up without initiator depth")
	// ErrBadState: the object is not in a state for this.
	ErrBadState = errors.New("wrong state")
	// ErrNoMemory: the device or the system has no more of it.
	ErrNoMemory = errors.New("out of memory or device resources")
	// ErrMemlock: the limit of locked memory was hit.
	ErrMemlock = errors.New("locked-memory limit reached: raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=)")
	// ErrBusy: still in use.
	ErrBusy = errors.New("still in use")
	// ErrClosed: the object was closed.
	ErrClosed = errors.New("closed")
	// ErrCQOverrun: completions were lost since the CQ was too small.
	ErrCQOverrun = errors.New("completion queue overrun: completions were lost; size it for whole queues")
	// ErrNoDevice: no such RDMA device.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrDeviceRemoved: the device went away.
	ErrDeviceRemoved = errors.New("device removed")
	// ErrUnreachable: address or route could not be resolved, or nobody listens.
	ErrUnreachable = errors.New("unreachable")
	// ErrRejected: the peer refused the connection; see RejectedError.
	ErrRejected = errors.New("connection rejected by the peer")
	// ErrDisconnected: the connection has ended.
	ErrDisconnected = errors.New("disconnected")
	// ErrTimeout: the peer did not answer in time.
	ErrTimeout = errors.New("timed out")
	// ErrDeadlock: a stepped simulation was asked to wait for something that can
	// no longer happen.
	ErrDeadlock = errors.New("nothing left to happen: a stepped simulation would wait for ever")
)

// Error is the error of a transport operation. Its sentinel or status is found
// by errors.Is, itself by errors.As.
type Error struct {
	// Op is the operation: a verb such as "post send", or the opcode's name for a
	// work request that failed.
	Op string
	// Device is the device's name.
	Device string
	// WR is the position of the work request in its chain, or -1.
	WR int
	// Status is the completion status, or StatusOK if there was no completion.
	Status Status
	// Vendor is the vendor's code beside Status.
	Vendor uint32
	// Errno is the system's error, or 0.
	Errno syscall.Errno
	// Err is the sentinel, if Status isn't the cause.
	Err error
	// Detail says what about it, and what to do.
	Detail string
}

// Error formats all that is known.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Device != "" {
		b.WriteString(e.Device)
		b.WriteString(": ")
	}
	b.WriteString(e.Op)
	if e.WR >= 0 {
		fmt.Fprintf(&b, " (request %d of its chain)", e.WR)
	}
	if e.Status != StatusOK {
		fmt.Fprintf(&b, ": %v", e.Status)
		if e.Vendor != 0 {
			fmt.Fprintf(&b, " (vendor %#x)", e.Vendor)
		}
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Errno != 0 {
		fmt.Fprintf(&b, " (%v)", e.Errno)
	}
	if e.Detail != "" {
		b.WriteString("; ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

// Unwrap makes the sentinel, the status and the errno visible to errors.Is.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Err != nil {
		all = append(all, e.Err)
	}
	if e.Status != StatusOK {
		all = append(all, e.Status)
	}
	if e.Errno != 0 {
		all = append(all, e.Errno)
	}
	return all
}

// RejectedError is a connection request that the peer refused. It matches
// [ErrRejected].
type RejectedError struct {
	// Reason is the CM's code (28: the consumer said no; others: no listener and
	// the like), as the transport reports it.
	Reason int
	// PrivateData is what the peer sent along. It may be padded with zeros.
	PrivateData []byte
}

// Error tells the reason.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("%v (reason %d, %d bytes of private data)", ErrRejected, e.Reason, len(e.PrivateData))
}

// Is matches ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }
