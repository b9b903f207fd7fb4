// Command nvmeof-target serves files, block devices and memory to NVMe over Fabrics hosts
// on RDMA, such as Linux's nvme-rdma. See package rdmarw/ulp/nvmeof/target; run it with -h
// for more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
	"rdmarw/ulp/nvmeof/target"
)

const usage = `usage: nvmeof-target -a ADDRESS [-a ADDRESS]... [-nqn NQN] -ns SPEC [-ns SPEC]... [OPTION]...

Serves disks to NVMe over Fabrics hosts on RDMA: to Linux's own, and to nvmeof-host.

  -a ADDRESS      address, or ADDRESS:PORT, of an RDMA device to listen on; the port is
                  4420 if none is given. Give it again to serve by several devices
  -d DEVICE       the RDMA device (rxe0), where the address alone doesn't tell
  -nqn NQN        name of the subsystem: nqn.2014-08.org.rdmarw:disk if none is given
  -ns SPEC        a namespace, numbered from 1:
                    memory:SIZE              forgets everything at the end
                    PATH                     a file or block device, by direct I/O
                  with options behind commas:
                    block=512 | block=4096   block size
                    size=SIZE                make the file that large if it is smaller
                    readonly                 nobody may change it
                    buffered                 through the page cache, not by direct I/O
                    workers=N                by N threads, not by io_uring
                  SIZE is in bytes, or with K, M, G or T behind it, or k, m, g or t
  -host NQN       a host that may connect; give it again for more. Without it: any.
                  Hosts say who they are: this keeps order, not enemies
  -serial TEXT    serial number, up to 20 characters; without it: made from the NQN

  -depth N        most entries of a queue (128)
  -queues N       most I/O queues of a controller (16)
  -controllers N  most controllers (128)
  -connections N  most queues of all hosts together (512)
  -incapsule SIZE data that may come along with a command (4K; 0: none)
  -transfer SIZE  most that a command may transfer (1M)
  -memory SIZE    memory of each I/O queue for data under way (0: 64K for each entry)
  -pollers N      threads that serve the queues of an address (0: one for each CPU, up to 4)
  -spin TIME      poll on for so long before sleeping, while commands keep coming (20us):
                  saves latency, and uses a CPU. For the lowest latency give it CPUs that
                  nothing else uses: taskset -c 2,3 nvmeof-target -spin 20ms ...

  -http ADDRESS   statistics at http://ADDRESS/metrics, as Prometheus reads them, and Go's
                  profiles at /debug/pprof/
  -grace TIME     how long to complete what is under way at the end (10s)
  -json           log as JSON
  -v              log more

Ends on SIGTERM or SIGINT: answers what is under way, then disconnects. A second one ends it
at once.

It has to be built with -tags ibverbs: without it no device can be opened.

On a machine without RDMA hardware, with nvme-cli:
  rdma link add rxe0 type rxe netdev eth0
  nvmeof-target -a 192.0.2.1 -ns memory:1G &
  modprobe nvme-rdma
  nvme discover -t rdma -a 192.0.2.1 -s 4420
  nvme connect -t rdma -a 192.0.2.1 -s 4420 -n nqn.2014-08.org.rdmarw:disk
  nvme list

Exit status: 0 all well, 1 something failed, 2 wrong usage
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "nvmeof-target: %v (-h for help)\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second one ends it at once
	if err := o.serve(ctx, stdout, o.logger(stderr)); err != nil {
		fmt.Fprintf(stderr, "nvmeof-target: %v\n", err)
		return 1
	}
	return 0
}

// logger logs as text or JSON.
func (o *options) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.verbose {
		opts.Level = slog.LevelDebug
	}
	if o.json {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// openDevice is replaced by tests.
var openDevice = func(name string) (transport.Device, error) { return ibverbs.Open(name) }

// serve serves until ctx ends, and then shuts down.
func (o *options) serve(ctx context.Context, stdout io.Writer, log *slog.Logger) (err error) {
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	sub := target.Subsystem{NQN: o.nqn, Serial: o.serial, Hosts: o.hosts}
	for i, spec := range o.namespaces {
		b, err := spec.open()
		if err != nil {
			return fmt.Errorf("namespace %d: %w", i+1, err)
		}
		undo = append(undo, b.Close)
		g := b.Geometry()
		log.Info("namespace", "id", i+1, "backend", spec.text, "bytes", g.Blocks<<g.BlockShift, "block", g.BlockSize())
		sub.Namespaces = append(sub.Namespaces, target.Namespace{ID: uint32(i + 1), Backend: b})
	}
	o.target.Subsystems, o.target.Log = []target.Subsystem{sub}, log
	t, err := target.New(o.target)
	if err != nil {
		return err
	}
	if o.http != "" {
		stop, err := serveMetrics(o.http, t, log)
		if err != nil {
			return err
		}
		undo = append(undo, stop)
	}

	type place struct {
		dev transport.Device
		l   transport.Listener
	}
	var places []place
	for _, addr := range o.addrs {
		dev, l, err := o.listen(addr)
		if err != nil {
			return err
		}
		undo = append(undo, func() error { return errors.Join(l.Close(), dev.Close()) })
		places = append(places, place{dev, l})
		fmt.Fprintf(stdout, "listening on %s (%s) for %s\n", l.Addr(), dev.Caps().Device, o.nqn)
	}
	ended := make(chan error, len(places))
	for _, p := range places {
		go func() { ended <- t.Serve(context.Background(), p.dev, p.l) }()
	}
	left := len(places)
	select {
	case <-ctx.Done():
		log.Info("shutting down")
	case err = <-ended:
		left--
	}
	grace, cancel := context.WithTimeout(context.Background(), o.grace)
	defer cancel()
	err = errors.Join(err, t.Shutdown(grace))
	for range left {
		if e := <-ended; !errors.Is(e, target.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// listen opens the device of an address.
func (o *options) listen(addr string) (transport.Device, transport.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, err
	}
	name := o.device
	if name == "" {
		name = host
	}
	dev, err := openDevice(name)
	if err != nil {
		return nil, nil, err
	}
	l, err := dev.Listen(addr)
	if err != nil {
		return nil, nil, errors.Join(err, dev.Close())
	}
	return dev, l, nil
}

const defaultGrace = 10 * time.Second
