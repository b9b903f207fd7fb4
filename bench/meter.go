package main

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// meter adds up how far a counter moves between resume and pause.
type meter struct {
	read    func() int64
	started int64
	total   int64
}

func (m *meter) resume() { m.started = m.read() }
func (m *meter) pause()  { m.total += m.read() - m.started }

var processStart = time.Now()

// wallClock counts nanoseconds of real time. Reading it takes some 40 ns, which
// are in the result once for each stretch that is measured.
func wallClock() int64 { return int64(time.Since(processStart)) }

// threadClock counts the CPU time of the calling thread, in user and system mode,
// in nanoseconds. The goroutine must be locked to its thread.
func threadClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// mallocs counts allocations on the heap, of all goroutines. Reading it stops the
// world, so it is not read while time is measured.
func mallocs() int64 {
	runtime.ReadMemStats(&memStats)
	return int64(memStats.Mallocs)
}

var memStats runtime.MemStats

// median returns the middle value, the lower of two.
func median[T int64 | float64](values []T) T {
	s := slices.Sorted(slices.Values(values))
	return s[(len(s)-1)/2]
}
