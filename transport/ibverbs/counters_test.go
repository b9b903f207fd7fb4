package ibverbs

import (
	"os"
	"path/filepath"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestCountersOfSysfs(t *testing.T) {
	class := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(class, "dev0", "ports", path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("10/state", "4: ACTIVE\n")
	write("2/counters/port_xmit_packets", "18446744073709551615\n")
	write("2/hw_counters/sent_pkts", "7")
	write("2/hw_counters/lifespan", "10\n")
	write("2/hw_counters/odd", "N/A (no PMA)\n")
	got, err := counters(class, "dev0")
	require.NoError(t, err)
	require.Equal(t, []PortCounters{
		{Port: 2, Counters: map[string]uint64{"port_xmit_packets": 1<<64 - 1, "sent_pkts": 7}},
		{Port: 10, Counters: map[string]uint64{}},
	}, got)
	for _, name := range []string{"", "..", "dev1", "../dev0"} {
		_, err = counters(class, name)
		require.ErrorIs(t, err, transport.ErrNoDevice, name)
	}
}
