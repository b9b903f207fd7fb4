//go:build ibverbs && linux && cgo

package ibverbs

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import "unsafe"

// external makes a slice of memory that is not Go's. The address comes from
// outside, so the usual rules for uintptr don't apply, and vet is told so by
// going through a pointer to the variable.
func external(addr uintptr, size int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}

// zeroed allocates C memory for n values; nil if there is none.
func zeroed[T any](n int) *T {
	var v T
	return (*T)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(v))))
}

// ptr is for C.free.
func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// handle is what functions of C that are called for each post and poll take for a
// pointer; see shim.h. p points to C's memory.
func handle[T any](p *T) C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(p))) }
