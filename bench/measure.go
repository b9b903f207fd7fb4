package main

import (
	"errors"
	"runtime"

	"rdmarw/rw"
	"rdmarw/transport"
)

// warmUps are repetitions that don't count: queues and lists reach their sizes,
// code and data their caches.
const warmUps = 3

// allocationRuns is how many repetitions at most count allocations.
const allocationRuns = 10

// trial repeats the transfer of a row.
type trial struct {
	*rig
	work
	plan     rw.Plan
	transfer rw.Context
	exposure rw.Exposure
	signal   struct{ sent, received rw.Context }
	data     []byte
	// tamper, if not nil, spoils the sink before it is checked.
	tamper func(sink *area)
}

// sample is what one repetition gives.
type sample struct {
	metered    int64
	modelledUS float64
	counts
}

// newRow measures one row. On error the row tells what was to be measured, and is
// not verified.
func newRow(o options, w work) (row, error) { return measureRow(o, w, nil) }

func measureRow(o options, w work, tamper func(*area)) (row, error) {
	res := row{Device: w.device, Op: w.op, Pieces: w.pieces, Bytes: w.bytes}
	err := measureTrial(o, w, variant{}, tamper, &res)
	if err == nil && o.alternatives {
		err = measureAlternatives(o, w, &res)
	}
	res.Verified = err == nil
	return res, err
}

// measureTrial does a row's transfer as a variant says, and fills in what it took.
func measureTrial(o options, w work, v variant, tamper func(*area), res *row) error {
	r, err := openRig(o, w, v)
	if err != nil {
		return err
	}
	res.Protocol = r.a.dev.Caps().Protocol.String()
	t := &trial{rig: r, work: w, tamper: tamper}
	err = t.measure(o, res)
	err = errors.Join(err, r.close())
	if r.misuse != nil {
		err = errors.Join(err, r.misuse())
	}
	return err
}

// measure fills in a row: first the warm-up, then the repetitions that are timed,
// then those whose allocations are counted.
func (t *trial) measure(o options, res *row) error {
	data := newSource(o.seed, t.bytes)
	repeat := func(n int, counter func() int64) (all []sample, err error) {
		for range n {
			t.data = data.next(t.bytes)
			s, err := t.once(counter)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
		return all, nil
	}
	warm, err := repeat(warmUps, t.clock)
	if err != nil {
		return err
	}
	runtime.GC() // so that none is due while time is measured
	timed, err := repeat(o.n, t.clock)
	if err != nil {
		return err
	}
	counting, err := repeat(min(o.n, o.counted), mallocs)
	if err != nil {
		return err
	}
	last := warm[len(warm)-1].counts
	res.Strategy = t.plan.Strategy.String()
	res.WRs, res.Registrations, res.Invalidations = last.wrs, last.registrations, last.invalidations
	res.ReadsInFlight = min(t.plan.Cost.Reads, t.a.depth)
	res.CPUNS = median(field(timed, func(s sample) int64 { return s.metered }))
	if len(counting) > 0 {
		res.Allocs = median(field(counting, func(s sample) int64 { return s.metered }))
	}
	if t.virtual != nil {
		us := median(field(timed, func(s sample) float64 { return s.modelledUS }))
		res.ModelledUS = &us
	}
	return nil
}

func field[T any](samples []sample, get func(sample) T) []T {
	all := make([]T, len(samples))
	for i, s := range samples {
		all[i] = get(s)
	}
	return all
}

// once does the row's transfer with new data, and checks where it went.
func (t *trial) once(counter func() int64) (sample, error) {
	m := &meter{read: counter}
	var s sample
	var err error
	if t.op == "expose" {
		s, err = t.expose(m)
	} else {
		s, err = t.readOrWrite(m)
	}
	s.metered = m.total
	return s, err
}

// observe notes what side a's device does, and how much virtual time passes, until
// the function that it returns is called. Where nobody counts, the plan does.
func (t *trial) observe() (end func() sample) {
	var before counts
	if t.counted != nil {
		before = t.counted()
	}
	var start = t.now()
	return func() sample {
		s := sample{modelledUS: float64(t.now()-start) / 1e3, counts: t.planned()}
		if t.counted != nil {
			now := t.counted()
			s.counts = counts{now.wrs - before.wrs, now.registrations - before.registrations, now.invalidations - before.invalidations}
		}
		return s
	}
}

func (t *trial) now() int64 {
	if t.virtual == nil {
		return 0
	}
	return int64(t.virtual())
}

// planned are the counts as the plan has them. A READ_WITH_INV is a key killed.
func (t *trial) planned() counts {
	c := t.plan.Cost
	p := counts{c.WRs, c.Registrations, c.Invalidations}
	if t.op == "read" && t.plan.Strategy == rw.FastReg && t.a.dev.Caps().ReadWithInv {
		p.invalidations += c.Registrations
	}
	return p
}

// settle checks the sink.
func (t *trial) settle(sink *area) error {
	if t.tamper != nil {
		t.tamper(sink)
	}
	return sink.check(t.data)
}

// remoteBytes is the length of what a peer described.
func remoteBytes(remotes []transport.Remote) (n uint64) {
	for _, r := range remotes {
		n += uint64(r.Len)
	}
	return n
}
