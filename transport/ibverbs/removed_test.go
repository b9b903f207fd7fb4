//go:build ibverbs && linux && cgo

package ibverbs

import (
	"net"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

// What a removal does, whoever tells of it. Real ones are in removal_test.go.
func TestRemoved(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		d.adapter.remove("as a test")
		d.adapter.remove("once only")
		require.ErrorIs(t, a.ended(), transport.ErrDeviceRemoved)
		require.ErrorIs(t, b.ended(), transport.ErrDeviceRemoved)
		_, err = l.Next(testContext(t))
		require.ErrorIs(t, err, transport.ErrDeviceRemoved)
		require.Equal(t, transport.EventDeviceRemoved, (<-d.Events()).Kind)
		require.Empty(t, d.Events())
		require.NoError(t, l.Close())
	})
}
