//go:build !(ibverbs && linux && cgo)

package target

import (
	"testing"

	"rdmarw/transport"
)

func realDevices() []string { return nil }

func openReal(t testing.TB, name string) (open func(string) transport.Device, listen string) {
	t.Fatalf("no profile and no device %q", name)
	return nil, ""
}
