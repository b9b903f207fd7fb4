// Package bytesize reads numbers of bytes from command lines, in all programs alike.
package bytesize

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes, up to 2^62. It is a flag.Value.
type Size int64

// units are the letters that may follow a number, each for 1024 times the one before.
const units = "KMGT"

// String returns the number without a unit.
func (s *Size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Set reads a number, which may begin with 0x, with k, m, g or t behind it or not, large or
// small.
func (s *Size) Set(text string) error {
	digits, shift := text, 0
	if n := len(text); n > 0 {
		if i := strings.IndexByte(units, text[n-1]&^0x20); i >= 0 { // in upper case
			digits, shift = text[:n-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(digits, 0, 64)
	if err != nil || n < 0 || n > 1<<62>>shift {
		return fmt.Errorf("%q is no number of bytes: it must look like 4096, 64k, 1M, 10G or 2T", text)
	}
	*s = Size(n << shift)
	return nil
}
