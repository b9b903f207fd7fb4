package transport

import "fmt"

// Status tells how a work request ended. It is an error value: a returned
// error that was caused by a completion matches its status under errors.Is.
type Status uint8

// Statuses, in the verbs sense.
const (
	StatusOK Status = iota
	// StatusLocalLength: a message longer than the receive, or over the limit.
	StatusLocalLength
	// StatusLocalQPOp: the request itself was not legal on this queue pair.
	StatusLocalQPOp
	// StatusLocalProtection: an lkey was unknown, lacked the right or the range.
	StatusLocalProtection
	// StatusFlushed: the request did not run (or was cut off) because the queue
	// pair went to the error state for another reason. Never the cause.
	StatusFlushed
	// StatusBindWindow: a BIND_MW or FAST_REG was refused.
	StatusBindWindow
	// StatusBadResponse: the peer's answer made no sense.
	StatusBadResponse
	// StatusLocalAccess: an incoming request hit a local protection error (seen
	// on receives of WRITE_WITH_IMM).
	StatusLocalAccess
	// StatusRemoteInvalid: the peer's device found the request malformed.
	StatusRemoteInvalid
	// StatusRemoteAccess: the peer refused the key, range or right. On iWARP
	// that ends the connection, and many devices just flush.
	StatusRemoteAccess
	// StatusRemoteOp: the peer could not carry out the request.
	StatusRemoteOp
	// StatusRetryExceeded: the peer did not answer.
	StatusRetryExceeded
	// StatusRNRExceeded: the peer had no receive posted.
	StatusRNRExceeded
	// StatusFatal: the device failed.
	StatusFatal
	// StatusGeneral: anything else.
	StatusGeneral
	numStatuses
)

var statusText = [numStatuses]string{
	"success",
	"local length error: the message is longer than the receive buffer or than the device's largest message",
	"local queue pair operation error: the request is not legal on this queue pair",
	"local protection error: an lkey is unknown or does not grant the range or the right",
	"flushed: the queue pair was in error already",
	"memory window or registration refused",
	"bad response",
	"local access error on an incoming request",
	"remote invalid request: the peer's device found the request malformed",
	"remote access error: the peer's key is revoked or does not grant the range or the right",
	"remote operation error",
	"transport retries exceeded: the peer does not answer",
	"RNR retries exceeded: the peer has no receive posted",
	"fatal device error",
	"general error",
}

// Error says what the status means.
func (s Status) Error() string {
	if s < numStatuses {
		return statusText[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// CompletionFlags say which further fields of a successful completion count.
type CompletionFlags uint8

// Completion flags.
const (
	// WithImm: Imm holds immediate data.
	WithImm CompletionFlags = 1 << iota
	// WithInv: the peer invalidated InvKey. Only devices with
	// Caps.CompletionReportsInv tell.
	WithInv
	// Receive: the completion is of a receive, and ByteLen counts.
	Receive
)

// Completion reports the end of a work request.
//
// On error only Cookie, QPN, Status and Vendor mean anything: in particular
// not Flags, which is why requests are told apart by cookie alone.
type Completion struct {
	Cookie uint64
	// QPN is the number of the queue pair: it is what tells receives of an SRQ
	// apart.
	QPN    uint32
	Vendor uint32
	Imm    uint32
	// InvKey is the own key that the peer invalidated (flag WithInv).
	InvKey RKey
	// ByteLen is the length of a received message in bytes. Not set for other
	// requests: devices leave junk there.
	ByteLen uint32
	Status  Status
	Flags   CompletionFlags
}
