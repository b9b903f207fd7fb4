package mrpool

import "errors"

// Errors of this package; those of the transport pass through.
var (
	// ErrEmpty: not enough free registrations of the kind. All are in use, or the
	// pool was made without any. Nothing was taken.
	ErrEmpty = errors.New("registration pool empty")
	// ErrState: the MR is not in a state for this; a mistake of the caller's.
	ErrState = errors.New("registration in the wrong state")
	// ErrNotReplaced: a key is dead, but another registration to take the place of
	// its one could not be made.
	ErrNotReplaced = errors.New("the key is dead, its registration could not be replaced")
	// ErrClosed: the pool was closed.
	ErrClosed = errors.New("registration pool closed")
)
