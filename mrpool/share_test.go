package mrpool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// What is reserved is there for its owner when all else is taken, and for nobody else;
// what the owner takes beyond it comes out of everybody's.
func TestReservation(t *testing.T) {
	for kind, cfg := range map[transport.RegistrationKind]Config{transport.FastMR: {FastMRs: 5}, transport.SyncMR: {SyncMRs: 5}} {
		t.Run(kind.String(), func(t *testing.T) {
			pd, _ := newPD(t, "siw-kernel", sim.Faults{})
			p := newPool(t, pd, cfg)
			r, err := p.Reserve(kind, 3)
			require.NoError(t, err)
			require.Equal(t, 3, p.Stats(kind).Reserved)
			_, err = p.Reserve(kind, 3)
			require.ErrorIs(t, err, ErrEmpty, "all or none")
			_, err = p.Reserve(kind, -1)
			require.ErrorIs(t, err, transport.ErrInvalid)
			require.Equal(t, 3, p.Stats(kind).Reserved)

			var others [2]*MR
			require.ErrorIs(t, p.Take(kind, make([]*MR, 3), "others"), ErrEmpty)
			require.NoError(t, p.Take(kind, others[:], "others"))
			require.ErrorIs(t, p.Take(kind, make([]*MR, 1), "others"), ErrEmpty)
			var mine [3]*MR
			require.ErrorIs(t, p.TakeFrom(r, kind, make([]*MR, 4), "mine"), ErrEmpty)
			require.NoError(t, p.TakeFrom(r, kind, mine[:2], "mine"))
			require.NoError(t, p.TakeFrom(r, kind, mine[2:], "mine"))

			others[0].Put()
			var more [1]*MR
			require.NoError(t, p.TakeFrom(r, kind, more[:], "mine"), "beyond its share")
			more[0].Put()
			mine[0].Put()
			require.NoError(t, p.Take(kind, others[:1], "others"), "the one free for everybody")
			require.ErrorIs(t, p.Take(kind, more[:], "others"), ErrEmpty, "the share is its owner's again")
			require.NoError(t, p.TakeFrom(r, kind, mine[:1], "mine"))

			told := 0
			p.AfterPut(func() { told++ })
			mine[1].Put()
			require.Equal(t, 1, told)
			p.AfterPut(func() { told++ })
			r.Release()
			r.Release()
			require.Equal(t, 2, told, "what it didn't use is everybody's")
			require.Zero(t, p.Stats(kind).Reserved)
			require.NoError(t, p.Take(kind, more[:], "others"))
			mine[2].Put() // taken from a share that is no more
			more[0].Put()
			mine[0].Put()
			for _, m := range others {
				m.Put()
			}
			var all [5]*MR
			require.NoError(t, p.Take(kind, all[:], "all"))
			for _, m := range all {
				m.Put()
			}
			require.Equal(t, 5, p.Stats(kind).Free)
		})
	}
}

func TestReservationOfAClosedPool(t *testing.T) {
	pd, _ := newPD(t, "siw-kernel", sim.Faults{})
	p, err := New(pd, Config{FastMRs: 1})
	require.NoError(t, err)
	require.NoError(t, p.Close())
	_, err = p.Reserve(transport.FastMR, 1)
	require.ErrorIs(t, err, ErrClosed)
}

// use makes one use of a registration that a peer is told, and returns the key.
func use(t *testing.T, p *Pool, r *transport.Region, peers ...*Peer) (key transport.RKey, repair bool) {
	m := take(t, p, transport.FastMR)
	remote, err := m.MapRemote(list(r), start, 0, ReadSource)
	require.NoError(t, err)
	for _, q := range peers {
		m.Tell(q)
	}
	require.NoError(t, m.Posted())
	require.NoError(t, m.Invalidated())
	return remote.RKey, m.Put()
}

// A registration whose key byte has gone round is set aside while a peer lives that was told
// one of its keys, and replaced: another index has other keys. Where nobody was told, or all
// who were are gone, it goes on as it is.
func TestKeyThatComesRoundIsReplacedWhileItsPeersLive(t *testing.T) {
	pd, r := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 1})
	for range 600 {
		_, repair := use(t, p, r)
		require.False(t, repair, "nobody was told")
	}
	gone := p.NewPeer()
	for i := range 600 {
		if i == 200 {
			gone.Close()
			gone.Close()
			(*Peer)(nil).Close()
		}
		_, repair := use(t, p, r, gone)
		require.False(t, repair, "use %d: who was told is gone", i)
	}
	require.Zero(t, p.Stats(transport.FastMR).Repairs)

	p = newPool(t, pd, Config{FastMRs: 1})
	a, b := p.NewPeer(), p.NewPeer()
	defer b.Close()
	told := make(map[transport.RKey]bool)
	for round := range 5 {
		for i := range 256 {
			peers := []*Peer{a, nil}
			if i == 100 {
				peers = append(peers, b) // one key is as bad as all of them
			}
			key, repair := use(t, p, r, peers...)
			require.False(t, told[key])
			told[key] = true
			require.Equal(t, i == 255, repair)
		}
		require.Equal(t, Stats{Broken: 1, Takes: uint64(256 * (round + 1)), Repairs: uint64(round)}, p.Stats(transport.FastMR))
		require.Equal(t, 1, p.Size(transport.FastMR), "it is still the pool's")
		waited := 0
		p.AfterPut(func() { waited++ })
		a.Close()
		require.Zero(t, waited, "b was told, too")
		require.NoError(t, p.Repair())
		require.Equal(t, 1, waited)
		a = p.NewPeer()
	}
	a.Close()
}

// What others have reserved is theirs for as long as they have it: Size counts it, and SizeFor
// doesn't. Those who wait hear of it, since it may be more than they can wait for.
func TestSizeForIsWithoutWhatOthersReserved(t *testing.T) {
	pd, _ := newPD(t, "siw-kernel", sim.Faults{})
	p := newPool(t, pd, Config{FastMRs: 5, SyncMRs: 4})
	require.Equal(t, 5, p.SizeFor(nil, transport.FastMR))
	waited := 0
	p.AfterPut(func() { waited++ })
	_, err := p.Reserve(transport.FastMR, 6)
	require.ErrorIs(t, err, ErrEmpty)
	require.Zero(t, waited, "nothing was reserved")
	r, err := p.Reserve(transport.FastMR, 2)
	require.NoError(t, err)
	require.Equal(t, 1, waited)
	other, err := p.Reserve(transport.FastMR, 1)
	require.NoError(t, err)
	require.Equal(t, 5, p.Size(transport.FastMR))
	require.Equal(t, 2, p.SizeFor(nil, transport.FastMR))
	require.Equal(t, 4, p.SizeFor(r, transport.FastMR))
	require.Equal(t, 4, p.SizeFor(nil, transport.SyncMR), "another kind")

	most := make([]*MR, 4)
	require.NoError(t, p.TakeFrom(r, transport.FastMR, most, "all that it can have"))
	require.ErrorIs(t, p.TakeFrom(r, transport.FastMR, make([]*MR, 1), "x"), ErrEmpty)
	require.Equal(t, 4, p.SizeFor(r, transport.FastMR), "in use or not")
	for _, m := range most {
		m.Put()
	}
	other.Release()
	require.Equal(t, 5, p.SizeFor(r, transport.FastMR))
	r.Release()
	require.Equal(t, 5, p.SizeFor(nil, transport.FastMR))
}

func TestPersistentSink(t *testing.T) {
	pd, r := newPD(t, "irdma-iwarp", sim.Faults{})
	p := newPool(t, pd, Config{SyncMRs: 1})
	require.NoError(t, p.AddSink(r))
	e, err := p.Sinks().View().Check(r.Piece(0, 10), transport.LocalWrite)
	require.NoError(t, err)
	require.NotZero(t, e.LKey)
	require.NotEqual(t, pd.Regions().View().Lookup(r.ID()).LKey, e.LKey)
	require.ErrorIs(t, p.AddSink(r), ErrEmpty, "one registration each")
	require.Equal(t, 1, p.Stats(transport.SyncMR).Kept)
	require.Zero(t, p.Size(transport.SyncMR), "what needs it is not to wait for it")
	require.NoError(t, p.RemoveSink(r))
	require.Equal(t, 1, p.Size(transport.SyncMR))
	require.NoError(t, p.RemoveSink(r))
	require.Nil(t, p.Sinks().View().Lookup(r.ID()))
	require.Equal(t, 1, p.Stats(transport.SyncMR).Free)

	two := newPool(t, pd, Config{SyncMRs: 3})
	other, err := pd.Device().NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
	require.NoError(t, err)
	require.ErrorIs(t, two.AddSink(other), transport.ErrRegion, "not in the domain")
	require.Equal(t, 0, two.Stats(transport.SyncMR).Out, "nothing is held")
	require.NoError(t, pd.AddRegion(other))
	require.NoError(t, two.AddSink(r))
	require.ErrorIs(t, two.AddSink(r), transport.ErrBusy, "a sink already")
	require.NoError(t, two.AddSink(other))
	require.NoError(t, two.RemoveSink(other))
	require.NotNil(t, two.Sinks().View().Lookup(r.ID()), "the other one stays")
	require.Equal(t, 1, two.Stats(transport.SyncMR).Out)
	require.NoError(t, pd.RemoveRegion(other))
	require.NoError(t, other.Close())
	require.NoError(t, two.Close(), "a sink that is left is no leak")
	require.Nil(t, two.Sinks().View().Lookup(r.ID()))

	large := transport.NewRegion(77, 0, 1<<32, transport.LocalWrite, nil, nil, nil)
	require.ErrorIs(t, p.AddSink(large), transport.ErrUnsupported)
}

// A pool in a domain of its own takes the regions along, and all of it down again; if
// it can't be made nothing is left.
func TestIsolatedPool(t *testing.T) {
	var failing sim.Allocation = 255
	pd, r := newPD(t, "siw-kernel", sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
		if what == failing {
			return transport.ErrNoMemory
		}
		return nil
	}})
	dev := pd.Device()
	p, err := NewIsolated(dev, Config{FastMRs: 2}, r)
	require.NoError(t, err)
	require.True(t, p.Isolated())
	require.NotSame(t, pd, p.PD())
	m := take(t, p, transport.FastMR)
	_, err = m.MapRemote(list(r), start, 0, ReadSource)
	require.NoError(t, err, "the regions are known there")
	m.Put()
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = p.PD().NewRegistration(transport.FastMR, 1)
	require.Error(t, err, "the domain is closed")

	for _, failing = range []sim.Allocation{sim.AllocPD, sim.AllocRegionKey, sim.AllocRegistration} {
		_, err = NewIsolated(dev, Config{FastMRs: 2}, r)
		require.ErrorIs(t, err, transport.ErrNoMemory)
		require.NotErrorIs(t, err, transport.ErrBusy, "nothing was in use when it was taken down")
	}
	failing = 255
	_, err = NewIsolated(dev, Config{FastMRs: -1}, r)
	require.ErrorIs(t, err, transport.ErrInvalid)
	require.NotErrorIs(t, err, transport.ErrBusy)
}
