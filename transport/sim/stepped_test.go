package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// RunUntil polls before each step and after the last, and stops as soon as it may.
func TestRunUntil(t *testing.T) {
	f := New(Config{Stepped: true})
	defer f.Close()
	steps, polls := 0, 0
	f.mu.Lock()
	for range 3 {
		f.deliver(time.Microsecond, func() { steps++ })
	}
	f.unlock()
	var seen []int
	err := f.RunUntil(func() bool { return steps == 2 }, func() error { seen = append(seen, steps); return nil }, func() error { polls++; return nil })
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, seen)
	require.Equal(t, 3, polls)
	require.True(t, f.Step(), "the third is still to come")

	refusal := errors.New("for the test")
	require.ErrorIs(t, f.RunUntil(func() bool { return true }, func() error { return refusal }), refusal)
}

// When no event is left, deadlines come; and what a poll begins then goes on.
func TestRunUntilLetsTimePass(t *testing.T) {
	f := New(Config{Stepped: true})
	defer f.Close()
	now := f.Clock()
	deadline := now().Add(2 * time.Second)
	begun, over := false, false
	poll := func() error {
		if !begun && !now().Before(deadline) {
			begun = true
			f.mu.Lock()
			f.deliver(time.Microsecond, func() { over = true })
			f.unlock()
		}
		return nil
	}
	require.NoError(t, f.RunUntil(func() bool { return over }, poll))
	require.Less(t, f.Now(), 10*time.Second, "no more than it takes")

	err := f.RunUntil(func() bool { return false }, poll)
	require.ErrorIs(t, err, transport.ErrDeadlock)
	require.Greater(t, f.Now(), 30*time.Minute, "whatever could be waited for was")
}

func TestRunUntilIsRefused(t *testing.T) {
	never := func() bool { return false }
	free := New(Config{})
	require.ErrorIs(t, free.RunUntil(never), transport.ErrBadState)
	require.NoError(t, free.Close())
	f := New(Config{Stepped: true})
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.RunUntil(never), transport.ErrClosed)
}

func TestDevicesKnowThatTheyAreStepped(t *testing.T) {
	for _, stepped := range []bool{false, true} {
		f := New(Config{Stepped: stepped})
		p, _ := LookupProfile("rxe")
		d, err := f.NewDevice(p, "a")
		require.NoError(t, err)
		require.Equal(t, stepped, d.Stepped())
		require.NoError(t, d.Close())
		require.NoError(t, f.Close())
	}
}
