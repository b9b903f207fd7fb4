package transporttest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport/sim"
	"rdmarw/transport/transporttest"
	"rdmarw/transport/transporttest/conformance"
)

// inGuest skips what needs no devices where devices are: it would be emulated for nothing.
func inGuest(t *testing.T) {
	if os.Getenv("RDMARW_GUEST") != "" {
		t.Skip("of the simulator: runs outside of the guest")
	}
}

func TestProfiles(t *testing.T) {
	inGuest(t)
	for _, p := range sim.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			transporttest.Run(t, conformance.Simulated(p.Name, 1))
		})
	}
}

// What a row records is nobody's luck: not the schedule's, and not that of real time.
func TestCellsAreTheSameOnEverySchedule(t *testing.T) {
	inGuest(t)
	rows := transporttest.Find("")
	for _, p := range conformance.Pairs() {
		first := transporttest.Fill("1", rows, conformance.Simulated(p.Profile, 1))
		for seed := range uint64(5) {
			other := transporttest.Fill("other", rows, conformance.Simulated(p.Profile, 100+seed))
			require.Empty(t, transporttest.Compare(rows, first, other, nil), "%s, seed %d", p.Profile, 100+seed)
		}
		t.Run(p.Profile+" free-running", func(t *testing.T) {
			t.Parallel()
			free := transporttest.Fill("free", rows, conformance.FreeRunning(p.Profile))
			require.Empty(t, transporttest.Compare(rows, first, free, nil))
		})
	}
}

func TestSimulatorDoesWhatWasRecordedOfTheDevices(t *testing.T) {
	inGuest(t)
	table, err := conformance.Fill(transporttest.Find(""), false)
	require.NoError(t, err)
	for _, what := range table.Wrong {
		t.Error(what)
	}
}

func TestEnoughIsComparedAndLittleExcused(t *testing.T) {
	table, err := conformance.Fill(transporttest.Find(""), false)
	require.NoError(t, err)
	for _, c := range table.Columns {
		require.GreaterOrEqual(t, c.Exercised(), 100, c.Name)
	}
	excused := 0
	for _, p := range conformance.Pairs() {
		excused += len(p.Known)
		for _, k := range p.Known {
			require.Regexp(t, `^(drivers|net)/[\w/]+\.c:\d+ \w+: `, k.Cause, "where in Linux 6.12 %q comes from", k.Row)
		}
	}
	require.LessOrEqual(t, excused, 12)
}

func TestRowsAreToldApart(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range transporttest.Rows() {
		require.False(t, seen[r.ID()], r.ID())
		require.NotContains(t, r.ID(), "  ", "two spaces part the table's columns")
		seen[r.ID()] = true
	}
}

// Rows that crash a real machine are left out unless they are named; the simulator reports
// what would have happened.
func TestCrashesAreReported(t *testing.T) {
	inGuest(t)
	for _, r := range transporttest.Find("") {
		require.False(t, r.Crashes)
	}
	crashes := 0
	for _, r := range transporttest.Rows() {
		if !r.Crashes {
			continue
		}
		require.Len(t, transporttest.Find(r.ID()), 1)
		for _, profile := range []string{"rxe", "siw"} {
			if cell := r.Record(conformance.Simulated(profile, 1)); strings.Contains(strings.Join(cell.Broken, ""), "crashed") {
				crashes++
			}
		}
	}
	require.Equal(t, 2, crashes)
}
