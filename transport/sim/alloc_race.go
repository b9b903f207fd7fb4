//go:build race

package sim

import "rdmarw/transport"

const pageSize = 4096

// allocate takes memory from the Go heap: the race detector does not see
// accesses to any other.
func allocate(size int, huge bool) (mem []byte, free func() error, err error) {
	if huge {
		return nil, nil, transport.ErrNoMemory
	}
	return make([]byte, size), func() error { return nil }, nil
}
