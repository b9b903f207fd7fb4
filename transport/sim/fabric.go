package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"rdmarw/transport"
)

// Config describes a fabric.
type Config struct {
	// Seed determines the schedule in stepped mode: equal seeds and equal calls
	// give equal runs, byte for byte.
	Seed uint64
	// Stepped makes the fabric move only when it is told to: by [Fabric.Step],
	// [Fabric.Settle] and [Fabric.Drain], and by calls that wait (Established,
	// Next, CQ.Wait), which move it until what they wait for has happened, or
	// fail with transport.ErrDeadlock when nothing is left to happen. It is for
	// one goroutine. False: the fabric moves by itself, in a goroutine of its
	// own, and nothing is promised about order.
	Stepped bool
	// Log, if not nil, gets a line per event. In stepped mode it is the same for
	// the same seed and calls: no Go address or clock is in it.
	Log io.Writer
	// Timeline, if not nil, gets the run as a trace in the Trace Event Format (JSON),
	// in virtual time, to be looked at in https://ui.perfetto.dev. Close completes it.
	Timeline io.Writer
	// Faults are what shall go wrong.
	Faults Faults
}

// Fabric is a network of simulated devices in one process. Its methods may be
// called from any goroutine.
type Fabric struct {
	stepped bool
	faults  Faults

	mu        sync.Mutex // guards all that follows, and all state of all objects
	log       io.Writer
	timeline  *timeline
	rng       rand.PCG
	dice      rand.PCG // for chances: what doesn't happen doesn't change the schedule
	now       int64    // virtual nanoseconds
	ran       uint64   // events
	seq       uint32
	events    eventHeap
	timers    eventHeap // free-running only: by real time
	calls     []call
	freeCalls []uint32
	qps       []*QP // by slot
	qpGen     []uint32
	freeQPs   ring[uint32] // reused oldest first: stale numbers stay unused for long
	devices   []*Device
	listeners map[string]*Listener
	buffers   buffers
	misuse    []error
	notices   []func() // to be called when the lock is free
	closed    bool
	asleep    bool // the fabric's goroutine waits for wake

	start time.Time
	wake  chan struct{}
	quit  chan struct{} // closed by Close
	done  chan struct{} // closed when the goroutine has ended
}

// New makes a fabric without devices. In free-running mode it has a goroutine,
// which Close ends.
func New(cfg Config) *Fabric {
	f := &Fabric{
		stepped:   cfg.Stepped,
		faults:    cfg.Faults,
		log:       cfg.Log,
		timeline:  newTimeline(cfg.Timeline),
		rng:       *rand.NewPCG(cfg.Seed, 0x5eed),
		dice:      *rand.NewPCG(cfg.Seed, 0xd1ce),
		listeners: make(map[string]*Listener),
		start:     time.Now(),
		wake:      make(chan struct{}, 1),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
	}
	if f.stepped {
		close(f.done)
	} else {
		go f.freeRun()
	}
	return f
}

// Close stops the fabric: nothing moves any more, and whoever waits gets
// transport.ErrClosed. It doesn't free the memory of regions that are still
// open. Closing twice is harmless.
func (f *Fabric) Close() error {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		f.timeline.close()
		f.timeline = nil
		close(f.quit)
	}
	f.unlock()
	<-f.done
	return nil
}

// Now is the virtual time since the fabric was made. In free-running mode it
// tells modelled cost only.
func (f *Fabric) Now() time.Duration {
	f.mu.Lock()
	defer f.unlock()
	return time.Duration(f.now)
}

// Step runs the next event and reports whether there was one. Stepped mode
// only.
func (f *Fabric) Step() bool {
	f.mu.Lock()
	defer f.unlock()
	return f.stepped && !f.closed && f.step()
}

// Settle runs events until those that are left, if any, are more than the
// given time away: timeouts, mostly. Stepped mode only.
func (f *Fabric) Settle(d time.Duration) {
	f.runWhile(func(next *event) bool { return next.at-f.now <= int64(d) })
}

// Drain runs events, timeouts included, until nothing is left to happen.
// Stepped mode only.
func (f *Fabric) Drain() {
	f.runWhile(func(*event) bool { return true })
}

// runWhile runs events, and calls what is to be called in between.
func (f *Fabric) runWhile(more func(next *event) bool) {
	for again := true; again; {
		f.mu.Lock()
		again = false
		for f.stepped && !f.closed && len(f.events) > 0 && more(&f.events[0]) && !again {
			e := f.events.pop()
			f.run(&e)
			again = len(f.notices) > 0
		}
		f.unlock()
	}
}

// Err returns what the users of the fabric did that no correct program does and
// that a real machine would have answered with damage rather than with an
// error: an invalidation that crashes the kernel, a queue pair that is
// destroyed under a window. Nil if nothing of that kind has happened. Tests
// should end by checking it.
func (f *Fabric) Err() error {
	f.mu.Lock()
	defer f.unlock()
	return errors.Join(f.misuse...)
}

func (f *Fabric) report(d *Device, format string, args ...any) {
	err := &transport.Error{Op: "misuse", Device: d.name, WR: -1, Err: transport.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
	f.misuse = append(f.misuse, err)
	if f.log != nil {
		f.tracef(d, "MISUSE %s", err.Detail)
	}
}

// NewDevice adds a device. Names are the hosts of the CM's addresses: what
// listens on "rxe-a:7471" is reached by Resolve(ctx, "rxe-a:7471") from every
// device of the same protocol, the device itself included. Profiles with a Refusal
// are refused (transport.ErrUnsupported).
func (f *Fabric) NewDevice(profile Profile, name string) (*Device, error) {
	f.mu.Lock()
	defer f.unlock()
	if f.closed {
		return nil, &transport.Error{Op: "new device", Device: name, WR: -1, Err: transport.ErrClosed}
	}
	if name == "" || f.device(name) != nil {
		return nil, &transport.Error{Op: "new device", Device: name, WR: -1, Err: transport.ErrInvalid, Detail: "device names are unique and not empty"}
	}
	if profile.Refusal != "" {
		return nil, &transport.Error{Op: "new device", Device: name, WR: -1, Err: transport.ErrUnsupported, Detail: profile.Refusal}
	}
	d := newDevice(f, profile, name, len(f.devices))
	f.devices = append(f.devices, d)
	return d, nil
}

func (f *Fabric) device(name string) *Device {
	for _, d := range f.devices {
		if d.name == name && !d.closed {
			return d
		}
	}
	return nil
}

// unlock unlocks, and calls what must be called without the lock: the functions
// of users, who have locks of their own.
func (f *Fabric) unlock() {
	notices := f.notices
	f.notices = nil
	f.mu.Unlock()
	for _, fn := range notices {
		fn()
	}
}

// clock is real time since the start, in nanoseconds.
func (f *Fabric) clock() int64 { return int64(time.Since(f.start)) }

// rouse wakes the fabric's goroutine.
func (f *Fabric) rouse() {
	if f.asleep {
		f.asleep = false
		f.wake <- struct{}{} // holds one: asleep is set only when it is empty
	}
}

// freeRun is the goroutine of free-running mode.
func (f *Fabric) freeRun() {
	defer close(f.done)
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		wait := f.burst()
		if wait == 0 {
			continue
		}
		alarm.Reset(wait)
		select {
		case <-f.quit:
			return
		case <-f.wake:
		case <-alarm.C:
			f.awake()
		}
	}
}

func (f *Fabric) awake() {
	f.mu.Lock()
	defer f.unlock()
	if f.asleep {
		f.asleep = false
	} else {
		<-f.wake // a rouse came at the same time
	}
}

// burst runs some events and returns how long there is nothing to do: zero if
// there is more. Between bursts the others get the lock.
func (f *Fabric) burst() time.Duration {
	f.mu.Lock()
	defer f.unlock()
	for range 64 {
		if f.closed {
			break
		}
		if len(f.timers) > 0 && f.timers[0].at <= f.clock() {
			e := f.timers.pop()
			e.at = f.now
			f.run(&e)
		} else if !f.step() {
			break
		}
	}
	if !f.closed && len(f.events) > 0 {
		return 0
	}
	f.asleep = true
	if !f.closed && len(f.timers) > 0 {
		return time.Duration(max(1, f.timers[0].at-f.clock()))
	}
	return time.Hour
}

// await waits for a value from ch, or for its end, and moves the fabric itself
// in stepped mode. Errors are ErrClosed when stop or the fabric is closed, ctx's,
// and ErrDeadlock.
func await[T any](ctx context.Context, f *Fabric, ch <-chan T, stop <-chan struct{}) (T, error) {
	var zero T
	for {
		// What has happened already counts before any reason to stop.
		select {
		case v := <-ch:
			return v, nil
		default:
		}
		if f.stepped {
			select {
			case <-stop:
				return zero, transport.ErrClosed
			case <-f.quit:
				return zero, transport.ErrClosed
			case <-ctx.Done():
				return zero, ctx.Err()
			default:
			}
			if f.Step() || len(ch) > 0 {
				continue
			}
			return zero, transport.ErrDeadlock
		}
		select {
		case v := <-ch:
			return v, nil
		case <-stop:
			return zero, transport.ErrClosed
		case <-f.quit:
			return zero, transport.ErrClosed
		case <-ctx.Done():
			return zero, ctx.Err()
		}
	}
}

// tracef writes a line of the event log. Callers check f.log first, so that a
// run without a log formats nothing.
func (f *Fabric) tracef(d *Device, format string, args ...any) {
	fmt.Fprintf(f.log, "%12d %s "+format+"\n", append([]any{f.now, d.name}, args...)...)
}
