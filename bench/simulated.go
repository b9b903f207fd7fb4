package main

import (
	"fmt"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// simulated makes a fabric of two devices of a profile. It is stepped: it moves
// only while somebody waits, so that its work is done outside of what is
// measured, and the same seed gives the same run.
func (r *rig) simulated(name string, seed uint64) (addr string, err error) {
	profile, ok := sim.LookupProfile(name)
	if !ok {
		return "", &setupError{fmt.Errorf("the simulator has no profile %q", name)}
	}
	fabric := sim.New(sim.Config{Seed: seed, Stepped: true})
	r.onClose(fabric.Close)
	peers := profile
	if r.variant.adapt != nil {
		r.variant.adapt(&profile.Caps)
	}
	dev, err := fabric.NewDevice(profile, name)
	if err != nil {
		return "", err
	}
	r.onClose(dev.Close)
	peer, err := fabric.NewDevice(peers, name+"-peer")
	if err != nil {
		return "", err
	}
	r.onClose(peer.Close)
	r.a.dev, r.b.dev = dev, peer
	r.clock = wallClock
	r.virtual = fabric.Now
	r.misuse = fabric.Err
	r.counted = func() counts {
		s := dev.Stats()
		c := counts{
			registrations: int(s.Registrations + s.FastRegs + s.Binds),
			invalidations: int(s.LocalInvs + s.RemoteInvs),
		}
		for op := range transport.Opcode(len(s.Posted)) {
			c.wrs += int(s.Count(op))
		}
		return c
	}
	return name + "-peer:0", nil
}
