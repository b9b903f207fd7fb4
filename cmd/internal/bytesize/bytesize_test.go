package bytesize

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSet(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "4096": 4096, "64K": 64 << 10, "64k": 64 << 10, "1M": 1 << 20, "1m": 1 << 20, "10G": 10 << 30, "10g": 10 << 30,
		"2T": 2 << 40, "2t": 2 << 40, "0x1000": 4096, "0x10k": 16 << 10, "4611686018427387904": 1 << 62, "4194304T": 1 << 62,
	} {
		var s Size
		assert.NoError(t, s.Set(text), text)
		assert.Equal(t, want, s, text)
	}
	for _, text := range []string{"", "K", "-1", "1.5M", "99999999999999999999", "9999999999T", "4194305T", "4611686018427387905", "1x", "1kk", "1 k", "1+", "1\x0b"} {
		s := Size(7)
		assert.ErrorContains(t, s.Set(text), "must look like", text)
		assert.Equal(t, Size(7), s, "%s: left alone", text)
	}
	s := Size(4096)
	assert.Equal(t, "4096", s.String())
}
