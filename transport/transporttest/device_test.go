package transporttest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport/ibverbs"
	"rdmarw/transport/transporttest"
	"rdmarw/transport/transporttest/conformance"
)

// TestDevices compares rxe0 and siw0 with their simulations, cell by cell.
func TestDevices(t *testing.T) {
	if os.Getenv("RDMARW_GUEST") == "" {
		for _, p := range conformance.Pairs() {
			d, err := ibverbs.Open(p.Device)
			if err != nil {
				t.Skipf("%v; run with -tags ibverbs -exec scripts/guest", err)
			}
			require.NoError(t, d.Close())
		}
	}
	rows := transporttest.Find("")
	table, err := conformance.Fill(rows, true)
	require.NoError(t, err)
	for _, what := range table.Wrong {
		t.Error(what)
	}
	for _, c := range table.Columns {
		require.GreaterOrEqual(t, c.Exercised(), 100, c.Name)
		t.Logf("%s: %d of %d rows exercised", c.Name, c.Exercised(), len(rows))
	}
	recorded, err := conformance.Recorded()
	require.NoError(t, err)
	for i, c := range table.Devices() {
		require.Less(t, i, len(recorded), "recorded.txt has no column of %s", c.Name)
		for _, what := range transporttest.Compare(rows, c, recorded[i], nil) {
			t.Errorf("recorded.txt is out of date, record it again (see the package's documentation): %s", what)
		}
	}
}
