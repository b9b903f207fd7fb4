//go:build ibverbs && linux && cgo

package ibverbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbe(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		p, err := Probe(testContext(t), d.name)
		require.NoError(t, err)
		t.Logf("%+v", p)
		again, err := Probe(testContext(t), d.name)
		require.NoError(t, err)
		require.Equal(t, p, again)
		switch d.info.driver {
		case driverRXE:
			require.Equal(t, Probed{BindWindow: Works, LocalInvWindow: Works, LocalInvMR: Fails, SendWithInvWindow: Works,
				ReportsInv: Works, SendWithInvMR: Fails, BatchPosting: p.BatchPosting, InOrder: Works}, p)
			if p.BatchPosting != Fails {
				t.Log("its batch posting was mended: the tests that skip for it can go")
			}
		case driverSIW:
			// It overtakes, if not in each of a few rounds: that it was not seen is no proof.
			require.Equal(t, Probed{SendWithInvMR: Works, InOrder: p.InOrder}, p)
			require.NotEqual(t, NotTried, p.InOrder)
		}
		// What was found is believed from now on.
		o, err := Open(d.name)
		require.NoError(t, err)
		require.Equal(t, p.BatchPosting == Works, o.Caps().AtomicPost)
		require.Equal(t, d.info.driver == driverSIW, o.(*device).quirk.unordered)
		require.NoError(t, o.Close())
	})
}
