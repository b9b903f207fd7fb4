package main

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"rdmarw/transport/sim"
)

// options are what the flags say.
type options struct {
	transport string
	devices   []string
	ops       []string
	pieces    []int
	bytes     int
	n         int
	counted   int // repetitions, at most, that count allocations
	seed      uint64
	json      bool
	// alternatives: measure those of each row, too.
	alternatives bool
	// poolEmpty: explain finds no fast registration free.
	poolEmpty bool
}

var allOps = []string{"read", "write", "expose"}

const (
	simulated = "sim"
	verbs     = "ibverbs"

	maxPieces = 16384
	maxBytes  = 1 << 30
)

// target declares the flags that bench and bench explain have in common: what
// to look at.
type target struct {
	fs                   *flag.FlagSet
	transport            *string
	devices, ops, pieces *string
	bytes                *int
}

func newTarget(name string) target {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are reported in one line, help by run
	return target{
		fs:        fs,
		transport: fs.String("transport", simulated, ""),
		devices:   fs.String("device", "", ""),
		ops:       fs.String("op", "", ""),
		pieces:    fs.String("pieces", "", ""),
		bytes:     fs.Int("bytes", 0, ""),
	}
}

// parse parses arguments and checks what is common.
func (t *target) parse(args []string) (o options, err error) {
	if err := t.fs.Parse(args); err != nil {
		return o, err
	}
	if t.fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", t.fs.Arg(0))
	}
	o.transport, o.bytes = *t.transport, *t.bytes
	if o.devices, err = devices(o.transport, *t.devices); err != nil {
		return o, err
	}
	o.ops = list(*t.ops)
	for _, op := range o.ops {
		if !slices.Contains(allOps, op) {
			return o, fmt.Errorf("-op %q: the operations are %s", op, strings.Join(allOps, ", "))
		}
	}
	if o.bytes < 0 || o.bytes > maxBytes {
		return o, fmt.Errorf("-bytes %d: from 1 to %d", o.bytes, maxBytes)
	}
	for _, word := range list(*t.pieces) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > maxPieces {
			return o, fmt.Errorf("-pieces %q: a number from 1 to %d", word, maxPieces)
		}
		if o.bytes > 0 && o.bytes < n {
			return o, fmt.Errorf("-bytes %d: less than a byte for each of %d pieces", o.bytes, n)
		}
		o.pieces = append(o.pieces, n)
	}
	return o, nil
}

// devices checks and completes the names of devices.
func devices(transport, names string) ([]string, error) {
	asked := list(names)
	switch transport {
	case verbs:
		if len(asked) == 0 {
			return nil, fmt.Errorf("-transport %s needs -device (such as rxe0)", verbs)
		}
		return asked, nil
	case simulated:
		var profiles []string
		for _, p := range sim.Profiles() {
			profiles = append(profiles, p.Name)
		}
		for _, name := range asked {
			if _, ok := sim.LookupProfile(name); !ok {
				return nil, fmt.Errorf("-device %q: the simulator's profiles are %s", name, strings.Join(profiles, ", "))
			}
		}
		if len(asked) > 0 {
			return asked, nil
		}
		return profiles, nil
	}
	return nil, fmt.Errorf("-transport %q: the transports are %s, %s", transport, simulated, verbs)
}

// verbNames are the first arguments that are more than flags.
var verbNames = []string{"explain", "cpu", "devices", "postcost", "perftest", "conformance"}

func parseFlags(args []string) (options, error) {
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		return options{}, fmt.Errorf("no verb %q: there are %s; without one it measures", args[0], strings.Join(verbNames, ", "))
	}
	t := newTarget("bench")
	n := t.fs.Int("n", 20, "")
	seed := t.fs.Uint64("seed", 1, "")
	asJSON := t.fs.Bool("json", false, "")
	others := t.fs.Bool("alternatives", true, "")
	o, err := t.parse(args)
	if err != nil {
		return o, err
	}
	if *n < 1 || *n > 1e6 {
		return o, fmt.Errorf("-n %d: from 1 to 1000000", *n)
	}
	o.n, o.seed, o.json = *n, *seed, *asJSON
	o.counted = allocationRuns
	o.alternatives = *others && o.transport == simulated // only there devices can be changed
	if len(o.ops) == 0 {
		o.ops = allOps
	}
	for _, name := range o.devices {
		if p, ok := sim.LookupProfile(name); ok && p.Refusal != "" && o.transport == simulated {
			return o, fmt.Errorf("-device %q is refused: %s", name, p.Refusal)
		}
	}
	return o, nil
}

// list splits a comma-separated list.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
