package sim

import (
	"time"

	"rdmarw/transport"
)

// Chances are probabilities, from 0 to 1, of faults that nobody plans. The seed
// decides when they happen: in stepped mode equal seeds and equal calls give equal
// faults. The zero value is a fabric on which nothing goes wrong by itself.
type Chances struct {
	// Loss is of losing part of a message, a request or the answer to one, so that
	// it has to be sent once more after ConnParams.AckTimeout; each time anew. What
	// comes behind it waits. Beyond ConnParams.RetryCount the connection is cut:
	// StatusRetryExceeded, or on iWARP the end of the stream. In free-running mode,
	// which takes no account of latencies, only the latter is seen.
	Loss float64
	// Delay is of holding back a completion, and all that follow it, for up to
	// LongestDelay. Zero: a millisecond.
	Delay        float64
	LongestDelay time.Duration
	// Error is of failing a request when its turn comes.
	Error float64
	// Death is of the sudden death of a connection's end, as by [Conn.Kill], when a
	// request arrives there.
	Death float64
}

// chanceErrors are statuses that any operation of any protocol may end with.
var chanceErrors = [...]transport.Status{
	transport.StatusLocalQPOp, transport.StatusLocalProtection, transport.StatusFatal, transport.StatusGeneral,
}

// happens throws the dice.
func (f *Fabric) happens(p float64) bool {
	return p > 0 && float64(f.dice.Uint64()>>11)/(1<<53) < p
}

// plannedStatus asks the fault plan how a request shall end before it runs.
func (q *QP) plannedStatus(seq uint64, wr *transport.WR) transport.Status {
	f := q.dev.fabric
	if f.faults.Run != nil {
		if status := f.faults.Run(q, seq, wr); status != transport.StatusOK {
			return status
		}
	}
	if !f.happens(f.faults.Chances.Error) {
		return transport.StatusOK
	}
	status := chanceErrors[f.dice.Uint64()%uint64(len(chanceErrors))]
	if f.log != nil {
		f.tracef(q.dev, "qp %d wr %d fails by chance: status %d", q.num, seq, status)
	}
	return status
}

// plannedDelay asks the fault plan for how long to hold a completion back.
func (q *QP) plannedDelay(seq uint64, wr *transport.WR) (d time.Duration) {
	f := q.dev.fabric
	if f.faults.Delay != nil {
		d = f.faults.Delay(q, seq, wr)
	}
	if c := &f.faults.Chances; f.happens(c.Delay) {
		longest := c.LongestDelay
		if longest <= 0 {
			longest = time.Millisecond
		}
		d += time.Duration(f.dice.Uint64() % uint64(longest+1))
	}
	return d
}

// transmit tells how much later than usual a message of this queue pair's traffic
// arrives, or that it never does. cut remembers the latter: nothing that is sent
// behind a message that is lost for good is taken in.
func (q *QP) transmit(cut *bool) (late int64, lost bool) {
	f := q.dev.fabric
	tries := 0
	for !*cut && f.happens(f.faults.Chances.Loss) {
		if tries++; tries > q.retry {
			*cut = true
		}
	}
	if tries > 0 && f.log != nil {
		f.tracef(q.dev, "qp %d traffic lost %d times", q.num, tries)
	}
	return int64(tries) * int64(q.ackTimeout), *cut
}
