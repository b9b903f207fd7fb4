package sim

import (
	"time"

	"rdmarw/transport"
)

// Clock returns the fabric's virtual time as a clock that begins at the Unix epoch: for
// whoever has deadlines (rw's PollerConfig.Now), so that they are part of the run.
func (f *Fabric) Clock() func() time.Time {
	return func() time.Time { return time.Unix(0, 0).Add(f.Now()) }
}

// longestPause is how far RunUntil lets time jump while nothing happens.
const longestPause = time.Hour

// RunUntil drives all sides of a stepped fabric in one goroutine: it calls each of poll, asks
// whether it is done, and runs the next event, until it is. poll is where the program does
// what it does: it polls its queues, and handles what it finds.
//
// When no event is left it lets virtual time pass, by longer and longer pauses, up to an
// hour, and polls on after each, so that deadlines of [Fabric.Clock] are over. When nothing
// comes of that either it returns transport.ErrDeadlock; else the first error of poll,
// transport.ErrClosed, or transport.ErrBadState on a fabric that moves by itself.
func (f *Fabric) RunUntil(done func() bool, poll ...func() error) error {
	for pause := time.Millisecond; pause < longestPause; {
		for _, poll := range poll {
			if err := poll(); err != nil {
				return err
			}
		}
		if done() {
			return nil
		}
		if err := f.steppable(); err != nil {
			return err
		}
		if f.Step() {
			pause = time.Millisecond
			continue
		}
		f.pass(pause)
		pause *= 2
	}
	return &transport.Error{Op: "run until", WR: -1, Err: transport.ErrDeadlock}
}

func (f *Fabric) steppable() error {
	f.mu.Lock()
	defer f.unlock()
	switch {
	case f.closed:
		return &transport.Error{Op: "run until", WR: -1, Err: transport.ErrClosed}
	case !f.stepped:
		return &transport.Error{Op: "run until", WR: -1, Err: transport.ErrBadState, Detail: "the fabric moves by itself; Config.Stepped makes it wait for steps"}
	}
	return nil
}

// pass lets time go by in which nothing happens.
func (f *Fabric) pass(d time.Duration) {
	f.mu.Lock()
	defer f.unlock()
	if len(f.events) == 0 {
		f.now += int64(d)
	}
}
