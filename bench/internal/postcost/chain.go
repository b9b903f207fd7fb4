//go:build ibverbs && linux && cgo

package postcost

// #cgo CFLAGS: -O2 -Wall -Wextra
// #cgo LDFLAGS: -libverbs
// #include <stdlib.h>
// #include "stub.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"rdmarw/transport"
)

// transfer is what both sides have to do.
type transfer = C.struct_pc_transfer

func newTransfer(local, remote uint64, length int, lkey transport.LKey, rkey transport.RKey) transfer {
	return transfer{local: C.uint64_t(local), remote: C.uint64_t(remote), length: C.uint32_t(length), lkey: C.uint32_t(lkey), rkey: C.uint32_t(rkey)}
}

var errPost = errors.New("a post failed")

// build makes the requests and SGEs of a chain in the steps of C's: each request is cleared
// where it lies, then its fields are set, as package rw does it. (A composite literal is made
// elsewhere and copied, which takes three times as long.)
func build(todo []transfer, wrs *[Chain]transport.WR, sges *[Chain]transport.SGE) {
	for i := range wrs {
		t := &todo[i]
		sges[i] = transport.SGE{Addr: uint64(t.local), Len: uint32(t.length), LKey: transport.LKey(t.lkey)}
		wr := &wrs[i]
		*wr = transport.WR{}
		wr.Cookie = uint64(i)
		wr.Op = transport.OpWrite
		wr.RemoteAddr, wr.RKey = uint64(t.remote), transport.RKey(t.rkey)
		wr.FirstSGE, wr.NumSGE = uint32(i), 1
	}
	wrs[Chain-1].Flags = transport.Signaled
}

// ours builds and posts a chain by this module, a number of times.
type ours struct {
	qp   transport.QP
	todo []transfer
	wrs  [Chain]transport.WR
	sges [Chain]transport.SGE
}

func (o *ours) run(rounds int) (time.Duration, error) {
	start := time.Now()
	for range rounds {
		build(o.todo, &o.wrs, &o.sges)
		if n, err := o.qp.PostSend(o.wrs[:], o.sges[:]); n != Chain {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// byC is the C program.
func byC(qp unsafe.Pointer, todo []transfer, rounds int) (time.Duration, error) {
	ns := C.pc_post((*C.struct_ibv_qp)(qp), &todo[0], Chain, C.uint32_t(rounds))
	if ns < 0 {
		return 0, errPost
	}
	return time.Duration(ns), nil
}

// crossing calls an empty function of C. Its arguments are of the kinds that PostSend passes:
// cgo looks closer at other pointers.
func (o *ours) crossing(rounds int) (time.Duration, error) {
	start := time.Now()
	for range rounds {
		C.pc_empty(0, unsafe.SliceData(o.todo), Chain, unsafe.SliceData(o.todo), Chain)
	}
	return time.Since(start), nil
}

// filler fills C's requests and SGEs, which are in C's memory, from Go.
type filler struct {
	qp   unsafe.Pointer
	todo []transfer
	wrs  *[Chain]C.struct_ibv_send_wr
	sges *[Chain]C.struct_ibv_sge

	mu                 sync.Mutex
	state              atomic.Int32
	ops, inline, fence uint32
	depth              atomic.Int32
}

func newFiller(qp unsafe.Pointer, todo []transfer) *filler {
	f := &filler{qp: qp, todo: todo, ops: ^uint32(0), inline: ^uint32(0), fence: ^uint32(0)}
	f.depth.Store(16)
	f.wrs = (*[Chain]C.struct_ibv_send_wr)(C.calloc(Chain, C.sizeof_struct_ibv_send_wr))
	f.sges = (*[Chain]C.struct_ibv_sge)(C.calloc(Chain, C.sizeof_struct_ibv_sge))
	return f
}

func (f *filler) free() {
	C.free(unsafe.Pointer(f.wrs))
	C.free(unsafe.Pointer(f.sges))
}

// It starts from the records that a planner has made, as ours does: they are Go's,
// whoever converts them.
func (f *filler) run(rounds int) (time.Duration, error) {
	var wrs [Chain]transport.WR
	var sges [Chain]transport.SGE
	start := time.Now()
	for range rounds {
		build(f.todo, &wrs, &sges)
		f.mu.Lock()
		if f.state.Load() != 0 {
			return 0, errPost
		}
		for i := range wrs {
			in, out := &wrs[i], &f.wrs[i]
			// What is checked in C otherwise.
			if in.Op >= 32 || f.ops>>in.Op&1 == 0 || in.Flags&transport.Inline != 0 && f.inline>>in.Op&1 == 0 ||
				in.Flags&transport.Fence != 0 && f.fence>>in.Op&1 == 0 || in.FirstSGE > uint32(len(sges)) ||
				uint32(in.NumSGE) > uint32(len(sges))-in.FirstSGE {
				return 0, errPost
			}
			if in.Op == transport.OpRead && f.depth.Load() == 0 {
				return 0, errPost
			}
			s := &sges[in.FirstSGE]
			f.sges[i] = C.struct_ibv_sge{addr: C.uint64_t(s.Addr), length: C.uint32_t(s.Len), lkey: C.uint32_t(s.LKey)}
			out.wr_id = C.uint64_t(in.Cookie)
			out.sg_list = &f.sges[i]
			out.num_sge = C.int(in.NumSGE)
			out.opcode = C.IBV_WR_RDMA_WRITE
			out.send_flags = 0
			if in.Flags&transport.Signaled != 0 {
				out.send_flags = C.IBV_SEND_SIGNALED
			}
			rdma := (*struct {
				addr uint64
				rkey uint32
			})(unsafe.Pointer(&out.wr))
			rdma.addr, rdma.rkey = in.RemoteAddr, uint32(in.RKey)
			out.next = nil
			if i+1 < Chain {
				out.next = &f.wrs[i+1]
			}
		}
		rc := C.pc_post_filled(C.uintptr_t(uintptr(f.qp)), C.uintptr_t(uintptr(unsafe.Pointer(f.wrs))))
		f.mu.Unlock()
		if rc != 0 {
			return 0, fmt.Errorf("%w: %d", errPost, rc)
		}
	}
	return time.Since(start), nil
}
