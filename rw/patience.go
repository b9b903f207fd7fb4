package rw

import "time"

// patience decides whether who found nothing polls again at once, or sleeps until
// an event. Sleeping costs some microseconds of CPU and of latency, polling costs a
// CPU for as long as it goes on: it pays while completions come soon. So it polls on
// only while they have been coming within the limit, and never longer than that.
//
// It has no clock: times are durations since anything.
type patience struct {
	limit time.Duration // of polling on; 0: none
	usual time.Duration // from running out of completions to the next: smoothed
	since time.Duration // when they ran out
	idle  bool
	gave  time.Duration // when the processor was given away
}

// defaultSpin is about what arming, sleeping and waking take.
const defaultSpin = 20 * time.Microsecond

// giveAfter is how often who polls on gives its processor away. The runtime takes it after 10 ms,
// by a signal, and its monitor looks around every 20 µs for a while then; if this happens all the
// time, that thread is busy beside the one that polls.
const giveAfter = 2 * time.Millisecond

func newPatience(spin time.Duration) patience {
	switch {
	case spin < 0:
		return patience{}
	case spin == 0:
		spin = defaultSpin
	}
	return patience{limit: spin}
}

// found notes that there was something. After a few long waits in a row it doesn't
// poll on any more, after a few short ones it does again: a wait counts as three
// times the limit at most.
func (p *patience) found(now time.Duration) {
	if !p.idle {
		return
	}
	p.idle = false
	p.usual += (min(now-p.since, 3*p.limit) - p.usual) / 4
}

// again tells, when there was nothing, whether to poll again rather than to sleep.
func (p *patience) again(now time.Duration) bool {
	if !p.idle {
		p.idle, p.since = true, now
	}
	return p.limit > 0 && p.usual <= p.limit && now-p.since < p.limit
}

// gives tells who polls again whether to let other goroutines run first.
func (p *patience) gives(now time.Duration) bool {
	if now-p.gave < giveAfter {
		return false
	}
	p.gave = now
	return true
}
