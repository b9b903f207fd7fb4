package rping

import (
	"fmt"
)

// The pattern runs through the characters first..last, and each ping starts one
// further.
const first, last = 'A', 'z'

// fill writes the data of ping n: a C string, as the C server expects (it sends
// back as much as strlen says). C's rping needs at least 23 bytes for it; what is
// shorter is cut.
func fill(b []byte, n int) {
	c := byte(first + n%(last-first+1))
	for i := copy(b, fmt.Sprintf("rdma-ping-%d: ", n)); i < len(b); i++ {
		b[i] = c
		if c++; c > last {
			c = first
		}
	}
	b[len(b)-1] = 0
}

// spoil makes every byte differ from what is expected, so that what never arrived
// is seen.
func spoil(b, want []byte) {
	for i := range b {
		b[i] = ^want[i]
	}
}

// compare tells where data differs from what it should be.
func compare(got, want []byte) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%w: byte %d of %d is %#02x, should be %#02x", ErrData, i, len(want), got[i], want[i])
		}
	}
	return nil
}
