package ibverbs

import (
	"syscall"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestDiagnoseSend(t *testing.T) {
	lim := sendLimits{maxSGE: 4, readSGE: 1, maxInline: 80, maxMsg: 1000}
	sges := []transport.SGE{{Len: 50}, {Len: 50}, {Len: 950}, {}, {}}
	einval, enomem := int(syscall.EINVAL), int(syscall.ENOMEM)
	for _, c := range []struct {
		code  int
		wr    transport.WR
		want  error
		errno syscall.Errno
	}{
		{refusedOp, transport.WR{Op: transport.OpFastReg}, transport.ErrUnsupported, 0},
		{refusedInlineOp, transport.WR{Op: transport.OpSendWithInv}, transport.ErrUnsupported, 0},
		{refusedFenceOp, transport.WR{Op: transport.OpRead}, transport.ErrUnsupported, 0},
		{refusedReadSGE, transport.WR{Op: transport.OpRead, NumSGE: 2}, transport.ErrTooManySGE, 0},
		{refusedReadDepth, transport.WR{Op: transport.OpRead}, transport.ErrReadDepth, 0},
		{refusedSGERange, transport.WR{Op: transport.OpSend, FirstSGE: 1 << 31, NumSGE: 1}, transport.ErrInvalid, 0},
		{refusedWindow, transport.WR{Op: transport.OpBindWindow, Reg: 3}, transport.ErrInvalid, 0},
		// mlx5 answers ENOMEM to both.
		{enomem, transport.WR{Op: transport.OpSend, NumSGE: 5}, transport.ErrTooManySGE, syscall.ENOMEM},
		{enomem, transport.WR{Op: transport.OpSend, NumSGE: 1}, transport.ErrQueueFull, syscall.ENOMEM},
		{einval, transport.WR{Op: transport.OpSend, NumSGE: 2, Flags: transport.Inline}, transport.ErrInlineTooLong, syscall.EINVAL},
		{einval, transport.WR{Op: transport.OpWrite, FirstSGE: 1, NumSGE: 2}, nil, syscall.EINVAL},
		{einval, transport.WR{Op: transport.OpWrite, NumSGE: 3}, transport.ErrMessageTooLong, syscall.EINVAL},
		// What binds has no SGEs, whatever its fields say.
		{enomem, transport.WR{Op: transport.OpBindWindow, NumSGE: 999}, transport.ErrQueueFull, syscall.ENOMEM},
		{int(syscall.EIO), transport.WR{Op: transport.OpSend}, transport.ErrDeviceRemoved, syscall.EIO},
	} {
		e := diagnoseSend(c.code, &c.wr, sges, lim)
		want := c.want
		if want == nil {
			want = transport.ErrInvalid // nothing is wrong with it that we know of
		}
		require.ErrorIs(t, e, want, "%+v", c)
		require.Equal(t, c.errno, e.Errno)
	}
}

func TestDiagnoseRecv(t *testing.T) {
	require.ErrorIs(t, diagnoseRecv(refusedSGERange, &transport.RecvWR{}, 0, 1), transport.ErrInvalid)
	require.ErrorIs(t, diagnoseRecv(int(syscall.EINVAL), &transport.RecvWR{NumSGE: 2}, 2, 1), transport.ErrTooManySGE)
	require.ErrorIs(t, diagnoseRecv(int(syscall.ENOMEM), &transport.RecvWR{NumSGE: 1}, 1, 1), transport.ErrQueueFull)
}

func TestErrnoSentinel(t *testing.T) {
	require.Equal(t, transport.ErrNoMemory, errnoSentinel(syscall.ENOMEM, transport.ErrNoMemory))
	require.Equal(t, transport.ErrQueueFull, errnoSentinel(syscall.ENOMEM, transport.ErrQueueFull))
	require.Equal(t, transport.ErrUnsupported, errnoSentinel(syscall.EOPNOTSUPP, nil))
	require.Equal(t, transport.ErrUnreachable, errnoSentinel(syscall.EHOSTUNREACH, nil))
	require.Equal(t, transport.ErrInvalid, errnoSentinel(syscall.EINVAL, nil))
}
