package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
	"rdmarw/ulp/rping"
)

// openDevice opens the device that was named, or the one that the address is on or
// is reached through.
func (o *options) openDevice() (transport.Device, error) {
	if o.device != "" {
		return ibverbs.Open(o.device)
	}
	if o.client {
		return o.openRoute()
	}
	if o.addr != "" {
		return ibverbs.Open(o.addr)
	}
	all, err := ibverbs.Devices()
	if err != nil {
		return nil, err
	}
	if len(all) > 1 {
		return nil, fmt.Errorf("several RDMA devices, choose one: -d %s, or -a ADDRESS", all[0].Name)
	}
	name := "any"
	if len(all) == 1 {
		name = all[0].Name
	}
	return ibverbs.Open(name)
}

// openRoute opens the device that the server is reached through.
func (o *options) openRoute() (transport.Device, error) {
	probe, err := net.Dial("udp", o.hostPort()) // sends nothing: this asks the routing table
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, err)
	}
	name := probe.LocalAddr().(*net.UDPAddr).IP.String()
	probe.Close()
	dev, err := ibverbs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("the route to %s leaves by %s: %w", o.hostPort(), name, err)
	}
	return dev, nil
}

func (o *options) serve(ctx context.Context, stdout io.Writer, log *slog.Logger) (err error) {
	dev, err := o.openDevice()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	l, err := dev.Listen(o.hostPort())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	fmt.Fprintf(stdout, "listening on %s (%s)\n", l.Addr(), dev.Caps().Device)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, 1)
	server := rping.Server{Device: dev, MaxSize: o.size, Verify: o.verify, Log: log}
	if !o.persistent {
		server.MaxClients = 1
		server.OnEnd = func(_ string, _ int, err error) {
			select {
			case ends <- err:
			default: // a second one, before the first was noticed
			}
			cancel()
		}
	}
	err = server.Serve(ctx, l)
	if errors.Is(err, context.Canceled) {
		err = nil
		select {
		case err = <-ends:
		default: // interrupted
		}
	}
	return err
}

func (o *options) ping(ctx context.Context, stdout io.Writer, log *slog.Logger) (err error) {
	dev, err := o.openDevice()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	start := time.Now()
	client := rping.Client{Device: dev, Size: o.size, Count: o.count, Verify: o.verify, Log: log}
	pings, err := client.Ping(ctx, o.hostPort())
	return o.report(stdout, pings, time.Since(start), err)
}
