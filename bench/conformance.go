package main

import (
	"flag"
	"fmt"
	"io"

	"rdmarw/transport/transporttest"
	"rdmarw/transport/transporttest/conformance"
)

const conformanceUsage = `usage: bench conformance [flags]

Prints what rxe0 and siw0 do and what their simulations do, a line for each behaviour, and where they differ and are meant to.
"=" means as the column before, "–" that the device doesn't have what the line is about.
Exit status: 0, 1 if there is a difference that isn't meant or one that is meant isn't there, 2 for bad flags.

  -row TEXT  only behaviours whose name has TEXT in it. Some of them crash the kernel of some devices; those are only
             run if TEXT is the whole of their name
  -live      run the devices (needs a build with -tags ibverbs). Without it, what was recorded of them is shown
  -record    with -live: print the devices' columns only, for transport/transporttest/conformance/recorded.txt
  -list      print the names only

With devices, from the repository's root:

  go build -tags ibverbs -o /tmp/bench ./bench && scripts/guest /tmp/bench conformance -live
`

// conformanceTable is the subcommand.
func conformanceTable(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	text := flags.String("row", "", "")
	live := flags.Bool("live", false, "")
	record := flags.Bool("record", false, "")
	list := flags.Bool("list", false, "")
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected %q", flags.Arg(0))
	}
	rows := transporttest.Find(*text)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("no behaviour has %q in its name; -list lists them", *text)
	}
	if err == nil && *record && !*live {
		err = fmt.Errorf("-record needs -live")
	}
	if err != nil {
		return refuse(err, conformanceUsage, stdout, stderr)
	}
	if *list {
		for _, r := range transporttest.Rows() {
			fmt.Fprintln(stdout, r.ID())
		}
		return exitOK
	}
	table, err := conformance.Fill(rows, *live)
	if err == nil && *record {
		err = transporttest.WriteTable(stdout, rows, table.Devices())
	} else if err == nil {
		err = table.Write(stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	if len(table.Wrong) > 0 && !*record {
		return exitFailed
	}
	return exitOK
}
