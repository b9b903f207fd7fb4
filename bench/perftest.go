package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"rdmarw/bench/internal/perf"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
)

const perftestUsage = `usage: bench perftest -device NAME [flags]

Compares package rw with perftest's programs on the same device, which is connected to itself: ib_read_bw, ib_write_bw and
ib_read_lat. Needs a build with -tags ibverbs, and perftest. In the guest:

  go build -tags ibverbs -o /tmp/bench ./bench && ./scripts/guest /tmp/bench perftest -device rxe0

Exit status: 0 when every ratio reached its bound, 1 if one didn't or gave no verdict, 2 for bad flags.

  -device NAME    the RDMA device
  -program NAMES  which programs (default: all three)
  -bytes NUMBERS  sizes of messages (default 4096,65536)
  -depth N        messages under way at a time, for bandwidth (default 16)
  -n N            messages of a run (default 2048 for bandwidth, 5000 for latency: the first hundreds are slow)
  -pairs N        runs of each, at least (default 9); up to three times as many while the interval is wider than 0.3
  -procs N        GOMAXPROCS of ours (default 0: what the runtime takes, one for each CPU). With 1 a wait is the runtime's poller's, which
                  is slower
  -port N         perftest's port; each pair takes the next (default 18700)
  -json           one JSON object a line

Both sleep until a completion's event (perftest -e), but ib_write_bw, which has no such mode and spins. Runs of the two take turns.
The ratio is ours to perftest's, the median over pairs of neighbours, with the interval of 95 % that resampling the pairs gives.
A bound is reached if the interval reaches it: bandwidth 0.95, latency 1.15.

A run of perftest that fails or hangs (with -e it has been seen to) is left out, and counted as lost.

On iWARP READs are measured with each of two policies: direct, what perftest does (the sink's long-lived key is shown to the peer), and strict,
the library's default there, which registers the sink for each READ.
`

type perftestOptions struct {
	device          string
	programs        []string
	sizes           []int
	depth, n, pairs int
	port            int
	procs           int
	asJSON          bool
}

func parsePerftest(args []string) (o perftestOptions, err error) {
	fs := flag.NewFlagSet("bench perftest", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.device, "device", "", "")
	programs := fs.String("program", "", "")
	sizes := fs.String("bytes", "4096,65536", "")
	fs.IntVar(&o.depth, "depth", 16, "")
	fs.IntVar(&o.n, "n", 0, "")
	fs.IntVar(&o.pairs, "pairs", 9, "")
	fs.IntVar(&o.procs, "procs", 0, "")
	fs.IntVar(&o.port, "port", 18700, "")
	fs.BoolVar(&o.asJSON, "json", false, "")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.device == "" {
		return o, fmt.Errorf("-device is needed (such as rxe0)")
	}
	var all []string
	for _, t := range perf.Tests {
		all = append(all, t.Program)
	}
	if o.programs = list(*programs); len(o.programs) == 0 {
		o.programs = all
	}
	for _, p := range o.programs {
		if !slices.Contains(all, p) {
			return o, fmt.Errorf("-program %q: the programs are %s", p, strings.Join(all, ", "))
		}
	}
	for _, word := range list(*sizes) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 1<<23 {
			return o, fmt.Errorf("-bytes %q: a number from 1 to %d", word, 1<<23)
		}
		o.sizes = append(o.sizes, n)
	}
	if o.depth < 1 || o.depth > 1024 || o.n != 0 && o.n < 5 || o.pairs < 1 || o.procs < 0 || o.port < 1 || o.port > 60000 {
		return o, fmt.Errorf("-depth from 1 to 1024, -n from 5, -pairs from 1, -procs from 0, -port from 1 to 60000")
	}
	return o, nil
}

// cases are those that the options ask for, on a device.
func (o *perftestOptions) cases(caps *transport.Caps) (all []perf.Case) {
	for _, t := range perf.Tests {
		if !slices.Contains(o.programs, t.Program) {
			continue
		}
		n := o.n
		if n == 0 {
			n = t.DefaultMessages
		}
		for _, size := range o.sizes {
			c := perf.Case{Test: t, Size: size, Depth: o.depth, Messages: max(n, o.depth)}
			if t.Latency {
				c.Depth = 1
			}
			if caps.Protocol != transport.IWARP || t.Op != rw.Read {
				all = append(all, c)
				continue
			}
			direct, strict := c, c
			direct.Policy, direct.Sink = "direct", rw.SinkDirect
			strict.Policy, strict.Sink = "strict", rw.SinkStrict
			if caps.ReadSinkNeedsRemoteWrite {
				all = append(all, strict)
			} else {
				all = append(all, direct, strict)
			}
		}
	}
	return all
}

// againstPerftest compares with perftest.
func againstPerftest(args []string, stdout, stderr io.Writer) int {
	o, err := parsePerftest(args)
	if err != nil {
		return refuse(err, perftestUsage, stdout, stderr)
	}
	dev, err := ibverbs.Open(o.device)
	if err != nil {
		return refuse(err, perftestUsage, stdout, stderr)
	}
	defer dev.Close()
	addr, err := addressOf(dev.Caps().Device)
	if err != nil {
		return refuse(err, perftestUsage, stdout, stderr)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(o.procs))
	status := exitOK
	lines := json.NewEncoder(stdout)
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "program\tbytes\tpolicy\tdepth\tours\tperftest\tunit\tratio\tinterval\tpairs\tlost\tverdict\n")
	for i, c := range o.cases(dev.Caps()) {
		r, err := perf.Compare(context.Background(), dev, addr.String(), c, o.pairs, o.port+100*i)
		if err != nil {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			status = exitFailed
			continue
		}
		if r.Verdict != "reached" && c.Policy != "strict" { // which perftest has nothing like
			status = exitFailed
		}
		if o.asJSON {
			if err := lines.Encode(r); err != nil {
				return exitFailed
			}
			continue
		}
		unit := "MiB/s"
		if c.Latency {
			unit = "µs"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%.2f\t%.2f\t%s\t%.2f\t%.2f–%.2f\t%d\t%d\t%s\n", r.Program, r.Size, r.Policy, r.Depth,
			r.Ours, r.Perftest, unit, r.Ratio.Median, r.Ratio.Low, r.Ratio.High, r.Pairs, r.Lost, r.Verdict)
	}
	if !o.asJSON && w.Flush() != nil {
		return exitFailed
	}
	return status
}
