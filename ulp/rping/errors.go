package rping

import "errors"

// What the peer did wrong.
var (
	// ErrMessage: a message that is none of this protocol's.
	ErrMessage = errors.New("malformed message")
	// ErrSize: a ping that is larger than the server takes, or a sink too small for
	// what is to be written to it.
	ErrSize = errors.New("size out of range")
	// ErrData: data arrived that is not what was sent.
	ErrData = errors.New("data mismatch")
)
