package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"rdmarw/bench/internal/postcost"
)

const postcostUsage = `usage: bench postcost [-device NAMES] [-json]

What posting a chain of 16 WRITEs costs, beside a C program that builds and posts the same chain. Needs a build with
-tags ibverbs.

  -device NAMES  RDMA devices, such as rxe0, after the stub: a provider that only walks the chain and copies it
  -json          one JSON object a line

  ours ns      building requests and SGEs, and PostSend
  C ns         building struct ibv_send_wr and struct ibv_sge, and ibv_post_send
  crossing ns  a call of an empty C function from Go
  filled ns    another way to do it: Go fills C's structs in C's memory, with the same checks, and one call posts them
  ratio        ours to C's. Of the stub without the crossing, of a device with all that it takes

Both take their turns in one thread, in changing order. Medians of all turns; the ratio is the median of the ratios of turns that
follow each other.
`

// postCost prints what posting costs.
func postCost(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("bench postcost", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	names := fs.String("device", "", "")
	asJSON := fs.Bool("json", false, "")
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		return refuse(err, postcostUsage, stdout, stderr)
	}
	var results []postcost.Result
	r, err := postcost.Stub()
	if err != nil {
		return refuse(err, postcostUsage, stdout, stderr)
	}
	results = append(results, r)
	status := exitOK
	for _, name := range list(*names) {
		r, err := postcost.Device(name)
		if err != nil {
			fmt.Fprintf(stderr, "bench: %s: %v\n", name, err)
			status = exitFailed
			continue
		}
		results = append(results, r)
	}
	if *asJSON {
		lines := json.NewEncoder(stdout)
		for _, r := range results {
			if err := lines.Encode(r); err != nil {
				return exitFailed
			}
		}
		return status
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "device\tours ns\tC ns\tcrossing ns\tfilled ns\tratio\t")
	for _, r := range results {
		filled := "–"
		if r.FillNS > 0 {
			filled = fmt.Sprintf("%.0f", r.FillNS)
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%s\t%.2f\t\n", r.Device, r.OursNS, r.CNS, r.CrossingNS, filled, r.Ratio)
	}
	if err := w.Flush(); err != nil {
		return exitFailed
	}
	return status
}
