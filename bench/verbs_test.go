package main

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/bench/internal/perf"
	"rdmarw/rw"
	"rdmarw/transport"
)

// What needs devices says so, and bad flags are refused before anything is opened.
func TestFlagsOfDeviceCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"devices", "-device", "nosuch9"}, "no such device"},
		{[]string{"devices", "x"}, "unexpected argument"},
		{[]string{"postcost", "-x"}, "-x"},
		{[]string{"postcost", "x"}, "unexpected argument"},
		{[]string{"perftest"}, "-device is needed"},
		{[]string{"perftest", "-device", "nosuch9"}, "nosuch9"},
		{[]string{"perftest", "-device", "a", "-program", "ib_send_bw"}, "the programs are ib_read_bw"},
		{[]string{"perftest", "-device", "a", "-bytes", "0"}, "a number from 1"},
		{[]string{"perftest", "-device", "a", "-depth", "0"}, "-depth from 1"},
	} {
		var out, err bytes.Buffer
		require.Equal(t, exitUsage, run(c.args, &out, &err), "%v", c.args)
		require.Contains(t, err.String(), c.want, "%v", c.args)
		require.Empty(t, out.String())
	}
	for _, command := range []string{"devices", "postcost", "perftest"} {
		var out, err bytes.Buffer
		require.Equal(t, exitOK, run([]string{command, "-h"}, &out, &err))
		require.Contains(t, out.String(), "usage: bench "+command)
	}
}

// A verb that there isn't lists those that there are, all of which there are.
func TestVerbs(t *testing.T) {
	for _, word := range []string{"explian", "help"} {
		var out, err bytes.Buffer
		require.Equal(t, exitUsage, run([]string{word}, &out, &err))
		require.Equal(t, fmt.Sprintf("bench: no verb %q: there are explain, cpu, devices, postcost, perftest, conformance; without one it measures (-h for help)\n", word), err.String())
		require.Empty(t, out.String())
	}
	for _, verb := range verbNames {
		var out, err bytes.Buffer
		require.Equal(t, exitOK, run([]string{verb, "-h"}, &out, &err), err.String())
		require.Contains(t, out.String(), "usage: bench "+verb)
	}
}

func TestPerftestCases(t *testing.T) {
	o, err := parsePerftest([]string{"-device", "d", "-n", "8"})
	require.NoError(t, err)
	roce := o.cases(&transport.Caps{Protocol: transport.RoCE})
	require.Len(t, roce, 6)
	require.Equal(t, perf.Case{Test: perf.Tests[0], Size: 4096, Depth: 16, Messages: 16}, roce[0])
	require.Equal(t, 1, roce[5].Depth, "latency is of one at a time")
	siw := o.cases(&transport.Caps{Protocol: transport.IWARP})
	require.Len(t, siw, 10, "READs with two policies")
	require.Equal(t, rw.SinkDirect, siw[0].Sink)
	require.Equal(t, rw.SinkStrict, siw[1].Sink)
	o.programs = []string{"ib_read_lat"}
	require.Len(t, o.cases(&transport.Caps{Protocol: transport.IWARP, ReadSinkNeedsRemoteWrite: true}), 2, "direct is refused there")
}
