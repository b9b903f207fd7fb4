// Bench moves verified data by READ, WRITE and exposure, on the simulator's
// profiles or on a real device, and prints what each transfer took.
//
//	go run ./bench                                          all of it, simulated
//	go run -tags ibverbs ./bench -transport ibverbs -device rxe0
//	go run ./bench explain -device siw -op read -pieces 64  why a plan is what it is
//	go run ./bench cpu                                      what the library itself costs
//	go run -tags ibverbs ./bench devices                    what RDMA devices there are, and what they really do
//	go run -tags ibverbs ./bench postcost                   what posting costs, beside C
//	go run -tags ibverbs ./bench perftest -device rxe0      the same as perftest does, and how long that takes
//	go run ./bench conformance                              what devices do and what their simulations do
//
// How each number is obtained is told by -h, and beside the code that obtains
// it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // a row failed, or was not verified
	exitUsage  = 2 // bad flags, or a transport that this build doesn't have
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "explain":
			return explain(args[1:], stdout, stderr)
		case "cpu":
			return cpuCost(args[1:], stdout, stderr)
		case "devices":
			return showDevices(args[1:], stdout, stderr)
		case "postcost":
			return postCost(args[1:], stdout, stderr)
		case "perftest":
			return againstPerftest(args[1:], stdout, stderr)
		case "conformance":
			return conformanceTable(args[1:], stdout, stderr)
		}
	}
	opts, err := parseFlags(args)
	if err != nil {
		return refuse(err, usage, stdout, stderr)
	}
	return measureAll(opts, newRow, stdout, stderr)
}

// measureAll measures what the options ask for, and writes the rows.
func measureAll(opts options, measure func(options, work) (row, error), stdout, stderr io.Writer) int {
	status := exitOK
	var rows []row
	lines := json.NewEncoder(stdout)
	for _, w := range opts.work() {
		r, err := measure(opts, w)
		var unusable *setupError
		if errors.As(err, &unusable) {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			return exitUsage
		}
		if err != nil {
			fmt.Fprintf(stderr, "bench: %v: %v\n", w, err)
		}
		if !r.Verified {
			status = exitFailed
		}
		rows = append(rows, r)
		if opts.json {
			if err := lines.Encode(r); err != nil {
				fmt.Fprintf(stderr, "bench: %v\n", err)
				return exitFailed
			}
		}
	}
	if !opts.json {
		if err := writeTable(stdout, rows, opts.alternatives); err != nil {
			fmt.Fprintf(stderr, "bench: %v\n", err)
			return exitFailed
		}
	}
	return status
}

// refuse ends a run whose flags were bad, or asked for help.
func refuse(err error, help string, stdout, stderr io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		return exitOK
	}
	fmt.Fprintf(stderr, "bench: %v (-h for help)\n", err)
	return exitUsage
}
