package transporttest

import (
	"context"
	"errors"
	"fmt"

	"rdmarw/transport"
)

// statusWords are the statuses as the table spells them.
var statusWords = map[transport.Status]string{
	transport.StatusOK:              "ok",
	transport.StatusLocalLength:     "local-length",
	transport.StatusLocalQPOp:       "local-op",
	transport.StatusLocalProtection: "local-protection",
	transport.StatusFlushed:         "flushed",
	transport.StatusBindWindow:      "bind-error",
	transport.StatusBadResponse:     "bad-response",
	transport.StatusLocalAccess:     "local-access",
	transport.StatusRemoteInvalid:   "remote-invalid",
	transport.StatusRemoteAccess:    "remote-access",
	transport.StatusRemoteOp:        "remote-op",
	transport.StatusRetryExceeded:   "retries-out",
	transport.StatusRNRExceeded:     "rnr-out",
	transport.StatusFatal:           "fatal",
	transport.StatusGeneral:         "general",
}

func statusWord(s transport.Status) string {
	if w, ok := statusWords[s]; ok {
		return w
	}
	return fmt.Sprintf("status-%d", uint8(s))
}

// sentinels are the contract's errors as the table spells them, in the order in which
// they are asked for: an error may match several.
var sentinels = []struct {
	err  error
	word string
}{
	{transport.ErrUnreachable, "unreachable"},
	{transport.ErrRejected, "rejected"},
	{transport.ErrInvalid, "invalid"},
	{transport.ErrRegion, "region"},
	{transport.ErrRange, "range"},
	{transport.ErrAccess, "access"},
	{transport.ErrUnsupported, "unsupported"},
	{transport.ErrQueueFull, "queue-full"},
	{transport.ErrTooManySGE, "too-many-sges"},
	{transport.ErrInlineTooLong, "inline-too-long"},
	{transport.ErrMessageTooLong, "message-too-long"},
	{transport.ErrReadDepth, "read-depth"},
	{transport.ErrBadState, "bad-state"},
	{transport.ErrNoMemory, "no-memory"},
	{transport.ErrMemlock, "memlock"},
	{transport.ErrBusy, "busy"},
	{transport.ErrClosed, "closed"},
	{transport.ErrCQOverrun, "overrun"},
	{transport.ErrNoDevice, "no-device"},
	{transport.ErrDeviceRemoved, "removed"},
	{transport.ErrDisconnected, "disconnected"},
	{transport.ErrTimeout, "timeout"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline"},
}

// foreign begins the word for an error that the contract doesn't have.
const foreign = "not-in-the-contract"

// errorWord is the contract's word for an error: "ok" for none. An error that matches
// nothing that the contract has is spelled out, for everybody to see.
func errorWord(err error) string {
	if err == nil {
		return "ok"
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.word
		}
	}
	return fmt.Sprintf("%s(%v)", foreign, err)
}

// stateWord is the state of a queue pair.
func stateWord(q transport.QP) string { return q.State().String() }
