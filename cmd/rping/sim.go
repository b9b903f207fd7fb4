package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"rdmarw/transport/sim"
	"rdmarw/ulp/rping"
)

// simulate runs both ends on simulated devices.
func (o *options) simulate(ctx context.Context, stdout io.Writer, log *slog.Logger) (err error) {
	fabric := sim.New(sim.Config{})
	defer func() { err = errors.Join(err, fabric.Err(), fabric.Close()) }()
	target, err := fabric.NewDevice(o.profile, "target")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	initiator, err := fabric.NewDevice(o.profile, "initiator")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, initiator.Close()) }()
	l, err := target.Listen(fmt.Sprintf("target:%d", o.port))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	serving, stop := context.WithCancel(context.Background())
	left := make(chan struct{}) // by the one client
	server := rping.Server{Device: target, MaxSize: o.size, Verify: o.verify, Log: log}
	server.OnEnd = func(string, int, error) { close(left) }
	served := make(chan error, 1)
	go func() { served <- server.Serve(serving, l) }()
	defer func() {
		stop()
		if e := <-served; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
	}()
	start := time.Now()
	client := rping.Client{Device: initiator, Size: o.size, Count: o.count, Verify: o.verify, Log: log}
	pings, err := client.Ping(ctx, l.Addr())
	if err == nil {
		<-left // or stopping cuts it off
	}
	return o.report(stdout, pings, time.Since(start), err)
}
