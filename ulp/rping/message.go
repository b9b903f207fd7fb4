package rping

import (
	"encoding/binary"
	"fmt"

	"rdmarw/transport"
)

// messageLen is the length of every message.
const messageLen = 16

// putMessage writes a message about memory of this side's.
func putMessage(b []byte, r transport.Remote) {
	binary.BigEndian.PutUint64(b, r.Addr)
	binary.BigEndian.PutUint32(b[8:], uint32(r.Key))
	binary.BigEndian.PutUint32(b[12:], r.Len)
}

// parseMessage reads a message. What it says is not to be believed: a range may
// be refused by the peer's device, and a length may be anything.
func parseMessage(b []byte) (transport.Remote, error) {
	if len(b) != messageLen {
		return transport.Remote{}, fmt.Errorf("%w: %d bytes, not %d", ErrMessage, len(b), messageLen)
	}
	return transport.Remote{
		Addr: binary.BigEndian.Uint64(b),
		Key:  transport.RKey(binary.BigEndian.Uint32(b[8:])),
		Len:  binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// checkOffer refuses what no client offers: nothing, nowhere, or more than most.
func checkOffer(r transport.Remote, least, most int) error {
	switch {
	case r.Key == 0:
		return fmt.Errorf("%w: %v has no key", ErrMessage, r)
	case r.Addr > ^uint64(0)-uint64(r.Len):
		return fmt.Errorf("%w: %v wraps around", ErrMessage, r)
	case uint64(r.Len) < uint64(least) || uint64(r.Len) > uint64(most):
		return fmt.Errorf("%w: %v, expected %d to %d bytes", ErrSize, r, least, most)
	}
	return nil
}
