package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// Rounds is how many batches of each there are.
	Rounds = 9
	// BatchMS is how long a batch of ours is to take.
	BatchMS = 2
	batchNS = BatchMS * 1e6
)

// Result is what a case took. Its JSON is an interface: names don't change.
type Result struct {
	Case string `json:"case"`
	WRs  int    `json:"wrs"`
	// FloorNS and OursNS are nanoseconds of CPU time for one transfer, the latter with
	// a poller that belongs to one goroutine. SharedNS is with one that anybody may use.
	FloorNS  float64 `json:"floor_ns"`
	OursNS   float64 `json:"ours_ns"`
	SharedNS float64 `json:"shared_ns"`
	Ratio    float64 `json:"ratio"`
	// Allocs is allocations for one transfer.
	Allocs uint64 `json:"allocs"`
	// LinuxNS is for orientation, not measured here: see Linux.
	LinuxNS int `json:"linux_ns"`
	// Checksum is that of the ring, the same of both; empty if nothing was posted.
	Checksum string `json:"checksum"`
}

// Measure measures a case.
func Measure(c Case) (res Result, err error) {
	runtime.LockOSThread() // whose CPU time is measured
	defer runtime.UnlockOSThread()
	r, err := newRig(c, true)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	shared, err := newRig(c, false)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, shared.close()) }()
	f, err := newFloor(r)
	if err != nil {
		return res, err
	}
	n, err := r.calibrate()
	if err != nil {
		return res, err
	}
	if err := shared.ours(1); err != nil { // as ours: from here on there is something to invalidate
		return res, err
	}
	res = Result{Case: c.String(), WRs: c.WRs(), LinuxNS: c.LinuxNS}
	var floors, ours, locked, ratios []float64
	for round := range 1 + Rounds {
		byHand, err := r.batch(f.run, n)
		if err != nil {
			return res, err
		}
		byLibrary, err := r.batch(r.ours, n)
		if err != nil {
			return res, err
		}
		byShared, err := shared.batch(shared.ours, n)
		if err != nil {
			return res, err
		}
		for _, b := range []batch{byLibrary, byShared} {
			if byHand.sum != b.sum || byHand.slots != b.slots {
				return res, fmt.Errorf("%v: the floor left %d slots with checksum %016x, the library %d with %016x", c, byHand.slots, byHand.sum, b.slots, b.sum)
			}
		}
		if byLibrary.slots > 0 {
			res.Checksum = fmt.Sprintf("%016x", byLibrary.sum)
		}
		if round == 0 {
			continue // to warm up
		}
		floors = append(floors, byHand.ns)
		ours = append(ours, byLibrary.ns)
		locked = append(locked, byShared.ns)
		ratios = append(ratios, byLibrary.ns/byHand.ns)
	}
	res.FloorNS, res.OursNS, res.SharedNS, res.Ratio = median(floors), median(ours), median(locked), median(ratios)
	res.Allocs, err = allocations(r.ours)
	return res, err
}

// batch is what one turn gave.
type batch struct {
	ns         float64 // for each transfer
	slots, sum uint64
}

// batch does a case n times, from an empty ring.
func (r *rig) batch(do func(int) error, n int) (batch, error) {
	ring := r.dev.Ring()
	ring.Reset()
	start := threadClock()
	err := do(n)
	ns := float64(threadClock()-start) / float64(n)
	return batch{ns, ring.Taken(), ring.Checksum()}, err
}

// calibrate finds how many transfers make a batch.
func (r *rig) calibrate() (int, error) {
	for n := 1; ; n *= 2 {
		start := threadClock()
		if err := r.ours(n); err != nil {
			return 0, err
		}
		if ns := threadClock() - start; ns > batchNS/4 {
			return int(float64(n) * batchNS / float64(ns)), nil
		}
	}
}

// allocations counts those of one transfer: of many, divided and rounded down, since
// the runtime allocates now and then.
func allocations(do func(int) error) (uint64, error) {
	const n = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := do(n)
	runtime.ReadMemStats(&after)
	return (after.Mallocs - before.Mallocs) / n, err
}

// threadClock counts the CPU time of the calling thread in nanoseconds.
func threadClock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[(len(s)-1)/2]
}
