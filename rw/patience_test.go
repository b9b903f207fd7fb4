package rw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wait lets completions stay away for a while, with a poll each microsecond, and
// returns for how long it was polled before it slept.
func (p *patience) wait(now *time.Duration, gap time.Duration) (polled time.Duration) {
	end := *now + gap
	for *now < end && p.again(*now) {
		*now += time.Microsecond
		polled += time.Microsecond
	}
	*now = max(*now, end)
	p.found(*now)
	return polled
}

func TestPatience(t *testing.T) {
	const us = time.Microsecond
	now := time.Duration(0)
	p := newPatience(0)
	for range 100 {
		require.Equal(t, 5*us, p.wait(&now, 5*us), "they come soon: it never sleeps")
	}
	require.Equal(t, defaultSpin, p.wait(&now, time.Second), "never longer than the limit")
	p.wait(&now, time.Second)
	for range 100 {
		require.Zero(t, p.wait(&now, time.Millisecond), "they come late: it sleeps at once")
	}
	slept := 0
	for p.wait(&now, 5*us) == 0 {
		slept++
	}
	require.Less(t, slept, 8, "they come soon again")

	// Now and then a late one changes nothing.
	for i := range 100 {
		gap := 5 * us
		if i%10 == 9 {
			gap = time.Millisecond
		}
		require.NotZero(t, p.wait(&now, gap), "%d", i)
	}

	p = newPatience(-1)
	require.Zero(t, p.wait(&now, us))
	require.Zero(t, p.wait(&now, 0))
	p = newPatience(time.Millisecond)
	require.Equal(t, 999*us, p.wait(&now, 999*us))
}

// Who polls on for long gives the processor away in time, and not each time.
func TestPatienceGives(t *testing.T) {
	p := newPatience(time.Second)
	var gave []time.Duration
	for now := time.Duration(0); now < 10*time.Millisecond; now += 100 * time.Microsecond {
		require.True(t, p.again(now))
		if p.gives(now) {
			gave = append(gave, now)
		}
	}
	require.Equal(t, []time.Duration{2 * time.Millisecond, 4 * time.Millisecond, 6 * time.Millisecond, 8 * time.Millisecond}, gave)
}
