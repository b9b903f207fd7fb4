package transport

import "fmt"

// LKey names registered memory to the local device: it goes into an SGE and
// never onto the wire on purpose. It is a different type from [RKey], and
// nothing in this module turns one into the other: a key that a peer may use
// and a key that the local device uses are made by different calls, with
// different rights.
//
// The upper 24 bits are the index of the registration, the lower 8 bits are
// its key byte, which changes each time the registration is made valid again.
type LKey uint32

// RKey names memory of one side to the other side's device: it travels in
// messages and in READ, WRITE and atomic requests. See [LKey].
type RKey uint32

// KeyByte returns the lower 8 bits of the key.
func (k LKey) KeyByte() uint8 { return uint8(k) }

// KeyByte returns the lower 8 bits of the key.
func (k RKey) KeyByte() uint8 { return uint8(k) }

// String formats the key as index and key byte, so that two uses of one
// registration are seen to be related.
func (k LKey) String() string { return fmt.Sprintf("lkey:%06x.%02x", uint32(k)>>8, uint8(k)) }

// String formats the key as index and key byte. See [LKey.String].
func (k RKey) String() string { return fmt.Sprintf("rkey:%06x.%02x", uint32(k)>>8, uint8(k)) }
