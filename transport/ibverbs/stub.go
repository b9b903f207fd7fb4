//go:build !(ibverbs && linux && cgo)

package ibverbs

import (
	"context"
	"fmt"

	"rdmarw/transport"
)

// Open opens an RDMA device. In this build it fails with an error that matches
// [transport.ErrUnsupported].
func Open(name string, _ ...Option) (transport.Device, error) {
	return nil, notBuilt(name)
}

// Probe finds out what a device really does. In this build it fails as Open does.
func Probe(_ context.Context, name string) (Probed, error) { return Probed{}, notBuilt(name) }

func notBuilt(name string) error {
	return fmt.Errorf("open RDMA device %q: built without tag ibverbs, or without cgo: CGO_ENABLED=1 go build -tags ibverbs (needs Linux, a C compiler, libibverbs-dev, librdmacm-dev): %w",
		name, transport.ErrUnsupported)
}
