package mrpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// The page list is the device's, but no longer than 256 (rw.c's own limit), unless the
// user asks for more; the page size 4 KiB, or the smallest that is larger.
func TestSizesOfFastRegistrations(t *testing.T) {
	for _, tt := range []struct {
		profile   string
		sizes     uint64 // instead of the profile's
		cfg       Config
		pages     int
		shift     uint8
		wantError error
	}{
		{profile: "siw-kernel", cfg: Config{FastMRs: 1}, pages: 256, shift: 12},
		{profile: "cxgb4-kernel", cfg: Config{FastMRs: 1}, pages: 128, shift: 12},
		{profile: "rxe-kernel", cfg: Config{FastMRs: 1}, pages: 256, shift: 12},
		{profile: "rxe-kernel", cfg: Config{FastMRs: 1, FastPages: 400}, pages: 400, shift: 12},
		{profile: "rxe-kernel", cfg: Config{FastMRs: 1, FastPages: 10000}, pages: 512, shift: 12},
		{profile: "rxe-kernel", cfg: Config{FastMRs: 1, FastPages: 1}, pages: 1, shift: 12},
		{profile: "irdma-roce-kernel", cfg: Config{FastMRs: 1, PageShift: 21}, pages: 256, shift: 21},
		{profile: "irdma-roce-kernel", cfg: Config{FastMRs: 1, PageShift: 22}, wantError: transport.ErrUnsupported},
		{profile: "irdma-roce-kernel", cfg: Config{FastMRs: 1, PageShift: 64}, wantError: transport.ErrUnsupported},
		{profile: "irdma-roce-kernel", cfg: Config{SyncMRs: 1, PageShift: 22}, pages: 256, shift: 22},
		{profile: "siw-kernel", sizes: 1<<9 | 1<<16, cfg: Config{FastMRs: 1}, pages: 256, shift: 16},
		{profile: "siw-kernel", sizes: 1 << 9, cfg: Config{FastMRs: 1}, wantError: transport.ErrUnsupported},
		{profile: "siw-kernel", sizes: 1 << 9, cfg: Config{FastMRs: 1, PageShift: 9}, pages: 256, shift: 9},
		{profile: "siw", cfg: Config{SyncMRs: 1}},
		{profile: "siw", cfg: Config{FastPages: -1}, wantError: transport.ErrInvalid},
		{profile: "siw", cfg: Config{SyncMRs: -1}, wantError: transport.ErrInvalid},
		{profile: "siw", cfg: Config{FastMRs: -1}, wantError: transport.ErrInvalid},
	} {
		pd, _ := newPD(t, tt.profile, sim.Faults{})
		if tt.sizes != 0 {
			pd.Device().Caps().FastReg.PageSizes = tt.sizes
		}
		p, err := New(pd, tt.cfg)
		if tt.wantError != nil {
			require.ErrorIs(t, err, tt.wantError, "%+v", tt)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.pages, p.FastPages(), "%+v", tt)
		require.Equal(t, tt.shift, p.PageShift(), "%+v", tt)
		require.NoError(t, p.Close())
	}
}

// A pool that can't be made leaves nothing behind: what was made before the failure is
// closed. ib_mr_pool_destroy of lists that were never initialised crashed:
// kernel-rdma-rw.md 7.
func TestPoolThatCantBeMadeLeavesNothing(t *testing.T) {
	made := 0
	pd, _ := newPD(t, "mlx5-kernel", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if what != sim.AllocRegistration {
			return nil
		}
		if made++; made%4 == 0 {
			return transport.ErrNoMemory
		}
		return nil
	}})
	for range 4 {
		_, err := New(pd, Config{FastMRs: 3, Windows: 3})
		require.ErrorIs(t, err, transport.ErrNoMemory)
	} // newPD's end finds the domain unused
}

// Synchronous registrations are made when they are needed. One that can't be is an
// error of Take, and takes nothing.
func TestSyncMRsAreMadeWhenNeeded(t *testing.T) {
	failing := false
	made := 0
	pd, _ := newPD(t, "siw", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if what != sim.AllocRegistration {
			return nil
		}
		made++
		if failing {
			return transport.ErrNoMemory
		}
		return nil
	}})
	p := newPool(t, pd, Config{SyncMRs: 4})
	require.Equal(t, 4, p.Size(transport.SyncMR))
	require.Zero(t, made)
	var two, more [2]*MR
	require.NoError(t, p.Take(transport.SyncMR, two[:], "x"))
	require.Equal(t, 2, made)
	failing = true
	require.ErrorIs(t, p.Take(transport.SyncMR, more[:], "x"), transport.ErrNoMemory)
	_, err := p.Reserve(transport.SyncMR, 1)
	require.ErrorIs(t, err, transport.ErrNoMemory)
	require.Equal(t, 2, p.Stats(transport.SyncMR).Out)
	failing = false
	require.NoError(t, p.Take(transport.SyncMR, more[:], "x"))
	require.Equal(t, Stats{Out: 4, Takes: 2}, p.Stats(transport.SyncMR))
	require.ErrorIs(t, p.Take(transport.SyncMR, make([]*MR, 1), "x"), ErrEmpty)
	for _, m := range append(two[:], more[:]...) {
		m.Put()
	}
	require.NoError(t, p.Take(transport.SyncMR, two[:], "x"))
	for _, m := range two {
		m.Put()
	}
	require.Equal(t, 6, made, "4, and the 2 that failed: made once")
}

// What is set aside doesn't wake those who wait; its repair does.
func TestRepairWakesThoseWhoWait(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 2})
	m := take(t, p, transport.FastMR)
	_, err := m.MapRemote(list(r), start, 0, WriteSink)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	woken := 0
	p.AfterPut(func() { woken++ })
	require.True(t, m.Put())
	require.Zero(t, woken)
	require.Equal(t, Stats{Free: 1, Broken: 1, Takes: 1}, p.Stats(transport.FastMR))
	require.NoError(t, p.Repair())
	require.Equal(t, 1, woken)
	require.Equal(t, Stats{Free: 2, Takes: 1, Repairs: 1}, p.Stats(transport.FastMR))
	require.NoError(t, p.Repair(), "nothing to do")

	// Its key may be known: it is the last to be used again.
	require.NotSame(t, m, take(t, p, transport.FastMR))
	require.Same(t, m, take(t, p, transport.FastMR))
	for _, m := range p.all {
		m.Put()
	}
}

// A deregistration that fails leaves the registration out of use, and says so.
func TestMappingWhoseDeviceIsOutOfMemory(t *testing.T) {
	failing := true
	pd, r := newPD(t, "siw", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if failing && what == sim.AllocMap {
			return transport.ErrMemlock
		}
		return nil
	}})
	p := newPool(t, pd, Config{SyncMRs: 1})
	m := take(t, p, transport.SyncMR)
	_, err := m.MapRemote(list(r), start, 0, ReadSource)
	require.ErrorIs(t, err, transport.ErrMemlock)
	require.False(t, m.Valid())
	failing = false
	_, err = m.MapRemote(list(r), transport.Cursor{Piece: len(list(r))}, 0, ReadSource)
	require.ErrorIs(t, err, transport.ErrRange)
	_, err = m.MapRemote(list(r), start, 0, ReadSource)
	require.NoError(t, err, "and is of use afterwards")
	require.Equal(t, 0, m.WRs())
	require.Empty(t, m.AppendValid(nil))
	require.ErrorIs(t, m.Posted(), ErrState, "nothing to post")
	require.NoError(t, m.Revoke())
	require.False(t, m.Valid())
	require.NoError(t, m.Revoke(), "dead already")
	require.False(t, m.Put())
}
