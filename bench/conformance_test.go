package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConformanceTable(t *testing.T) {
	status, out, errs := bench("conformance", "-row", "READ whole range")
	require.Empty(t, errs)
	require.Equal(t, exitOK, status)
	lines := strings.Split(out, "\n")
	require.Regexp(t, `^behaviour +rxe0 +sim-rxe +siw0 +sim-siw$`, lines[0])
	require.Regexp(t, `^range and key: READ whole range +A=ok B=0B sink=all +=  .*A=ok B=0B sink=all +=$`, lines[1])
	require.Contains(t, out, "1 rows; 1 exercised on rxe0")
}

func TestConformanceNames(t *testing.T) {
	status, out, _ := bench("conformance", "-list")
	require.Equal(t, exitOK, status)
	require.Contains(t, out, "\nLOCAL_INV: window, twice\n", "also those that crash machines")
	for _, args := range [][]string{{"-row", "no such thing"}, {"-record"}, {"-nonsense"}, {"extra"}} {
		status, out, errs := bench(append([]string{"conformance"}, args...)...)
		require.Equal(t, exitUsage, status, args)
		require.Empty(t, out)
		require.Equal(t, 1, strings.Count(errs, "\n"))
	}
	status, out, _ = bench("conformance", "-h")
	require.Equal(t, exitOK, status)
	require.Contains(t, out, "usage: bench conformance")
}
