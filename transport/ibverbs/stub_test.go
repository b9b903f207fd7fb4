//go:build !(ibverbs && linux && cgo)

package ibverbs

import (
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestOpenSaysWhatIsMissing(t *testing.T) {
	d, err := Open("rxe0")
	require.Nil(t, d)
	require.ErrorIs(t, err, transport.ErrUnsupported)
	require.ErrorContains(t, err, "go build -tags ibverbs")
}
