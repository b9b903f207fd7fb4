//go:build !race

package sim

import (
	"golang.org/x/sys/unix"

	"rdmarw/transport"
)

const pageSize = 4096

// allocate maps size bytes of anonymous memory.
func allocate(size int, huge bool) (mem []byte, free func() error, err error) {
	flags := unix.MAP_ANON | unix.MAP_PRIVATE
	length := (size + pageSize - 1) &^ (pageSize - 1)
	if huge {
		flags |= unix.MAP_HUGETLB
		length = (size + hugePageSize - 1) &^ (hugePageSize - 1)
	}
	mapping, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, nil, transport.ErrNoMemory
	}
	return mapping[:size:size], func() error { return unix.Munmap(mapping) }, nil
}
