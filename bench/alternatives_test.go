package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// others measures the alternatives of one row.
func others(t *testing.T, device, op string, pieces string) (row, map[string]*alternativeRow) {
	rows := jsonRows(t, "-alternatives", "-n", "1", "-device", device, "-op", op, "-pieces", pieces)
	require.Len(t, rows, 1)
	return rows[0], rows[0].Alternatives
}

func TestAlternativesAreOtherWays(t *testing.T) {
	r, all := others(t, "mlx5-kernel", "write", "64")
	require.Equal(t, 3, r.WRs)
	require.Equal(t, 64, all["register_per_io"].Registrations)
	require.Equal(t, "sync-reg", all["register_per_io"].Strategy)
	require.Greater(t, all["register_per_io"].ModelledUS, 10*(*r.ModelledUS))
	require.Equal(t, "fast-reg", all["register_always"].Strategy)
	require.Equal(t, 3, all["register_always"].WRs, "INV of the use before, REG, WRITE")
	require.Equal(t, 64, all["one_sge"].WRs)
	require.Equal(t, "direct", all["one_sge"].Strategy)
	require.False(t, all["one_sge"].KeyLasts)

	r, all = others(t, "siw", "read", "16")
	require.Equal(t, r.Strategy, all["register_per_io"].Strategy)
	require.Nil(t, all["register_always"], "user-space verbs has no fast registration")
	require.Zero(t, all["one_sge"].Registrations)
	require.True(t, all["one_sge"].KeyLasts)
	require.Equal(t, []string{"=", "–"}, r.alternativeCells()[:2])
	require.Regexp(t, `^\*16/0/\d+`, r.alternativeCells()[2])

	_, all = others(t, "irdma-iwarp", "read", "16")
	require.Equal(t, 16, all["one_sge"].WRs, "though its READs may have 13 SGEs")

	_, all = others(t, "mlx5-kernel", "expose", "16")
	require.Equal(t, "window", all["one_sge"].Strategy)
	require.Equal(t, 16, all["one_sge"].Registrations)
	require.Equal(t, "sync-reg", all["register_per_io"].Strategy)
	require.Nil(t, all["register_always"])
	_, all = others(t, "fmr", "expose", "16")
	require.Nil(t, all["one_sge"])
}

func TestMicrosecondsHaveThreeDigits(t *testing.T) {
	for want, us := range map[string]float64{"0.49": 0.49, "9.99": 9.99, "10.0": 10, "99.9": 99.9, "100": 100, "10361": 10361.2} {
		require.Equal(t, want, microseconds(&us))
	}
	require.Equal(t, "–", microseconds(nil))
}
