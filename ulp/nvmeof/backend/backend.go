package backend

import (
	"errors"
	"fmt"
)

// Errors that requests end with, for errors.Is. What the system reports is wrapped
// beside them.
var (
	// ErrRange: blocks beyond the end, or Data that is not as long as the blocks.
	ErrRange = errors.New("blocks out of range")
	// ErrReadOnly: a change to what can't be changed.
	ErrReadOnly = errors.New("read-only")
	// ErrFull: no space left for the blocks.
	ErrFull = errors.New("out of space")
	// ErrRead and ErrWrite: the medium failed.
	ErrRead  = errors.New("read failed")
	ErrWrite = errors.New("write failed")
	// ErrClosed: the backend was closed.
	ErrClosed = errors.New("backend closed")
)

// Op is what a request does.
type Op uint8

// Operations.
const (
	Read Op = iota + 1
	Write
	// Flush makes all writes durable that were over when it was submitted.
	Flush
	// WriteZeroes makes blocks read as zeros.
	WriteZeroes
	// Discard says that the content of blocks is no longer needed. What is read
	// there afterwards is zeros if Geometry.DiscardZeroes, else anything.
	Discard
)

// String returns the operation's name.
func (o Op) String() string {
	names := [...]string{"nothing", "read", "write", "flush", "write zeroes", "discard"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("operation %d", o)
}

// Request is one operation on a backend: owned by the caller, and used again and again.
type Request struct {
	Op Op
	// LBA is the first block, Blocks how many. A Flush is about all.
	LBA    uint64
	Blocks uint32
	// Data is Blocks blocks of memory, for Read and Write. It begins where direct I/O
	// allows it: on a border of 512 bytes, or of 4096 if blocks have as many.
	Data []byte
	// FUA: the request, if it changes anything, is over when the change is durable.
	FUA bool
	// Deallocate allows Write Zeroes to give space back.
	Deallocate bool
	// Done is called exactly once when the request is over: from any goroutine, from
	// inside Submit too. The request is the caller's again then.
	Done func(r *Request, err error)
	// Owner is the caller's, untouched.
	Owner any

	next  *Request // in a queue
	parts int      // under way in the ring
	done  bool     // all the parts that are back from there
}

// Geometry describes a backend. It doesn't change.
type Geometry struct {
	// Blocks is the size; BlockShift the log2 of the block size in bytes: 9 or 12.
	Blocks     uint64
	BlockShift uint8
	// Volatile tells that writes are durable only after a Flush (or with FUA).
	Volatile bool
	// ReadOnly tells that nothing can be changed.
	ReadOnly bool
	// Discards tells that Discard does something, DiscardZeroes that zeros are read
	// afterwards.
	Discards, DiscardZeroes bool
}

// BlockSize returns the block size in bytes.
func (g *Geometry) BlockSize() uint32 { return 1 << g.BlockShift }

// Check refuses a request that is not within a backend of this geometry, with an
// error that matches [ErrRange] or [ErrReadOnly].
func (g *Geometry) Check(r *Request) error {
	switch r.Op {
	case Flush:
		return nil
	case Read, Write, WriteZeroes, Discard:
	default:
		return fmt.Errorf("%v: %w", r.Op, errors.ErrUnsupported)
	}
	if r.LBA > g.Blocks || uint64(r.Blocks) > g.Blocks-r.LBA {
		return fmt.Errorf("%v of %d blocks at %d, there are %d: %w", r.Op, r.Blocks, r.LBA, g.Blocks, ErrRange)
	}
	if (r.Op == Read || r.Op == Write) && uint64(len(r.Data)) != uint64(r.Blocks)<<g.BlockShift {
		return fmt.Errorf("%v of %d blocks of %d bytes, with %d bytes of data: %w", r.Op, r.Blocks, g.BlockSize(), len(r.Data), ErrRange)
	}
	if g.ReadOnly && r.Op != Read {
		return fmt.Errorf("%v: %w", r.Op, ErrReadOnly)
	}
	return nil
}

// Backend keeps the blocks of a namespace. Its methods may be called from any
// goroutine.
type Backend interface {
	// Geometry describes the backend.
	Geometry() Geometry
	// Submit starts a request and returns. It checks the request against the geometry;
	// requests that are under way at the same time may happen in any order, but a block
	// is never seen half-written.
	Submit(r *Request)
	// Close ends the backend when all requests are over. What is submitted later fails
	// with [ErrClosed].
	Close() error
}

// Batcher is a backend that is cheaper to call once for several requests.
type Batcher interface {
	Backend
	// SubmitAll starts requests, as Submit does with each of them. Some may be over, and
	// their Done called, before it returns. The slice is the caller's again when it does.
	SubmitAll(rs []*Request)
}

// SubmitAll starts requests on a backend: all at once if it is a [Batcher], else one
// after the other.
func SubmitAll(b Backend, rs []*Request) {
	if b, ok := b.(Batcher); ok {
		b.SubmitAll(rs)
		return
	}
	for _, r := range rs {
		b.Submit(r)
	}
}

func checkBlockSize(size int) (shift uint8, err error) {
	switch size {
	case 0, 512:
		return 9, nil
	case 4096:
		return 12, nil
	}
	return 0, fmt.Errorf("block size %d: 512 and 4096 are possible", size)
}
