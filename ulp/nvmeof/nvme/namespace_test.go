package nvme

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManyFormats: where there are more than 16 formats, the index of the one in use has six
// bits, not next to each other (Base 2.0, FLBAS).
func TestManyFormats(t *testing.T) {
	n := Namespace{Size: 1, Format: 37}
	for i := range 40 {
		n.Formats = append(n.Formats, LBAFormat{Shift: uint8(9 + i%2)})
	}
	b := make([]byte, IdentifyLen)
	n.Encode(b)
	assert.Equal(t, byte(37&0xF|37>>4<<5), b[26])
	var got Namespace
	require.NoError(t, got.Decode(b))
	assert.Equal(t, n, got)
	assert.Equal(t, uint8(10), got.BlockShift())
	b[25] = 15 // the upper bits mean nothing
	require.NoError(t, got.Decode(b))
	assert.Equal(t, uint8(5), got.Format)
	assert.Len(t, got.Formats, 16)
}
