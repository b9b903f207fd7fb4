package ibverbs

import (
	"fmt"
	"syscall"

	"rdmarw/transport"
)

// Why the C side did not show a request to the provider (shim.h).
const (
	refusedOp = 0x10000 + iota
	refusedInlineOp
	refusedFenceOp
	refusedReadSGE
	refusedReadDepth
	refusedSGERange
	refusedWindow
	refusedSGEs
	refusedInline
	refusedEmptySGE
)

// sendLimits are what a queue pair's send requests are held to.
type sendLimits struct {
	maxSGE, readSGE, maxInline int
	maxMsg                     uint64
}

// refusal is the part of an error that a diagnosis finds out.
func refusal(err error, errno syscall.Errno, format string, args ...any) *transport.Error {
	return &transport.Error{Err: err, Errno: errno, Detail: fmt.Sprintf(format, args...)}
}

// diagnoseSend finds out why a request was refused, after the fact: providers
// return EINVAL or ENOMEM for all of it (mlx5: ENOMEM for too many SGEs as for a
// full queue), and checking each request before each post would cost every post
// that is fine.
func diagnoseSend(code int, wr *transport.WR, sges []transport.SGE, lim sendLimits) *transport.Error {
	switch code {
	case refusedOp:
		return refusal(transport.ErrUnsupported, 0, "%v can't be posted on this device", wr.Op)
	case refusedInlineOp:
		return refusal(transport.ErrUnsupported, 0, "%v can't carry inline data on this device", wr.Op)
	case refusedFenceOp:
		return refusal(transport.ErrUnsupported, 0, "%v can't be fenced on this device", wr.Op)
	case refusedReadSGE:
		return refusal(transport.ErrTooManySGE, 0, "READ of %d SGEs, at most %d here", wr.NumSGE, lim.readSGE)
	case refusedReadDepth:
		return refusal(transport.ErrReadDepth, 0, "")
	case refusedSGERange:
		return refusal(transport.ErrInvalid, 0, "%d SGEs from %d on, of an arena of %d", wr.NumSGE, wr.FirstSGE, len(sges))
	case refusedEmptySGE:
		return refusal(transport.ErrUnsupported, 0, "an empty SGE in front of others: this device's kernel would crash on it; leave it out")
	case refusedWindow:
		return refusal(transport.ErrInvalid, 0, "registration %#x is no window of this protection domain, or is not mapped", uint32(wr.Reg))
	}
	errno := syscall.Errno(code)
	if code == refusedSGEs || code == refusedInline {
		errno = 0
	}
	if wr.Op != transport.OpLocalInv && wr.Op != transport.OpBindWindow {
		var total uint64
		for _, s := range sges[wr.FirstSGE:][:wr.NumSGE] {
			total += uint64(s.Len)
		}
		switch {
		case int(wr.NumSGE) > lim.maxSGE, code == refusedSGEs:
			return refusal(transport.ErrTooManySGE, errno, "%v of %d SGEs, at most %d on this queue pair", wr.Op, wr.NumSGE, lim.maxSGE)
		case wr.Flags&transport.Inline != 0 && total > uint64(lim.maxInline):
			return refusal(transport.ErrInlineTooLong, errno, "%d bytes inline, at most %d on this queue pair", total, lim.maxInline)
		case total > lim.maxMsg:
			return refusal(transport.ErrMessageTooLong, errno, "%d bytes, at most %d", total, lim.maxMsg)
		}
	}
	if errno == syscall.ENOSPC { // rxe, of a batch
		return refusal(transport.ErrQueueFull, errno, "")
	}
	return refusal(errnoSentinel(errno, transport.ErrQueueFull), errno, "")
}

// diagnoseRecv does the same for a receive.
func diagnoseRecv(code int, wr *transport.RecvWR, arena, maxSGE int) *transport.Error {
	errno := syscall.Errno(code)
	switch {
	case code == refusedSGERange:
		return refusal(transport.ErrInvalid, 0, "%d SGEs from %d on, of an arena of %d", wr.NumSGE, wr.FirstSGE, arena)
	case int(wr.NumSGE) > maxSGE:
		return refusal(transport.ErrTooManySGE, errno, "receive of %d SGEs, at most %d", wr.NumSGE, maxSGE)
	}
	return refusal(errnoSentinel(errno, transport.ErrQueueFull), errno, "")
}

// errnoSentinel maps an errno to the contract's words. What ENOMEM means depends
// on the call: posting allocates nothing, so there it is a full queue.
func errnoSentinel(errno syscall.Errno, enomem error) error {
	switch errno {
	case syscall.ENOMEM:
		return enomem
	case syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN:
		return transport.ErrNoMemory
	case syscall.EOPNOTSUPP, syscall.ENOSYS, syscall.EPROTONOSUPPORT:
		return transport.ErrUnsupported
	case syscall.EBUSY, syscall.EADDRINUSE:
		return transport.ErrBusy
	case syscall.ENOTCONN, syscall.ENOTTY:
		return transport.ErrBadState
	case syscall.ENODEV, syscall.EIO, syscall.ENXIO:
		// uverbs answers EIO to everything once the device was unplugged.
		return transport.ErrDeviceRemoved
	case syscall.ETIMEDOUT:
		return transport.ErrTimeout
	case syscall.EADDRNOTAVAIL, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ECONNREFUSED:
		return transport.ErrUnreachable
	}
	return transport.ErrInvalid
}
