package transport

import "fmt"

// Opcode is the operation of a send work request. The numbers are this
// package's own: verbs, the kernel and the wire each number them differently.
type Opcode uint8

// Opcodes.
const (
	OpInvalid Opcode = iota
	OpSend
	OpSendWithInv
	OpSendWithImm
	OpWrite
	OpWriteWithImm
	OpRead
	// OpReadWithInv is a READ that invalidates its own sink's key when the
	// response has landed. Kernel dialect on iWARP only.
	OpReadWithInv
	// OpLocalInv makes the registration named by WR.Reg invalid.
	OpLocalInv
	// OpFastReg makes the fast registration named by WR.Reg valid with what was
	// last given to its Map. Kernel dialect only.
	OpFastReg
	// OpBindWindow makes the window named by WR.Reg valid with what was last
	// given to its Map.
	OpBindWindow
	OpCompareSwap
	OpFetchAdd
	numOpcodes
)

var opcodeNames = [numOpcodes]string{
	"invalid", "SEND", "SEND_WITH_INV", "SEND_WITH_IMM", "WRITE", "WRITE_WITH_IMM", "READ", "READ_WITH_INV",
	"LOCAL_INV", "FAST_REG", "BIND_MW", "CMP_SWP", "FETCH_ADD",
}

// String returns the name of the operation as the specifications write it.
func (o Opcode) String() string {
	if o < numOpcodes {
		return opcodeNames[o]
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// IsRead reports whether the operation is a READ of either form: it takes a
// unit of READ depth and its SGEs are the sink.
func (o Opcode) IsRead() bool { return o == OpRead || o == OpReadWithInv }

// IsSend reports whether the operation consumes a receive of the peer's.
func (o Opcode) IsSend() bool {
	return o == OpSend || o == OpSendWithInv || o == OpSendWithImm || o == OpWriteWithImm
}

// IsAtomic reports whether the operation is an atomic.
func (o Opcode) IsAtomic() bool { return o == OpCompareSwap || o == OpFetchAdd }

// Flags of a send work request.
type Flags uint8

// Flags.
const (
	// Signaled asks for a completion on success. Errors and flushes complete in
	// any case.
	Signaled Flags = 1 << iota
	// Fence holds the request back until all earlier READs and atomics of the
	// queue are complete.
	Fence
	// Solicited wakes a peer that waits for solicited completions only.
	Solicited
	// Inline copies the data when the request is posted: the SGEs' lkeys are
	// ignored and the memory is free again when the post returns.
	Inline
)

// WR is a send work request: a plain record without pointers. Its SGEs are
// sges[FirstSGE : FirstSGE+NumSGE] of the arena that is posted along with it.
//
// Fields that an operation doesn't use are ignored.
type WR struct {
	// Cookie comes back in the completion. It must mean something on unsignaled
	// requests too: they complete when flushed.
	Cookie uint64
	// RemoteAddr is the peer's address of a READ, WRITE or atomic.
	RemoteAddr uint64
	// CompareAdd is the comparand of a CMP_SWP, or the addend of a FETCH_ADD.
	CompareAdd uint64
	// Swap is the new value of a CMP_SWP.
	Swap uint64
	// RKey is the peer's key of a READ, WRITE or atomic, or the peer's key that
	// a SEND_WITH_INV invalidates.
	RKey RKey
	// Imm is the immediate data, in host order.
	Imm uint32
	// FirstSGE is an index into the arena.
	FirstSGE uint32
	// Reg is the own registration that a FAST_REG, BIND_MW, LOCAL_INV or
	// READ_WITH_INV is about.
	Reg RegistrationID
	// NumSGE is the number of SGEs. Zero is a zero-length transfer.
	NumSGE uint16
	Op     Opcode
	Flags  Flags
	// KeyByte is the key byte that Reg gets (FAST_REG, BIND_MW), or has
	// (LOCAL_INV, READ_WITH_INV). The index part of a key can't be chosen, so it
	// can't be written down wrong.
	KeyByte uint8
}

// SGE is one element of a gather or scatter list.
type SGE struct {
	Addr uint64
	Len  uint32
	LKey LKey
}

// RecvWR is a receive work request. Its SGEs are in the arena that is posted
// along with it, as for [WR].
type RecvWR struct {
	Cookie   uint64
	FirstSGE uint32
	NumSGE   uint16
}
