package mrpool

import (
	"strings"

	"rdmarw/transport"
)

// LocalOps says what the local device will do with memory under an lkey.
type LocalOps uint8

// Local operations.
const (
	// Send: the memory is the source of a SEND.
	Send LocalOps = 1 << iota
	// Receive: messages land in it.
	Receive
	// ReadSink: the data of own READs lands in it.
	ReadSink
	// WriteSource: own WRITEs take their data from it.
	WriteSource
)

// RemoteOps says what the peer may do with memory under an rkey.
type RemoteOps uint8

// Remote operations.
const (
	// ReadSource: the peer may READ it.
	ReadSource RemoteOps = 1 << iota
	// WriteSink: the peer may WRITE it.
	WriteSink
)

// Access returns the rights that the operations need on a device. A READ sink
// needs RemoteWrite where the READ response is checked like a WRITE: on iWARP
// hardware, and there only (RFC 5040 5.1; rw.c adds it on iWARP ports). Nothing
// else in this module adds a remote right to an lkey.
func (o LocalOps) Access(caps *transport.Caps) transport.Access {
	var a transport.Access
	if o&(Receive|ReadSink) != 0 {
		a |= transport.LocalWrite
	}
	if o&ReadSink != 0 && caps.ReadSinkNeedsRemoteWrite {
		a |= transport.RemoteWrite
	}
	return a
}

// Access returns the rights that the operations need on any device.
func (o RemoteOps) Access() transport.Access {
	var a transport.Access
	if o&ReadSource != 0 {
		a |= transport.RemoteRead
	}
	if o&WriteSink != 0 {
		a |= transport.LocalWrite | transport.RemoteWrite
	}
	return a
}

// regionAccess is what a region must grant before a part of it is mapped with
// the given rights: the peer's rights are the registration's own, but nobody can
// be given a right to write to memory that isn't writable at all.
func regionAccess(a transport.Access) transport.Access { return a & transport.LocalWrite }

// String lists the operations, separated by "+".
func (o LocalOps) String() string {
	return bitNames(uint8(o), "send", "receive", "READ sink", "WRITE source")
}

// String lists the operations, separated by "+".
func (o RemoteOps) String() string { return bitNames(uint8(o), "READ source", "WRITE sink") }

func bitNames(bits uint8, names ...string) string {
	var set []string
	for i, name := range names {
		if bits&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	if set == nil {
		return "nothing"
	}
	return strings.Join(set, "+")
}
