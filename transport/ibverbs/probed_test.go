package ibverbs

import (
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestMergeOfAProbe(t *testing.T) {
	caps := func(d driverID) (transport.Caps, quirk) {
		q := quirkOf(d, transport.RoCE)
		return q.caps("dev0", rxeReport()), q
	}
	all := Probed{BindWindow: Works, LocalInvWindow: Works, SendWithInvWindow: Works, ReportsInv: Works,
		BatchPosting: Works, InOrder: Works, LocalInvMR: Fails, SendWithInvMR: Fails}

	c, q := caps(driverRXE)
	all.merge(&c, &q, true)
	require.True(t, c.AtomicPost, "the provider was mended")
	require.Equal(t, transport.InvHarmful, c.LocalInv[transport.Window], "one that works doesn't rule out the crash")
	require.Equal(t, transport.InvWorks, c.RemoteInv[transport.Window])
	require.False(t, q.unordered)

	bad := Probed{BindWindow: Fails, BatchPosting: Fails, InOrder: Fails}
	c, q = caps(driverMLX5)
	c.AtomicPost = true
	bad.merge(&c, &q, true)
	require.False(t, c.AtomicPost)
	require.True(t, q.unordered)
	require.Equal(t, transport.NoWindows, c.Windows)
	require.Equal(t, transport.InvNone, c.LocalInv[transport.Window])

	c, q = caps(driverMLX5)
	before := c
	(&Probed{}).merge(&c, &q, true)
	require.Equal(t, before, c, "what wasn't tried changes nothing")
	(&Probed{SendWithInvMR: Works, ReportsInv: Fails, LocalInvWindow: Fails}).merge(&c, &q, true)
	require.Equal(t, transport.InvHarmful, c.RemoteInv[transport.SyncMR])
	require.Equal(t, transport.InvNone, c.LocalInv[transport.Window])
	require.False(t, c.CompletionReportsInv)
}
