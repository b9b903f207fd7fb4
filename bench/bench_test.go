package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport/sim"
)

// bench runs the program.
func bench(args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(args, &out, &err)
	return status, out.String(), err.String()
}

func TestEveryProfileMovesVerifiedData(t *testing.T) {
	status, out, errs := bench("-n", "1", "-pieces", "5", "-bytes", "20001")
	require.Empty(t, errs)
	require.Equal(t, exitOK, status)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	rows := 1 + len(sim.Profiles())*3
	require.Equal(t, "", lines[rows], "one table, and what it means")
	columns := columns(true)
	require.Equal(t, columns, splitCells(lines[0]))
	for _, line := range lines[1:rows] {
		cells := splitCells(line)
		require.Len(t, cells, len(columns))
		require.Equal(t, "yes", cells[len(cells)-1])
		require.NotEqual(t, "0", cells[slices.Index(columns, "CPU ns")])
	}
}

// splitCells splits a line where at least two blanks are.
func splitCells(line string) (cells []string) {
	for _, cell := range strings.Split(line, "  ") {
		if cell = strings.TrimSpace(cell); cell != "" {
			cells = append(cells, cell)
		}
	}
	return cells
}

func jsonRows(t *testing.T, args ...string) []row {
	status, out, errs := bench(append([]string{"-json", "-alternatives=false"}, args...)...)
	require.Empty(t, errs)
	require.Equal(t, exitOK, status)
	var rows []row
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	for {
		var r row
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return rows
		}
		require.NoError(t, err)
		rows = append(rows, r)
	}
}

// Programs read these lines: exactly these names, one object a line.
func TestJSONHasExactlyTheseNames(t *testing.T) {
	_, out, _ := bench("-json", "-n", "1", "-device", "siw", "-op", "read", "-pieces", "2")
	require.Equal(t, 1, strings.Count(out, "\n"))
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &fields))
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"device", "protocol", "op", "pieces", "bytes", "strategy", "wrs", "registrations", "invalidations",
		"reads_in_flight", "cpu_ns", "floor_ns", "allocs", "modelled_us", "verified", "alternatives"}, names)
	require.Nil(t, fields["floor_ns"])
	require.Equal(t, "iWARP", fields["protocol"])
	require.Equal(t, "sync-reg", fields["strategy"])
	require.Equal(t, 2.0, fields["wrs"])
	require.Equal(t, 2.0, fields["reads_in_flight"])
	require.Greater(t, fields["modelled_us"], 0.0)
	require.Equal(t, true, fields["verified"])
}

func TestSameSeedSameModel(t *testing.T) {
	args := []string{"-n", "2", "-device", "rxe,siw-kernel", "-pieces", "40", "-seed", "7"}
	rows := jsonRows(t, args...)
	for i, again := range jsonRows(t, args...) {
		require.Equal(t, rows[i].ModelledUS, again.ModelledUS)
	}
}

// The simulated device counts what the plan says.
func TestCountsAreThePlans(t *testing.T) {
	for _, r := range jsonRows(t, "-n", "1", "-pieces", "1,100") {
		o := options{transport: simulated}
		x, err := explanation(o, work{r.Device, r.Op, shape{r.Pieces, r.Bytes}})
		require.NoError(t, err)
		require.Equal(t, x.Plan.Strategy.String(), r.Strategy)
		require.Equal(t, x.Plan.Cost.Registrations, r.Registrations, r)
		if r.Op == "read" && r.Strategy == "fast-reg" && r.Protocol != "iWARP" {
			// The use before left the registration valid: its invalidation comes on top.
			require.Equal(t, r.Registrations, r.Invalidations)
			require.Equal(t, x.Plan.Cost.WRs+r.Invalidations, r.WRs, r)
			continue
		}
		require.Equal(t, x.Plan.Cost.WRs, r.WRs, r)
		if profile, _ := sim.LookupProfile(r.Device); r.Op == "read" && r.Strategy == "fast-reg" && profile.Caps.ReadWithInv {
			require.Equal(t, r.Registrations, r.Invalidations, "by READ_WITH_INV")
		} else {
			require.Equal(t, x.Plan.Cost.Invalidations, r.Invalidations, r)
		}
	}
}

// A row whose bytes went wrong, in a piece or beside it, fails the run.
func TestWrongBytesAreFound(t *testing.T) {
	for name, at := range map[string]func(*area) int{
		"first byte": func(a *area) int { return a.spans[0].start },
		"last byte":  func(a *area) int { return a.spans[len(a.spans)-1].end - 1 },
		"before":     func(a *area) int { return a.spans[0].start - 1 },
		"behind":     func(a *area) int { return a.spans[len(a.spans)-1].end },
		"between":    func(a *area) int { return a.spans[0].end },
		"far before": func(*area) int { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			spoil := func(o options, w work) (row, error) {
				return measureRow(o, w, func(sink *area) { sink.region.Bytes()[at(sink)] ^= 1 })
			}
			o, err := parseFlags([]string{"-device", "rxe", "-pieces", "3", "-n", "1", "-alternatives=false"})
			require.NoError(t, err)
			var out, errs bytes.Buffer
			require.Equal(t, exitFailed, measureAll(o, spoil, &out, &errs))
			require.Equal(t, 3, strings.Count(out.String(), "NO\n"), out.String())
			require.Equal(t, 3, strings.Count(errs.String(), "verification: "), errs.String())
		})
	}
}

// A sink that nothing was written to is wrong in every byte.
func TestNothingIsRightByAccident(t *testing.T) {
	status := measureAll(options{transport: simulated, devices: []string{"siw"}, ops: []string{"read"}, pieces: []int{1}, n: 1},
		func(o options, w work) (row, error) {
			return measureRow(o, w, func(sink *area) {
				data := slices.Clone(sink.region.Bytes()[sink.spans[0].start:sink.spans[0].end])
				sink.poison(data)
				for i, s := 0, sink.spans[0]; i < len(data); i++ {
					require.NotEqual(t, data[i], sink.region.Bytes()[s.start+i])
				}
			})
		}, io.Discard, io.Discard)
	require.Equal(t, exitFailed, status)
}

func TestBadFlagsAreRefusedInOneLine(t *testing.T) {
	for _, args := range [][]string{
		{"-nonsense"}, {"stray"}, {"-n", "0"}, {"-n", "many"}, {"-op", "swap"}, {"-device", "mlx9"}, {"-pieces", "0"},
		{"-pieces", "1,x"}, {"-bytes", "-1"}, {"-pieces", "10", "-bytes", "9"}, {"-transport", "tcp"}, {"-transport", "ibverbs"},
		{"explain"}, {"explain", "-device", "rxe,siw"}, {"explain", "-device", "nic"}, {"explain", "-device", "siw", "-n", "3"},
		{"explain", "-device", "siw", "-op", "read,write"}, {"explain", "-device", "siw", "-bytes", "3"}, {"cpu", "-n", "1"}, {"cpu", "stray"}, {"-device", "efa"},
		{"explain", "-device", "siw", "-pool-empty=maybe"},
	} {
		status, out, errs := bench(args...)
		require.Equal(t, exitUsage, status, args)
		require.Empty(t, out, args)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
		require.True(t, strings.HasPrefix(errs, "bench: "), errs)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"explain", "-h"}, {"cpu", "-h"}} {
		status, out, errs := bench(args...)
		require.Equal(t, exitOK, status)
		require.Empty(t, errs)
		require.Contains(t, out, "usage: bench")
	}
	for _, column := range columns(true)[4:] {
		require.Contains(t, usage, column, "columns are explained")
	}
	for name := range map[string]bool{"protocol": true, "reads_in_flight": true, "floor_ns": true, "modelled_us": true} {
		require.Contains(t, usage, name)
	}
}

func TestExplain(t *testing.T) {
	status, out, errs := bench("explain", "-device", "siw-kernel", "-op", "read", "-pieces", "300")
	require.Empty(t, errs)
	require.Equal(t, exitOK, status)
	require.Contains(t, out, "READ of 300 pieces, 1228800 bytes, on siw-kernel (iWARP)")
	require.Contains(t, out, "REG0 READ+INV0 REG1 READ+INV1")
	require.Contains(t, out, "rejected:")

	_, out, _ = bench("explain", "-device", "rxe", "-op", "expose", "-pieces", "3")
	require.Contains(t, out, "BIND0 BIND1 BIND2")
	_, out, _ = bench("explain", "-device", "siw", "-op", "write", "-pieces", "7", "-bytes", "7")
	require.Contains(t, out, "WRITE0(6 SGEs) WRITE1")
}

func TestShapes(t *testing.T) {
	require.Equal(t, []int{4, 3, 3}, shape{3, 10}.lengths())
	o, err := parseFlags([]string{"-pieces", "1,2"})
	require.NoError(t, err)
	require.Equal(t, []shape{{1, 4096}, {2, 8192}}, o.shapes())
	o, err = parseFlags([]string{"-bytes", "100"})
	require.NoError(t, err)
	require.Equal(t, []shape{{1, 100}}, o.shapes())
	o, err = parseFlags(nil)
	require.NoError(t, err)
	require.Equal(t, defaultShapes, o.shapes())
}

func TestMedian(t *testing.T) {
	require.Equal(t, int64(3), median([]int64{9, 3, 1}))
	require.Equal(t, int64(1), median([]int64{2, 1}))
	require.Equal(t, 0.5, median([]float64{0.5}))
}
