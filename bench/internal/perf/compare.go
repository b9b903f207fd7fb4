package perf

import (
	"context"
	"errors"
	"fmt"

	"rdmarw/transport"
)

// Result is what a case came to. Its JSON is an interface: names don't change.
type Result struct {
	Device  string `json:"device"`
	Program string `json:"program"`
	Policy  string `json:"policy,omitempty"`
	Size    int    `json:"bytes"`
	Depth   int    `json:"depth"`
	// Ours and Perftest are the medians of their runs: MiB/s, or microseconds.
	Ours     float64 `json:"ours"`
	Perftest float64 `json:"perftest"`
	// Ratio is ours to perftest's, of Pairs pairs.
	Ratio   Ratio  `json:"ratio"`
	Pairs   int    `json:"pairs"`
	Verdict string `json:"verdict"`
	// Lost is how many runs of perftest failed or hung, and were left out with the run
	// of ours beside them.
	Lost int `json:"lost"`
}

// maxLost is how many runs of perftest may fail: with -e it has been seen to hang.
const maxLost = 5

// Compare runs a case by both, at least pairs times, and up to three times as often
// while the interval is too wide.
func Compare(ctx context.Context, dev transport.Device, addr string, c Case, pairs, port int) (res Result, err error) {
	name := dev.Caps().Device
	conn, err := dial(ctx, dev, addr, c)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	warm := c
	warm.Messages = c.Depth
	if _, err := conn.ours(ctx, warm); err != nil {
		return res, fmt.Errorf("%v: ours: %w", c, err)
	}
	var ours, theirs, ratios []float64
	lost := 0
	for len(ratios) < pairs || ratioOf(ratios).Wide() && len(ratios) < 3*pairs {
		var o, p float64
		var failed error
		turns := []func() error{
			func() (err error) { o, err = conn.ours(ctx, c); return err },
			func() error { p, failed = perftest(ctx, c, name, addr, port+len(ratios)+lost); return nil },
		}
		for i := range turns { // another one begins each time
			if err := turns[(i+len(ratios))%2](); err != nil {
				return res, fmt.Errorf("%v: ours: %w", c, err)
			}
		}
		if failed != nil {
			if lost++; lost > maxLost {
				return res, fmt.Errorf("%v: %w", c, failed)
			}
			continue
		}
		ours, theirs, ratios = append(ours, o), append(theirs, p), append(ratios, o/p)
	}
	r := ratioOf(ratios)
	return Result{
		Device: name, Program: c.Program, Policy: c.Policy, Size: c.Size, Depth: c.Depth,
		Ours: median(ours), Perftest: median(theirs), Ratio: r, Pairs: len(ratios), Verdict: c.Verdict(r), Lost: lost,
	}, nil
}
