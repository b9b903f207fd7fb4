package sim

import "unsafe"

// bytesAt is the memory at an address outside of the Go heap.
func bytesAt(addr uintptr, size int) []byte {
	// Through a pointer to addr: vet rightly distrusts a plain conversion, which
	// for Go memory would be wrong.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}
