package conformance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
	"rdmarw/transport/sim"
	"rdmarw/transport/transporttest"
)

// Pair is a device and its simulation.
type Pair struct {
	// Device is the name of the real device, Profile that of the simulator's.
	Device, Profile string
	// Known are the differences that are meant.
	Known []transporttest.Divergence
}

// Pairs are the devices that the simulator is held to.
func Pairs() []Pair {
	return []Pair{{"rxe0", "rxe", rxeDivergences}, {"siw0", "siw", siwDivergences}}
}

// grant lets a device be asked to do what is held back because it can't be done safely:
// LOCAL_INV of windows on rxe. What it does to the device is what is to be seen.
func grant(c *transport.Caps) {
	if c.Windows != transport.NoWindows {
		c.LocalInv[transport.Window] = transport.InvWorks
	}
}

// Simulated makes beds of two simulated devices of a profile, on a stepped fabric of a
// seed. What a real machine would have been damaged by is a failure.
func Simulated(profile string, seed uint64) transporttest.Factory {
	return named(profile, sim.Config{Seed: seed, Stepped: true})
}

// FreeRunning is Simulated on a fabric that moves by itself.
func FreeRunning(profile string) transporttest.Factory { return named(profile, sim.Config{}) }

func named(profile string, cfg sim.Config) transporttest.Factory {
	p, ok := sim.LookupProfile(profile)
	if !ok {
		return func() (transporttest.Bed, error) {
			return transporttest.Bed{}, fmt.Errorf("the simulator has no profile %q", profile)
		}
	}
	return Simulate(p, cfg)
}

// Simulate makes beds of two devices of any profile.
func Simulate(p sim.Profile, cfg sim.Config) transporttest.Factory {
	grant(&p.Caps)
	return func() (transporttest.Bed, error) { return bed(sim.New(cfg), p) }
}

func bed(fabric *sim.Fabric, p sim.Profile) (transporttest.Bed, error) {
	a, err := fabric.NewDevice(p, "a")
	if err != nil {
		return transporttest.Bed{}, err
	}
	b, err := fabric.NewDevice(p, "b")
	if err != nil {
		return transporttest.Bed{}, err
	}
	return transporttest.Bed{
		A: a, B: b, Listen: "b:0", Nobody: "b:1",
		Misuse: fabric.Err,
		Close: func() error {
			if err := a.Close(); err != nil {
				return err
			}
			if err := b.Close(); err != nil {
				return err
			}
			return fabric.Close()
		},
	}, nil
}

// Real makes beds of one RDMA device, connected to itself over its own address. It is
// opened once, which takes as long as a row; done closes it, and fails if a row has left
// anything behind, but for what the connection manager needs a moment to let go of.
func Real(device string) (f transporttest.Factory, done func() error, err error) {
	addr, err := address(device)
	if err != nil {
		return nil, nil, err
	}
	d, err := ibverbs.Open(device, ibverbs.WithCaps(grant))
	if err != nil {
		return nil, nil, err
	}
	bed := transporttest.Bed{
		A: d, B: d, Close: func() error { return nil },
		Listen: net.JoinHostPort(addr, "0"),
		Nobody: net.JoinHostPort(addr, "1"), // a port that nobody is given
	}
	done = func() error {
		for range 50 {
			if err = d.Close(); !errors.Is(err, transport.ErrBusy) {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
	return func() (transporttest.Bed, error) { return bed, nil }, done, nil
}

// address is an address of a device: of the environment, which the guest sets, or else its
// own.
func address(device string) (string, error) {
	if addr := os.Getenv("RDMARW_" + strings.ToUpper(device) + "_ADDR"); addr != "" {
		return addr, nil
	}
	infos, err := ibverbs.Devices()
	if err != nil {
		return "", err
	}
	for _, info := range infos {
		if info.Name != device {
			continue
		}
		for _, a := range info.Addrs {
			if !a.IsLinkLocalUnicast() {
				return a.String(), nil
			}
		}
		return "", fmt.Errorf("%s has no IP address to connect to", device)
	}
	return "", fmt.Errorf("%s: %w", device, transport.ErrNoDevice)
}
