package host

import (
	"sync/atomic"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// Request is one command to a controller. It is owned by the caller and used again
// and again: prepared ([Namespace.Prepare]), submitted ([Controller.Submit]), and given
// to OnDone. From Submit until then it, its list of pieces and the memory that they
// describe belong to the controller. The zero value is ready.
type Request struct {
	// Owner is the caller's, untouched.
	Owner any
	// OnDone is called when the command is over and no key of its memory is alive, by
	// the goroutine that polls. It must not block. Submitting from it is allowed, but
	// on devices where exposing memory is a call (Caps.MapBlocks; siw and rxe) it holds
	// up everything else.
	OnDone func(*Request)

	ns     *Namespace // nil: it is to the controller itself
	cmd    nvme.Command
	data   []transport.Piece
	bytes  uint32
	name   string
	state  atomic.Uint32 // requestIdle, ...
	err    error
	result uint64
}

const (
	requestIdle uint32 = iota
	requestPrepared
	requestSubmitted
)

// prepare readies the request for a command with data in a list; ns is nil if it isn't to
// a namespace.
func (r *Request) prepare(ns *Namespace, name string, cmd nvme.Command, data []transport.Piece, bytes uint64) error {
	if r.state.Load() == requestSubmitted {
		return ErrInUse
	}
	cmd.Flags = nvme.FlagSGL
	r.ns, r.cmd, r.data, r.bytes, r.name = ns, cmd, data, uint32(bytes), name
	r.err, r.result = nil, 0
	r.state.Store(requestPrepared)
	return nil
}

// Err returns how the command ended. It matches an [nvme.Status] (by a
// *CommandError), or ErrLost, or what else went wrong on the way.
func (r *Request) Err() error { return r.err }

// Result is what the completion returned besides data.
func (r *Request) Result() uint64 { return r.result }
