package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/bench/internal/cpu"
)

func TestCPUTable(t *testing.T) {
	status, out, errs := bench("cpu")
	require.Empty(t, errs)
	require.Equal(t, exitOK, status)
	lines := strings.Split(out, "\n")
	for i, c := range cpu.Cases {
		require.Contains(t, lines[1+i], c.String())
	}
	require.Contains(t, out, "For orientation, not measured here")
}

// Programs read these lines: exactly these names, one object a line.
func TestCPUJSON(t *testing.T) {
	status, out, errs := bench("cpu", "-json")
	require.Empty(t, errs)
	require.Equal(t, exitOK, status)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, len(cpu.Cases))
	for _, line := range lines {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		var names []string
		for name := range fields {
			names = append(names, name)
			require.Contains(t, cpuUsage, name)
		}
		require.ElementsMatch(t, []string{"case", "wrs", "floor_ns", "ours_ns", "ratio", "shared_ns", "allocs", "linux_ns", "checksum"}, names)
	}
}
