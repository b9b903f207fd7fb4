//go:build ibverbs && linux && cgo

package target

import (
	"os"
	"strings"
	"testing"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"

	"github.com/stretchr/testify/require"
)

// realDevices are those that the environment says are here: one that is missing is a
// failure.
func realDevices() []string {
	names := os.Getenv("RDMARW_DEVICES")
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

// openReal opens a device as often as it is told to, and finds an address of its to listen
// on.
func openReal(t testing.TB, name string) (open func(string) transport.Device, listen string) {
	infos, err := ibverbs.Devices()
	require.NoError(t, err)
	for _, info := range infos {
		for _, a := range info.Addrs {
			if info.Name == name && a.Is4() {
				listen = a.String() + ":0"
			}
		}
	}
	require.NotEmpty(t, listen, "%s in %v", name, infos)
	return func(string) transport.Device {
		dev, err := ibverbs.Open(name)
		require.NoError(t, err)
		return dev
	}, listen
}
