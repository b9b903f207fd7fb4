package mrpool

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPD makes a protection domain with one region on a simulated device.
func newPD(t *testing.T, profile string, faults sim.Faults) (transport.PD, *transport.Region) {
	p, ok := sim.LookupProfile(profile)
	require.True(t, ok)
	f := sim.New(sim.Config{Stepped: true, Faults: faults})
	dev, err := f.NewDevice(p, "dev")
	require.NoError(t, err)
	pd, err := dev.NewPD()
	require.NoError(t, err)
	r, err := dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite | transport.BindWindow})
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(r))
	t.Cleanup(func() {
		require.NoError(t, pd.RemoveRegion(r))
		require.NoError(t, r.Close())
		require.NoError(t, pd.Close())
		require.NoError(t, dev.Close())
		require.NoError(t, f.Close())
	})
	return pd, r
}

func newPool(t *testing.T, pd transport.PD, cfg Config) *Pool {
	p, err := New(pd, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func take(t *testing.T, p *Pool, kind transport.RegistrationKind) *MR {
	t.Helper()
	var one [1]*MR
	require.NoError(t, p.Take(kind, one[:], t.Name()))
	return one[0]
}

func list(r *transport.Region) []transport.Piece { return []transport.Piece{r.Piece(4096, 4096)} }

var start transport.Cursor

func TestRightsFollowFromOperationsAlone(t *testing.T) {
	iwarp := &transport.Caps{ReadSinkNeedsRemoteWrite: true}
	ib := &transport.Caps{}
	require.Equal(t, transport.Access(0), (Send | WriteSource).Access(iwarp))
	require.Equal(t, transport.LocalWrite, Receive.Access(iwarp))
	require.Equal(t, transport.LocalWrite, ReadSink.Access(ib))
	require.Equal(t, transport.LocalWrite|transport.RemoteWrite, ReadSink.Access(iwarp), "where the READ response is a tagged write")
	require.Equal(t, transport.RemoteRead, ReadSource.Access())
	require.Equal(t, transport.LocalWrite|transport.RemoteWrite, WriteSink.Access())
	require.Equal(t, "send+READ sink", (Send | ReadSink).String())
	require.Equal(t, "READ source+WRITE sink", (ReadSource | WriteSink).String())
	require.Equal(t, "nothing", RemoteOps(0).String())
}

// Building the requests changes nothing; the key byte advances when they were
// accepted, and only then.
func TestKeyByteAdvancesWithEachAcceptedUse(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 1})
	var last transport.LKey
	for use := range 300 { // past the wrap of the byte
		m := take(t, p, transport.FastMR)
		l, err := m.MapLocal(list(r), start, 0, ReadSink)
		require.NoError(t, err)
		first, again := m.AppendValid(nil), m.AppendValid(nil)
		require.Equal(t, first, again, "building is idempotent")
		require.Equal(t, m.WRs(), len(first))
		if use%3 == 1 { // mapped, never posted
			require.False(t, m.Put())
			continue
		}
		require.NoError(t, m.Posted())
		require.NotEqual(t, last, l.LKey)
		if last != 0 {
			require.Equal(t, last>>8, l.LKey>>8, "the index stays")
		}
		require.Equal(t, l.LKey.KeyByte(), first[len(first)-1].KeyByte)
		last = l.LKey
		require.NoError(t, m.Invalidated())
		require.False(t, m.Put())
	}
}

// A registration with local rights may be put back valid: its next use begins
// with exactly one invalidation, of the old key; once, whatever was built or never
// posted in between.
func TestLazyInvalidationHeadsTheNextUse(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 1})
	m := take(t, p, transport.FastMR)
	_, err := m.MapLocal(list(r), start, 0, Send)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	old := m.KeyByte()
	require.False(t, m.Put())

	for range 3 { // mapped and given back unposted
		m = take(t, p, transport.FastMR)
		_, err = m.MapLocal(list(r), start, 0, Send)
		require.NoError(t, err)
		wrs := m.AppendValid(nil)
		require.Len(t, wrs, 2)
		require.Equal(t, transport.OpLocalInv, wrs[0].Op)
		require.Equal(t, old, wrs[0].KeyByte)
		require.Equal(t, transport.OpFastReg, wrs[1].Op)
		require.Equal(t, old+1, wrs[1].KeyByte)
		require.False(t, m.Put())
	}
	m = take(t, p, transport.FastMR)
	_, err = m.MapLocal(list(r), start, 0, Send)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	require.NoError(t, m.Invalidated())
	require.False(t, m.Put())
	m = take(t, p, transport.FastMR)
	_, err = m.MapLocal(list(r), start, 0, Send)
	require.NoError(t, err)
	require.Equal(t, 1, m.WRs(), "invalidated: nothing left to invalidate")
	require.False(t, m.Put())
}

// Nothing that a peer could use becomes free before its key is known to be dead.
func TestRemoteRightsAreNotPutBackValid(t *testing.T) {
	for _, tt := range []struct {
		profile string
		kind    transport.RegistrationKind
	}{{"siw-kernel", transport.FastMR}, {"rxe", transport.Window}, {"siw", transport.SyncMR}} {
		t.Run(tt.kind.String(), func(t *testing.T) {
			pd, r := newPD(t, tt.profile, sim.Faults{})
			cfg := [transport.NumRegistrationKinds]Config{transport.FastMR: {FastMRs: 2}, transport.Window: {Windows: 2}, transport.SyncMR: {SyncMRs: 2}}
			p := newPool(t, pd, cfg[tt.kind])
			m := take(t, p, tt.kind)
			remote, err := m.MapRemote(list(r), start, 0, ReadSource)
			require.NoError(t, err)
			if tt.kind != transport.SyncMR {
				require.NoError(t, m.Posted())
			}
			require.True(t, m.Valid())
			require.Equal(t, remote.RKey, m.RKey())
			require.True(t, m.Put(), "set aside")
			require.Equal(t, 1, p.Stats(tt.kind).Broken)

			other := take(t, p, tt.kind)
			require.NotSame(t, m, other)
			var two [2]*MR
			require.ErrorIs(t, p.Take(tt.kind, two[:1], "x"), ErrEmpty, "it can't be taken before it is repaired")
			require.NoError(t, p.Repair())
			require.Equal(t, 1, p.Stats(tt.kind).Free)
			require.NoError(t, p.Take(tt.kind, two[:1], "x"))
			require.False(t, two[0].Put())
			require.False(t, other.Put())
		})
	}
}

// Registrations with local rights are used again at once, those whose keys a peer
// has seen as late as possible.
func TestOrderOfReuse(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 4})
	m := take(t, p, transport.FastMR)
	_, err := m.MapLocal(list(r), start, 0, Send)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	require.NoError(t, m.Invalidated())
	m.Put()
	require.Same(t, m, take(t, p, transport.FastMR))
	_, err = m.MapRemote(list(r), start, 0, WriteSink)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	require.NoError(t, m.Invalidated())
	m.Put()
	var all [4]*MR
	require.NoError(t, p.Take(transport.FastMR, all[:], "x"))
	require.Same(t, m, all[3])
	for _, m := range all {
		m.Put()
	}
}

func TestTakeIsAllOrNothing(t *testing.T) {
	pd, _ := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 3})
	var four [4]*MR
	require.ErrorIs(t, p.Take(transport.FastMR, four[:], "x"), ErrEmpty)
	require.Equal(t, Stats{Free: 3, Empties: 1}, p.Stats(transport.FastMR))
	require.ErrorIs(t, p.Take(transport.Window, four[:1], "x"), ErrEmpty, "a pool made without")
	require.NoError(t, p.Take(transport.FastMR, four[:3], "x"))
	told := 0
	p.AfterPut(func() { told++ })
	for _, m := range four[:3] {
		require.False(t, m.Put())
		require.False(t, m.Put(), "putting twice is harmless")
	}
	require.Equal(t, 1, told)
	require.Equal(t, 3, p.Stats(transport.FastMR).Free)
}

func TestLostIsReplaced(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 1})
	m := take(t, p, transport.FastMR)
	_, err := m.MapLocal(list(r), start, 0, ReadSink)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	before := m.ID()
	m.Lost()
	_, err = m.MapLocal(list(r), start, 0, ReadSink)
	require.ErrorIs(t, err, ErrState)
	require.ErrorIs(t, m.Invalidated(), ErrState, "nobody can know that")
	require.NoError(t, m.Revoke())
	require.NotEqual(t, before, m.ID(), "another registration")
	require.False(t, m.Put())
}

// When a replacement can't be made, the place stays set aside until it can.
func TestRepairThatFails(t *testing.T) {
	failing := false
	pd, r := newPD(t, "siw-kernel", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if failing && what == sim.AllocRegistration {
			return transport.ErrNoMemory
		}
		return nil
	}})
	p := newPool(t, pd, Config{FastMRs: 1})
	m := take(t, p, transport.FastMR)
	_, err := m.MapRemote(list(r), start, 0, ReadSource)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	failing = true
	require.ErrorIs(t, m.Revoke(), transport.ErrNoMemory)
	require.True(t, m.Put())
	require.ErrorIs(t, p.Repair(), transport.ErrNoMemory)
	require.Equal(t, 1, p.Stats(transport.FastMR).Broken)
	failing = false
	require.NoError(t, p.Repair())
	require.Equal(t, 1, p.Stats(transport.FastMR).Free)
}

func TestMappingIsRefused(t *testing.T) {
	pd, r := newPD(t, "rxe", sim.Faults{})
	p := newPool(t, pd, Config{Windows: 1, SyncMRs: 1})
	w := take(t, p, transport.Window)
	defer w.Put()
	_, err := w.MapLocal(list(r), start, 0, Send)
	require.ErrorIs(t, err, transport.ErrUnsupported, "a window has no lkey")
	_, err = w.MapRemote(list(r), start, 0, 0)
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = w.MapRemote([]transport.Piece{r.Piece(1<<20, 1)}, start, 0, ReadSource)
	require.ErrorIs(t, err, transport.ErrRange)
	_, err = w.MapRemote(nil, start, 0, ReadSource)
	require.ErrorIs(t, err, transport.ErrRange)
	_, err = w.MapRemote([]transport.Piece{{Addr: 1, Len: 1, Region: 77}}, start, 0, ReadSource)
	require.ErrorIs(t, err, transport.ErrRegion)

	dev := pd.Device()
	for access, ops := range map[transport.Access]RemoteOps{transport.LocalWrite: ReadSource, transport.BindWindow: WriteSink} {
		other, err := dev.NewRegion(transport.RegionConfig{Size: 4096, Access: access})
		require.NoError(t, err)
		require.NoError(t, pd.AddRegion(other))
		_, err = w.MapRemote([]transport.Piece{other.Piece(0, 10)}, start, 0, ops)
		require.ErrorIs(t, err, transport.ErrAccess, "region with %v", access)
		require.NoError(t, pd.RemoveRegion(other))
		require.NoError(t, other.Close())
	}
	_, err = New(pd, Config{FastMRs: 1})
	require.ErrorIs(t, err, transport.ErrUnsupported, "rxe has no fast registration in user space")
	_, err = New(pd, Config{Windows: -1})
	require.ErrorIs(t, err, transport.ErrInvalid)
}

// Partial coverage is no error, and tells how far it got.
func TestMappingStopsWhereOneRegistrationEnds(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 1, FastPages: 2, SyncMRs: 1})
	pages := []transport.Piece{r.Piece(0, 4096), r.Piece(8192, 4096), r.Piece(65536, 4096)}
	m := take(t, p, transport.FastMR)
	l, err := m.MapLocal(pages, start, 0, ReadSink)
	require.NoError(t, err)
	require.Equal(t, transport.Extent{IOVA: r.Addr(), Len: 8192, Pages: 2, Next: transport.Cursor{Piece: 2}}, l.Extent)
	m.Put()
	s := take(t, p, transport.SyncMR)
	l, err = s.MapLocal(pages, start, 0, ReadSink)
	require.NoError(t, err)
	require.Equal(t, uint64(4096), l.Len)
	_, err = s.MapLocal(pages, start, 0, ReadSink)
	require.ErrorIs(t, err, ErrState, "registered already")
	require.NoError(t, s.Revoke())
	s.Put()
}

func TestCloseReportsWhatIsOut(t *testing.T) {
	pd, _ := newPD(t, "siw-kernel", sim.Faults{})
	p, err := New(pd, Config{FastMRs: 3})
	require.NoError(t, err)
	var mrs [2]*MR
	require.NoError(t, p.Take(transport.FastMR, mrs[:], "queue 7"))
	err = p.Close()
	var leak *LeakError
	require.ErrorAs(t, err, &leak)
	require.Equal(t, map[string]int{"queue 7": 2}, leak.Owners)
	require.ErrorContains(t, err, `2 by "queue 7"`)
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Take(transport.FastMR, mrs[:], "x"), ErrClosed)
}

// A registration that is revoked after its pool was closed isn't replaced: the domain
// could never be closed.
func TestRevokeAfterClose(t *testing.T) {
	pd, r := newPD(t, "rxe", sim.Faults{})
	p, err := New(pd, Config{Windows: 1})
	require.NoError(t, err)
	m := take(t, p, transport.Window)
	_, err = m.MapRemote(list(r), start, 0, ReadSource)
	require.NoError(t, err)
	require.NoError(t, m.Posted())
	require.Error(t, p.Close(), "it is out")
	require.ErrorIs(t, m.Revoke(), ErrNotReplaced)
	m.Put()
}

// The order of a deque is that of a slice.
func TestDequeKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d deque
		var model []*MR
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch m := new(MR); rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				d.pushBack(m)
				model = append(model, m)
			case 1:
				d.pushFront(m)
				model = append([]*MR{m}, model...)
			case 2:
				if len(model) == 0 {
					continue
				}
				if d.popFront() != model[0] {
					t.Fatal("wrong order")
				}
				model = model[1:]
			}
			if d.n != len(model) {
				t.Fatal("wrong length")
			}
		}
	})
}

func TestEveryTransitionIsDecided(t *testing.T) {
	for s := free; s <= lost; s++ {
		for e := event(0); e < numEvents; e++ {
			m := MR{state: s}
			err := m.step(e)
			if transitions[s][e] == illegal {
				require.ErrorIs(t, err, ErrState, "%v %v", s, e)
				require.Equal(t, s, m.state, "unchanged")
			} else {
				require.NoError(t, err)
			}
			require.NotEmpty(t, s.String()+e.String())
		}
	}
	require.False(t, errors.Is(ErrState, ErrEmpty))
}

func TestTakeAndPutAllocateNothing(t *testing.T) {
	pd, _ := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 2})
	var one [1]*MR
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if p.Take(transport.FastMR, one[:], "x") == nil {
			one[0].Put()
		}
	}))
}

func BenchmarkTakePut(b *testing.B) {
	prof, _ := sim.LookupProfile("siw-kernel")
	f := sim.New(sim.Config{Stepped: true})
	dev, err := f.NewDevice(prof, "dev")
	require.NoError(b, err)
	pd, err := dev.NewPD()
	require.NoError(b, err)
	p, err := New(pd, Config{FastMRs: 2})
	require.NoError(b, err)
	b.ReportAllocs()
	var one [1]*MR
	for b.Loop() {
		p.Take(transport.FastMR, one[:], "x")
		one[0].Put()
	}
	require.NoError(b, p.Close())
}

// A check is good for as long as the regions are those that it was made with.
func TestCheckedListIsCheckedAgainWhenRegionsChange(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 1})
	m := take(t, p, transport.FastMR)
	defer m.Put()
	view := pd.Regions().View()
	l, err := m.MapChecked(view, list(r), start, 0, ReadSink)
	require.NoError(t, err)
	require.EqualValues(t, 4096, l.Len)
	require.NoError(t, pd.RemoveRegion(r))
	_, err = m.MapChecked(view, list(r), start, 0, ReadSink)
	require.ErrorIs(t, err, transport.ErrRegion)
}
