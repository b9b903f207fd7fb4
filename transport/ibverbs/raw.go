//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
import "C"

import (
	"unsafe"

	"rdmarw/internal/rawverbs"
	"rdmarw/transport"
)

func init() {
	rawverbs.QP = func(q transport.QP) unsafe.Pointer { return unsafe.Pointer(q.(*qp).c.qp) }
	rawverbs.Wrap = wrap
}

// wrap makes a queue pair that posts all that an ordinary device posts.
func wrap(raw unsafe.Pointer, caps transport.QueueCaps) (transport.QP, error) {
	c := zeroed[C.struct_rd_qp](1)
	windows := zeroed[C.struct_rd_windows](1)
	if c == nil || windows == nil {
		return nil, transport.ErrNoMemory
	}
	c.qp, c.windows = (*C.struct_ibv_qp)(raw), windows
	c.ops = C.uint32_t(ops(transport.OpSend, transport.OpSendWithInv, transport.OpWrite, transport.OpRead))
	c.inline_ops, c.fence_ops = c.ops, c.ops
	c.read_sges, c.send_sges = C.uint32_t(caps.MaxSendSGE), C.uint32_t(caps.MaxSendSGE)
	c.inline_data = C.uint32_t(caps.MaxInline)
	c.read_depth = 16
	q := &qp{
		dev: &device{adapter: &adapter{name: "stub"}}, c: c, granted: caps,
		limits: sendLimits{maxSGE: caps.MaxSendSGE, readSGE: caps.MaxSendSGE, maxInline: caps.MaxInline, maxMsg: 1 << 30},
	}
	q.state.Store(int32(transport.QPReady))
	return q, nil
}
