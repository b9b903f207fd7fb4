package target_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"
)

// A target on a simulated device, and a host that finds it. On a real device, sim.New and
// NewDevice make place for ibverbs.Open; nothing else changes.
func Example() {
	fabric := sim.New(sim.Config{})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("rxe")
	dev, err := fabric.NewDevice(profile, "target")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	l, err := dev.Listen("target:4420")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	disk, err := backend.NewMemory(64<<20, 4096)
	if err != nil {
		log.Fatal(err)
	}
	defer disk.Close()
	t, err := target.New(target.Config{Subsystems: []target.Subsystem{{
		NQN:        "nqn.2014-08.org.example:disk",
		Namespaces: []target.Namespace{{ID: 1, Backend: disk}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- t.Serve(context.Background(), dev, l) }()

	initiator, err := fabric.NewDevice(profile, "initiator")
	if err != nil {
		log.Fatal(err)
	}
	defer initiator.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	entries, err := host.Discover(ctx, l.Addr(), host.Config{Device: initiator})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.NQN, "at", e.Address, "port", e.Service)
	}

	if err := t.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-served)
	// Output:
	// nqn.2014-08.org.example:disk at target port 4420
	// target closed
}
