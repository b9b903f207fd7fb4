//go:build ibverbs && linux && cgo

package rping

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// realDevices are those that the environment says are here: one that is missing
// is a failure.
func realDevices() []string {
	names := os.Getenv("RDMARW_DEVICES")
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}

func realPlaces() []place {
	var all []place
	for _, name := range realDevices() {
		all = append(all, place{name, func(t *testing.T) (server, client transport.Device, addr string) {
			return real(t, name)
		}})
	}
	return all
}

// openReal opens a device, and finds its address.
func openReal(t *testing.T, name string) (dev transport.Device, host string) {
	t.Helper()
	dev, err := ibverbs.Open(name)
	require.NoError(t, err)
	infos, err := ibverbs.Devices()
	require.NoError(t, err)
	for _, info := range infos {
		for _, addr := range info.Addrs {
			if info.Name == name && addr.Is4() {
				return dev, addr.String()
			}
		}
	}
	require.FailNow(t, "no address", "%s in %v", name, infos)
	return nil, ""
}

// real opens a device twice. In the end the kernel must not have anything of this
// process any more.
func real(t *testing.T, name string) (server, client transport.Device, addr string) {
	t.Helper()
	server, host := openReal(t, name)
	client, _ = openReal(t, name)
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.NoError(t, client.Close())
		for _, kind := range []string{"cm_id", "qp", "mr", "cq", "pd"} {
			out, err := exec.Command("rdma", "resource", "show", kind).Output()
			assert.NoError(t, err)
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, " users 0 ") {
					continue // a domain of librdmacm's own, with nothing in it
				}
				assert.NotContains(t, line+" ", fmt.Sprintf(" pid %d ", os.Getpid()), "left: %s", line)
			}
		}
	})
	return server, client, host + ":0"
}
