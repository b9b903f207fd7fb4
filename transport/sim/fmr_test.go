package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// Unmapping several registrations in a row costs one flush, as one call with a list
// did; each key is dead when its own Unmap returns all the same.
func TestLegacyUnmapsShareAFlush(t *testing.T) {
	a, b := newPair(t, "fmr")
	var all []transport.Registration
	var keys []transport.RKey
	for i := range uint64(4) {
		r := b.expose(i*4096, 4096, remoteRW)
		all = append(all, r)
		keys = append(keys, r.RKey(0))
	}
	start := b.dev.fabric.Now()
	require.NoError(t, all[0].Unmap())
	require.Equal(t, 30*time.Microsecond, b.dev.fabric.Now()-start)
	require.NoError(t, all[1].Unmap())
	require.NoError(t, all[2].Unmap())
	require.Equal(t, 30*time.Microsecond, b.dev.fabric.Now()-start, "nothing has happened since the first")
	require.Equal(t, uint64(1), b.dev.Stats().Flushes)

	a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + 3*4096, RKey: keys[3]}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusOK}, statuses(a.completions()))
	require.NoError(t, all[3].Unmap())
	require.Equal(t, uint64(2), b.dev.Stats().Flushes, "something has happened in between")
	require.NoError(t, all[3].Unmap())
	require.Equal(t, uint64(2), b.dev.Stats().Flushes, "there was nothing to unmap")

	fill(a.mem(0, 8), 1)
	a.one(transport.WR{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + 4096, RKey: keys[1]}, a.sge(0, 8))
	require.Equal(t, []transport.Status{transport.StatusRemoteAccess}, statuses(a.completions()))
	require.Equal(t, make([]byte, 8), b.mem(4096, 8))
}

func TestLegacyDeviceHasNoRequestsAboutRegistrations(t *testing.T) {
	a, b := newPair(t, "fmr")
	for _, kind := range []transport.RegistrationKind{transport.FastMR, transport.Window} {
		_, err := a.pd.NewRegistration(kind, 1)
		require.ErrorIs(t, err, transport.ErrUnsupported)
	}
	r := b.expose(0, 8, remoteRW)
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{Op: transport.OpLocalInv, Reg: r.ID()}})
	a.refused(transport.ErrUnsupported, 0, []transport.WR{{Op: transport.OpSendWithInv, RKey: r.RKey(0)}})
}

func TestDevicesWithoutReliableConnectionsAreRefused(t *testing.T) {
	f := New(Config{Stepped: true})
	defer func() { require.NoError(t, f.Close()) }()
	for _, p := range RefusedProfiles() {
		found, ok := LookupProfile(p.Name)
		require.True(t, ok)
		_, err := f.NewDevice(found, "x")
		require.ErrorIs(t, err, transport.ErrUnsupported)
		require.ErrorContains(t, err, p.Refusal)
	}
	for _, p := range Profiles() {
		require.Empty(t, p.Refusal)
	}
}
