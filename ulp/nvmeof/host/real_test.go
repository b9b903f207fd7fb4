//go:build ibverbs && linux && cgo

package host_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// realPlaces are the devices that the environment says are here: one that is missing
// is a failure.
func realPlaces() (all []place) {
	names := os.Getenv("RDMARW_DEVICES")
	if names == "" {
		return nil
	}
	for _, name := range strings.Split(names, ",") {
		all = append(all, place{name, true, func(t testing.TB) (targetDev, hostDev transport.Device, addr string) {
			targetDev, addr = openReal(t, name)
			hostDev, _ = openReal(t, name)
			t.Cleanup(func() {
				assert.NoError(t, targetDev.Close())
				assert.NoError(t, hostDev.Close())
				assert.Empty(t, resources(t), "left in the kernel")
			})
			return targetDev, hostDev, addr + ":0"
		}})
	}
	return all
}

// openReal opens a device, and finds its address.
func openReal(t testing.TB, name string) (dev transport.Device, addr string) {
	t.Helper()
	dev, err := ibverbs.Open(name)
	require.NoError(t, err)
	infos, err := ibverbs.Devices()
	require.NoError(t, err)
	for _, info := range infos {
		for _, a := range info.Addrs {
			if info.Name == name && a.Is4() {
				return dev, a.String()
			}
		}
	}
	require.FailNow(t, "no address", "%s in %v", name, infos)
	return nil, ""
}

// resources are what the kernel has of this process: by its name, since what it calls
// a pid is the thread that made the object.
func resources(t testing.TB) (all []string) {
	name, err := os.ReadFile("/proc/self/comm")
	require.NoError(t, err)
	mine := " comm " + strings.TrimSpace(string(name)) + " "
	for _, kind := range []string{"cm_id", "qp", "mr", "cq", "pd"} {
		out, err := exec.Command("rdma", "resource", "show", kind).Output()
		assert.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, " users 0 ") {
				continue // a domain of librdmacm's own, with nothing in it
			}
			if strings.Contains(strings.TrimSpace(line)+" ", mine) {
				all = append(all, line)
			}
		}
	}
	return all
}
