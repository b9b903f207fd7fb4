package perf

import (
	"fmt"

	"rdmarw/rw"
)

// Test is one of perftest's programs.
type Test struct {
	// Program is its name.
	Program string
	// Op is what it does.
	Op rw.Op
	// Latency tells that it measures the time of one message, else bandwidth.
	Latency bool
	// NoEvents: it has no -e.
	NoEvents bool
	// DefaultMessages is how many a run has, if nobody says otherwise.
	DefaultMessages int
}

// Tests are those that are run.
var Tests = []Test{
	{Program: "ib_read_bw", Op: rw.Read, DefaultMessages: 2048},
	{Program: "ib_write_bw", Op: rw.Write, NoEvents: true, DefaultMessages: 2048},
	{Program: "ib_read_lat", Op: rw.Read, Latency: true, DefaultMessages: 5000},
}

// Bound is what the ratio of ours to perftest's must reach: at least so much of the
// bandwidth, at most so much of the latency.
func (t Test) Bound() float64 {
	if t.Latency {
		return 1.15
	}
	return 0.95
}

// Verdict judges a ratio.
func (t Test) Verdict(r Ratio) string {
	switch {
	case r.Wide():
		return "no verdict: the interval is too wide"
	case t.Latency && r.Low > t.Bound(), !t.Latency && r.High < t.Bound():
		return "short"
	}
	return "reached"
}

// Case is a test of messages of a size.
type Case struct {
	Test
	Size int
	// Depth is how many are under way; 1 for latency.
	Depth int
	// Messages is how many there are in a run.
	Messages int
	// Policy is a name for Sink.
	Policy string
	Sink   rw.SinkPolicy
}

func (c Case) String() string {
	s := fmt.Sprintf("%s, %d bytes", c.Program, c.Size)
	if c.Policy != "" {
		s += ", " + c.Policy
	}
	return s
}
