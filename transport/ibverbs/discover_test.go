package ibverbs

import (
	"net/netip"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	infos := []Info{
		{Name: "rxe0", Driver: "rxe", Protocol: transport.RoCE, NetDevs: []string{"eth0"},
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1%eth0")}},
		{Name: "eth0", NetDevs: []string{"eth1"}, Addrs: []netip.Addr{netip.MustParseAddr("fd00::1")}},
	}
	for name, want := range map[string]string{
		"rxe0":            "rxe0",
		"eth1":            "eth0",
		"eth0":            "eth0", // a device's own name goes first
		"10.0.0.1":        "rxe0",
		"::ffff:10.0.0.1": "rxe0",
		"fd00::1":         "eth0",
		"fe80::1%eth0":    "rxe0",
		"fe80::1":         "rxe0",
	} {
		i, err := find(name, infos)
		require.NoError(t, err, name)
		require.Equal(t, want, i.Name, name)
	}
	for _, name := range []string{"", "mlx5_0", "10.0.0.2", "fe80::1%eth9"} {
		_, err := find(name, infos)
		require.ErrorIs(t, err, transport.ErrNoDevice, name)
		require.ErrorContains(t, err, "rxe0 (RoCE, driver rxe, on eth0 10.0.0.1", "it lists what there is")
	}
	_, err := find("mlx5_0", nil)
	require.ErrorIs(t, err, transport.ErrNoDevice)
	require.ErrorContains(t, err, "there is none")
}
