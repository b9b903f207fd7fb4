//go:build !linux

package ibverbs

import (
	"fmt"

	"rdmarw/transport"
)

type nldevLink struct {
	name     string
	protocol transport.Protocol
	driver   driverID
	netdevs  []string
}

func nldevLinks() ([]nldevLink, error) {
	return nil, fmt.Errorf("RDMA devices exist on Linux only: %w", transport.ErrUnsupported)
}
