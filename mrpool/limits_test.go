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

// What was taken for good isn't counted as what can be taken at once, until it is put
// back: however often that is said, and whoever takes it next.
func TestKeptRegistrationsAreNotCounted(t *testing.T) {
	for kind, cfg := range map[transport.RegistrationKind]Config{transport.FastMR: {FastMRs: 2}, transport.SyncMR: {SyncMRs: 2}} {
		t.Run(kind.String(), func(t *testing.T) {
			pd, _ := newPD(t, "siw-kernel", sim.Faults{})
			p := newPool(t, pd, cfg)
			for range 2 {
				m, other := take(t, p, kind), take(t, p, kind)
				require.Equal(t, 2, p.Size(kind))
				m.Keep()
				m.Keep()
				require.Equal(t, 1, p.Size(kind))
				require.Equal(t, 1, p.Stats(kind).Kept)
				other.Put()
				require.Equal(t, 1, p.Size(kind))
				m.Put()
				require.Equal(t, 2, p.Size(kind))
				require.Zero(t, p.Stats(kind).Kept)
			}
			var both [2]*MR
			require.NoError(t, p.Take(kind, both[:], "x"))
			for _, m := range both {
				m.Put()
			}
			require.Zero(t, p.Stats(kind).Kept, "taken again, and not kept")
			require.Equal(t, 2, p.Size(kind))
		})
	}
}

// brittlePD makes registrations that count what they are asked to map, and can't be
// taken away from the device when they are told so.
type brittlePD struct {
	transport.PD
	maps int
	err  error
}

type brittle struct {
	transport.Registration
	pd *brittlePD
}

func (p *brittlePD) NewRegistration(kind transport.RegistrationKind, pages int) (transport.Registration, error) {
	r, err := p.PD.NewRegistration(kind, pages)
	return &brittle{r, p}, err
}

func (b *brittle) Map(m transport.Mapping) (transport.Extent, error) {
	b.pd.maps++
	return b.Registration.Map(m)
}

func (b *brittle) Unmap() error {
	if b.pd.err != nil {
		return b.pd.err
	}
	return b.Registration.Unmap()
}

func (b *brittle) Close() error {
	if b.pd.err != nil {
		return b.pd.err
	}
	return b.Registration.Close()
}

// A registration that can't be taken away from the device stays out of use, whatever it
// was before: also one with local rights, which might have stayed valid.
func TestRevokeThatFails(t *testing.T) {
	for _, kind := range []transport.RegistrationKind{transport.FastMR, transport.SyncMR} {
		for _, posted := range []bool{false, true} {
			sound, r := newPD(t, "siw-kernel", sim.Faults{})
			pd := &brittlePD{PD: sound}
			p := newPool(t, pd, Config{FastMRs: 1, SyncMRs: 1})
			m := take(t, p, kind)
			_, err := m.MapLocal(list(r), start, 0, Send)
			require.NoError(t, err)
			if posted && kind == transport.FastMR {
				require.NoError(t, m.Posted())
			}
			pd.err = transport.ErrNoMemory
			require.ErrorIs(t, m.Revoke(), transport.ErrNoMemory)
			require.False(t, m.Valid())
			require.True(t, m.Put(), "set aside")
			require.Equal(t, Stats{Broken: 1, Takes: 1}, p.Stats(kind))
			require.ErrorIs(t, p.Repair(), transport.ErrNoMemory)
			pd.err = nil
			require.NoError(t, p.Repair())
			require.Equal(t, 1, p.Stats(kind).Free)
		}
	}
}

// A list that is asked to begin behind its last piece never comes before the device:
// what it was asked to map before is left as it was.
func TestNothingLeftOfAListIsNotMapped(t *testing.T) {
	sound, r := newPD(t, "siw-kernel", sim.Faults{})
	pd := &brittlePD{PD: sound}
	p := newPool(t, pd, Config{FastMRs: 1, SyncMRs: 1})
	for _, kind := range []transport.RegistrationKind{transport.FastMR, transport.SyncMR} {
		m := take(t, p, kind)
		for _, from := range []int{1, 2} {
			_, err := m.MapLocal(list(r), transport.Cursor{Piece: from}, 0, Send)
			require.ErrorIs(t, err, transport.ErrRange)
		}
		_, err := m.MapRemote(nil, start, 0, ReadSource)
		require.ErrorIs(t, err, transport.ErrRange)
		require.False(t, m.Put())
	}
	require.Zero(t, pd.maps)
}

// A mapping that fails leaves the registration free, and of use.
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
