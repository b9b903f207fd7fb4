package rw

import "fmt"

// Op is what a [Context] does.
type Op uint8

// Operations.
const (
	// Read fetches from the peer's memory into local memory.
	Read Op = iota + 1
	// Write stores local memory into the peer's memory.
	Write
	// Send sends a message.
	Send
	// Recv receives one.
	Recv
	// Grant makes an exposure's keys valid.
	Grant
	// Revoke makes them invalid.
	Revoke
)

// String returns the operation's name.
func (o Op) String() string {
	switch o {
	case Read:
		return "READ"
	case Write:
		return "WRITE"
	case Send:
		return "SEND"
	case Recv:
		return "RECV"
	case Grant:
		return "grant"
	case Revoke:
		return "revoke"
	}
	return fmt.Sprintf("op(%d)", uint8(o))
}
