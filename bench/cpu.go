package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"rdmarw/bench/internal/cpu"
)

// cpuCost measures what transfers cost in CPU time, on a null device.
func cpuCost(args []string, stdout, stderr io.Writer) int {
	asJSON, err := parseCPU(args)
	if err != nil {
		return refuse(err, cpuUsage, stdout, stderr)
	}
	var results []cpu.Result
	lines := json.NewEncoder(stdout)
	for _, c := range cpu.Cases {
		r, err := cpu.Measure(c)
		if err == nil && asJSON {
			err = lines.Encode(r)
		}
		if err != nil {
			fmt.Fprintf(stderr, "bench: %v: %v\n", c, err)
			return exitFailed
		}
		results = append(results, r)
	}
	if asJSON {
		return exitOK
	}
	if err := writeCPUTable(stdout, results); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	fmt.Fprint(stdout, cpuNotes)
	return exitOK
}

func parseCPU(args []string) (asJSON bool, err error) {
	fs := flag.NewFlagSet("bench cpu", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&asJSON, "json", false, "")
	if err := fs.Parse(args); err != nil {
		return false, err
	}
	if fs.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return asJSON, nil
}

func writeCPUTable(w io.Writer, results []cpu.Result) error {
	lines := [][]string{{"transfer", "WRs", "floor ns", "ours ns", "ours/floor", "shared ns", "allocations", "rw.c ns*", "checksum"}}
	for _, r := range results {
		lines = append(lines, []string{
			r.Case, fmt.Sprint(r.WRs), fmt.Sprintf("%.0f", r.FloorNS), fmt.Sprintf("%.0f", r.OursNS), fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("%.0f", r.SharedNS),
			fmt.Sprint(r.Allocs), fmt.Sprint(r.LinuxNS), cmp.Or(r.Checksum, "none"),
		})
	}
	alignLeft(lines, 0)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		for _, cell := range line {
			fmt.Fprintf(tw, "%s\t", cell)
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}
