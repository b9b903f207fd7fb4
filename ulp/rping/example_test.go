package rping_test

import (
	"context"
	"fmt"
	"log"

	"rdmarw/transport/sim"
	"rdmarw/ulp/rping"
)

// A server and a client on two simulated devices. On real ones, sim.New and
// NewDevice make place for ibverbs.Open; nothing else changes.
func Example() {
	fabric := sim.New(sim.Config{})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("rxe")
	target, err := fabric.NewDevice(profile, "target")
	if err != nil {
		log.Fatal(err)
	}
	defer target.Close()
	initiator, err := fabric.NewDevice(profile, "initiator")
	if err != nil {
		log.Fatal(err)
	}
	defer initiator.Close()

	listener, err := target.Listen("target:7174")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	server := rping.Server{Device: target, Verify: true}
	go func() { served <- server.Serve(ctx, listener) }()

	client := rping.Client{Device: initiator, Size: 4096, Count: 10, Verify: true}
	pings, err := client.Ping(ctx, listener.Addr())
	fmt.Println(pings, "pings, error:", err)

	cancel()
	fmt.Println("server:", <-served)
	// Output:
	// 10 pings, error: <nil>
	// server: context canceled
}
