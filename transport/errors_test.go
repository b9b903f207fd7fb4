package transport

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorMatchesItsCauses(t *testing.T) {
	err := error(&Error{Op: "READ", Device: "rxe0", WR: 3, Status: StatusRemoteAccess, Vendor: 0x88})
	require.ErrorIs(t, err, StatusRemoteAccess)
	require.NotErrorIs(t, err, StatusFlushed)
	require.Equal(t, "rxe0: READ (request 3 of its chain): remote access error: the peer's key is revoked or does not grant the range or the right (vendor 0x88)",
		err.Error())

	err = &Error{Op: "register", WR: -1, Errno: syscall.ENOMEM, Err: ErrMemlock}
	require.ErrorIs(t, err, ErrMemlock)
	require.ErrorIs(t, err, syscall.ENOMEM)

	flushed := &Error{Op: "WRITE", WR: 0, Status: StatusFlushed, Err: err}
	require.ErrorIs(t, flushed, StatusFlushed)
	require.ErrorIs(t, flushed, ErrMemlock)
	var e *Error
	require.True(t, errors.As(flushed, &e))
	require.Equal(t, "WRITE", e.Op)

	require.ErrorIs(t, &RejectedError{Reason: 28}, ErrRejected)
}
