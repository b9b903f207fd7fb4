//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
// #cgo CFLAGS: -O2 -Wall -Wextra
// #cgo LDFLAGS: -lrdmacm -libverbs
import "C"

import (
	"unsafe"

	"rdmarw/transport"
)

// The C side reads and writes Go's records as its own structs. These constants
// don't compile (negative, or an index out of range) when the two differ.
const (
	_ = -(unsafe.Sizeof(transport.WR{}) ^ C.sizeof_struct_rd_wr)
	_ = -(unsafe.Offsetof(transport.WR{}.Cookie) ^ unsafe.Offsetof(C.struct_rd_wr{}.cookie))
	_ = -(unsafe.Offsetof(transport.WR{}.RemoteAddr) ^ unsafe.Offsetof(C.struct_rd_wr{}.remote_addr))
	_ = -(unsafe.Offsetof(transport.WR{}.CompareAdd) ^ unsafe.Offsetof(C.struct_rd_wr{}.compare_add))
	_ = -(unsafe.Offsetof(transport.WR{}.Swap) ^ unsafe.Offsetof(C.struct_rd_wr{}.swap))
	_ = -(unsafe.Offsetof(transport.WR{}.RKey) ^ unsafe.Offsetof(C.struct_rd_wr{}.rkey))
	_ = -(unsafe.Offsetof(transport.WR{}.Imm) ^ unsafe.Offsetof(C.struct_rd_wr{}.imm))
	_ = -(unsafe.Offsetof(transport.WR{}.FirstSGE) ^ unsafe.Offsetof(C.struct_rd_wr{}.first_sge))
	_ = -(unsafe.Offsetof(transport.WR{}.Reg) ^ unsafe.Offsetof(C.struct_rd_wr{}.reg))
	_ = -(unsafe.Offsetof(transport.WR{}.NumSGE) ^ unsafe.Offsetof(C.struct_rd_wr{}.num_sge))
	_ = -(unsafe.Offsetof(transport.WR{}.Op) ^ unsafe.Offsetof(C.struct_rd_wr{}.op))
	_ = -(unsafe.Offsetof(transport.WR{}.Flags) ^ unsafe.Offsetof(C.struct_rd_wr{}.flags))
	_ = -(unsafe.Offsetof(transport.WR{}.KeyByte) ^ unsafe.Offsetof(C.struct_rd_wr{}.key_byte))

	_ = -(unsafe.Sizeof(transport.SGE{}) ^ C.sizeof_struct_ibv_sge)
	_ = -(unsafe.Offsetof(transport.SGE{}.Addr) ^ unsafe.Offsetof(C.struct_ibv_sge{}.addr))
	_ = -(unsafe.Offsetof(transport.SGE{}.Len) ^ unsafe.Offsetof(C.struct_ibv_sge{}.length))
	_ = -(unsafe.Offsetof(transport.SGE{}.LKey) ^ unsafe.Offsetof(C.struct_ibv_sge{}.lkey))

	_ = -(unsafe.Sizeof(transport.RecvWR{}) ^ C.sizeof_struct_rd_recv_wr)
	_ = -(unsafe.Offsetof(transport.RecvWR{}.Cookie) ^ unsafe.Offsetof(C.struct_rd_recv_wr{}.cookie))
	_ = -(unsafe.Offsetof(transport.RecvWR{}.FirstSGE) ^ unsafe.Offsetof(C.struct_rd_recv_wr{}.first_sge))
	_ = -(unsafe.Offsetof(transport.RecvWR{}.NumSGE) ^ unsafe.Offsetof(C.struct_rd_recv_wr{}.num_sge))

	_ = -(unsafe.Sizeof(transport.Completion{}) ^ C.sizeof_struct_rd_completion)
	_ = -(unsafe.Offsetof(transport.Completion{}.Cookie) ^ unsafe.Offsetof(C.struct_rd_completion{}.cookie))
	_ = -(unsafe.Offsetof(transport.Completion{}.QPN) ^ unsafe.Offsetof(C.struct_rd_completion{}.qpn))
	_ = -(unsafe.Offsetof(transport.Completion{}.Vendor) ^ unsafe.Offsetof(C.struct_rd_completion{}.vendor))
	_ = -(unsafe.Offsetof(transport.Completion{}.Imm) ^ unsafe.Offsetof(C.struct_rd_completion{}.imm))
	_ = -(unsafe.Offsetof(transport.Completion{}.InvKey) ^ unsafe.Offsetof(C.struct_rd_completion{}.inv_key))
	_ = -(unsafe.Offsetof(transport.Completion{}.ByteLen) ^ unsafe.Offsetof(C.struct_rd_completion{}.byte_len))
	_ = -(unsafe.Offsetof(transport.Completion{}.Status) ^ unsafe.Offsetof(C.struct_rd_completion{}.status))
	_ = -(unsafe.Offsetof(transport.Completion{}.Flags) ^ unsafe.Offsetof(C.struct_rd_completion{}.flags))

	_ = -(uint(transport.OpSend) ^ C.RD_OP_SEND)
	_ = -(uint(transport.OpSendWithInv) ^ C.RD_OP_SEND_WITH_INV)
	_ = -(uint(transport.OpSendWithImm) ^ C.RD_OP_SEND_WITH_IMM)
	_ = -(uint(transport.OpWrite) ^ C.RD_OP_WRITE)
	_ = -(uint(transport.OpWriteWithImm) ^ C.RD_OP_WRITE_WITH_IMM)
	_ = -(uint(transport.OpRead) ^ C.RD_OP_READ)
	_ = -(uint(transport.OpReadWithInv) ^ C.RD_OP_READ_WITH_INV)
	_ = -(uint(transport.OpLocalInv) ^ C.RD_OP_LOCAL_INV)
	_ = -(uint(transport.OpFastReg) ^ C.RD_OP_FAST_REG)
	_ = -(uint(transport.OpBindWindow) ^ C.RD_OP_BIND_WINDOW)
	_ = -(uint(transport.OpCompareSwap) ^ C.RD_OP_COMPARE_SWAP)
	_ = -(uint(transport.OpFetchAdd) ^ C.RD_OP_FETCH_ADD)

	_ = -(uint(transport.Signaled) ^ C.RD_SIGNALED)
	_ = -(uint(transport.Fence) ^ C.RD_FENCE)
	_ = -(uint(transport.Solicited) ^ C.RD_SOLICITED)
	_ = -(uint(transport.Inline) ^ C.RD_INLINE)
	_ = -(uint(transport.WithImm) ^ C.RD_WITH_IMM)
	_ = -(uint(transport.WithInv) ^ C.RD_WITH_INV)
	_ = -(uint(transport.Receive) ^ C.RD_RECEIVE)

	_ = -(uint(transport.StatusLocalLength) ^ 1)
	_ = -(uint(transport.StatusFlushed) ^ 4)
	_ = -(uint(transport.StatusRemoteInvalid) ^ 8)
	_ = -(uint(transport.StatusGeneral) ^ 14)

	_ = -(uint(refusedOp) ^ C.RD_REFUSED_OP)
	_ = -(uint(refusedInlineOp) ^ C.RD_REFUSED_INLINE_OP)
	_ = -(uint(refusedFenceOp) ^ C.RD_REFUSED_FENCE_OP)
	_ = -(uint(refusedReadSGE) ^ C.RD_REFUSED_READ_SGE)
	_ = -(uint(refusedReadDepth) ^ C.RD_REFUSED_READ_DEPTH)
	_ = -(uint(refusedSGERange) ^ C.RD_REFUSED_SGE_RANGE)
	_ = -(uint(refusedWindow) ^ C.RD_REFUSED_WINDOW)
	_ = -(uint(refusedSGEs) ^ C.RD_REFUSED_SGES)
	_ = -(uint(refusedInline) ^ C.RD_REFUSED_INLINE)
	_ = -(uint(refusedEmptySGE) ^ C.RD_REFUSED_EMPTY_SGE)
)
