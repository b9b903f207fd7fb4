package target

import (
	"testing"

	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDiscoveredAddress: the address is the one the host came by, without what means
// something on this machine only.
func TestDiscoveredAddress(t *testing.T) {
	r := newRig(t, "rxe", Config{})
	p, err := newPort(r.Target, r.dev)
	require.NoError(t, err)
	for local, want := range map[string]nvme.DiscoveryEntry{
		"192.0.2.1:4420":        {Family: nvme.FamilyIPv4, Address: "192.0.2.1", Service: "4420"},
		"[2001:db8::1]:4421":    {Family: nvme.FamilyIPv6, Address: "2001:db8::1", Service: "4421"},
		"[fe80::1%eth0]:4420":   {Family: nvme.FamilyIPv6, Address: "fe80::1", Service: "4420"},
		"[::ffff:192.0.2.1]:44": {Family: nvme.FamilyIPv4, Address: "192.0.2.1", Service: "44"},
		"target:4420":           {Family: nvme.FamilyIPv4, Address: "target", Service: "4420"},
	} {
		e := p.discoveryEntry(local)
		assert.Equal(t, want, nvme.DiscoveryEntry{Family: e.Family, Address: e.Address, Service: e.Service})
	}
}
