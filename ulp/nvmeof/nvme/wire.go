package nvme

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrShort: fewer bytes than the structure has.
var ErrShort = errors.New("structure cut short")

var le = binary.LittleEndian

// short is nil if b holds n bytes.
func short(what string, b []byte, n int) error {
	if len(b) < n {
		return fmt.Errorf("%s of %d bytes, not %d: %w", what, len(b), n, ErrShort)
	}
	return nil
}

// putText writes ASCII padded with spaces, as identify data has it.
func putText(b []byte, s string) {
	n := copy(b, s)
	for i := n; i < len(b); i++ {
		b[i] = ' '
	}
}

// text reads what putText writes.
func text(b []byte) string {
	n := len(b)
	for n > 0 && (b[n-1] == ' ' || b[n-1] == 0) {
		n--
	}
	return string(b[:n])
}

// cString reads a string that ends with a NUL or with the field.
func cString(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// putUint128 writes a count of 16 bytes whose upper half is zero.
func putUint128(b []byte, v uint64) {
	le.PutUint64(b, v)
	clear(b[8:16])
}

// uint128 reads such a count; what doesn't fit is cut to the largest value.
func uint128(b []byte) uint64 {
	if le.Uint64(b[8:]) != 0 {
		return ^uint64(0)
	}
	return le.Uint64(b)
}
