//go:build !ibverbs

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRealDevicesNeedTheTag(t *testing.T) {
	status, out, errs := bench("-transport", "ibverbs", "-device", "rxe0")
	require.Equal(t, exitUsage, status)
	require.Empty(t, out)
	require.Equal(t, 1, strings.Count(errs, "\n"))
	require.Contains(t, errs, "-tags ibverbs")
}

func TestNoDevice(t *testing.T) {
	require.Equal(t, "no RDMA device: the kernel lists none in this network namespace (rdma link, /sys/class/infiniband); bench -transport sim needs none "+
		"(built without -tags ibverbs: go build -tags ibverbs ./bench)", noDevice())
}
