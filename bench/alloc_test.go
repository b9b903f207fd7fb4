//go:build !race

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Not under the race detector, which allocates.
func TestSteadyTransfersDontAllocate(t *testing.T) {
	for _, r := range jsonRows(t, "-device", "rxe,siw-kernel", "-op", "read,write", "-n", "5") {
		require.Zero(t, r.Allocs, r)
	}
}
