//go:build ibverbs

package rw_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
)

// RDMARW_DEVICES names the devices that these tests must find; it is set in the
// guest. A named device that is missing fails the test. The simulator's profiles are
// left out then: they are for machines without devices, and don't need emulating.
func init() {
	windowsInUse = func() int { return ibverbs.InUse().Windows }
	if os.Getenv("RDMARW_DEVICES") != "" {
		testbeds = nil
	}
	for _, name := range strings.FieldsFunc(os.Getenv("RDMARW_DEVICES"), func(r rune) bool { return r == ',' }) {
		testbeds = append(testbeds, testbed{name, func(t *testing.T) (a, b transport.Device, listen string) {
			d, err := ibverbs.Open(name)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			addr := os.Getenv("RDMARW_" + strings.ToUpper(name) + "_ADDR")
			require.NotEmpty(t, addr, "the address of "+name)
			return d, d, addr + ":0"
		}})
	}
}
