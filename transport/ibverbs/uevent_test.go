//go:build ibverbs && linux && cgo

package ibverbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRemovalOf(t *testing.T) {
	event := func(lines ...string) []byte { return []byte(strings.Join(lines, "\x00") + "\x00") }
	head := "remove@/devices/virtual/infiniband_verbs/uverbs1"
	require.True(t, removalOf(event(head, "ACTION=remove", "DEVPATH=/x", "SUBSYSTEM=infiniband_verbs", "MAJOR=231",
		"DEVNAME=infiniband/uverbs1", "SEQNUM=9"), "uverbs1"))
	require.False(t, removalOf(event(head, "ACTION=add", "SUBSYSTEM=infiniband_verbs", "DEVNAME=infiniband/uverbs1"), "uverbs1"))
	require.False(t, removalOf(event(head, "ACTION=remove", "SUBSYSTEM=net", "DEVNAME=infiniband/uverbs1"), "uverbs1"))
	require.False(t, removalOf(event(head, "ACTION=remove", "SUBSYSTEM=infiniband_verbs", "DEVNAME=infiniband/uverbs1"), "uverbs11"))
	require.False(t, removalOf(nil, "uverbs1"))
}
