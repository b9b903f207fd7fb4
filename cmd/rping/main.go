// Command rping is a server or a client of rdma-core's ping-pong, which works with
// the C program of that name at the other end. See package rdmarw/ulp/rping for the
// protocol; run it with -h for more.
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
	"strconv"
	"syscall"
	"time"

	"rdmarw/transport/sim"
	"rdmarw/ulp/rping"
)

const usage = `usage: rping -s [-a ADDRESS] [-p PORT] [-d DEVICE] [-S SIZE] [-P] [-V] [-v]
       rping -c -a ADDRESS [-p PORT] [-d DEVICE] [-S SIZE] [-C COUNT] [-V] [-v]
       rping -sim PROFILE [-S SIZE] [-C COUNT] [-V] [-v]

Ping-pong over RDMA: the server READs a buffer of the client's, and WRITEs it back.
Either end may be the rping of rdma-core (Debian: rdmacm-utils).

  -s          be the server, for one client
  -P          go on with the next ones
  -c          be the client
  -sim NAME   be both, on simulated devices of a profile: rxe, siw, siw-kernel, mlx5, ...

  -a ADDRESS  server: address to listen on (all of the device's, where siw doesn't
              hear clients of the same machine); client: address of the server
  -p PORT     7174
  -d DEVICE   RDMA device (rxe0), its network device (eth0), or an address of that.
              Without it: the one that ADDRESS is on, or is reached through
  -S SIZE     client: bytes of a ping (64); server: the most it takes (65536). The C
              program wants 23 to 65535, and at both ends the same
  -C COUNT    client: number of pings; 0 (the default): until interrupted
  -V          verify data, byte for byte
  -v          show every ping

But for -sim it has to be built with -tags ibverbs.

Without hardware, the devices of Linux itself will do:
  rdma link add rxe0 type rxe netdev eth0      (Soft-RoCE; type siw: Soft-iWARP)
  rping -s -a 192.0.2.1 -V & rping -c -a 192.0.2.1 -V -C 1000 -S 4096

Exit status: 0 all well, 1 something failed, 2 wrong usage
`

type options struct {
	server, client, persistent, verify, verbose bool
	sim, addr, device                           string
	profile                                     sim.Profile
	port                                        uint
	size, count                                 int
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("rping", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.BoolVar(&o.server, "s", false, "")
	f.BoolVar(&o.client, "c", false, "")
	f.StringVar(&o.sim, "sim", "", "")
	f.BoolVar(&o.persistent, "P", false, "")
	f.StringVar(&o.addr, "a", "", "")
	f.UintVar(&o.port, "p", 7174, "")
	f.StringVar(&o.device, "d", "", "")
	f.IntVar(&o.size, "S", 0, "")
	f.IntVar(&o.count, "C", 0, "")
	f.BoolVar(&o.verify, "V", false, "")
	f.BoolVar(&o.verbose, "v", false, "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	sized := false
	f.Visit(func(one *flag.Flag) { sized = sized || one.Name == "S" }) // zero isn't the default then
	roles := 0
	for _, is := range []bool{o.server, o.client, o.sim != ""} {
		if is {
			roles++
		}
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case roles != 1:
		return o, errors.New("need one of -s, -c and -sim")
	case o.client && o.addr == "":
		return o, errors.New("-c needs the server's address: -a")
	case o.sim != "" && o.addr+o.device != "":
		return o, errors.New("-sim has no addresses and devices")
	case o.persistent && !o.server:
		return o, errors.New("-P is the server's")
	case o.port == 0 || o.port > 65535:
		return o, fmt.Errorf("no such port: %d", o.port)
	case sized && o.size < 1 || o.size > rping.MaxSize:
		return o, fmt.Errorf("size %d is not in 1..%d", o.size, rping.MaxSize)
	case o.count < 0:
		return o, fmt.Errorf("count %d is negative", o.count)
	}
	if o.sim != "" {
		var ok bool
		if o.profile, ok = sim.LookupProfile(o.sim); !ok {
			return o, fmt.Errorf("no profile %q (try rxe, siw, siw-kernel)", o.sim)
		}
	}
	return o, nil
}

func (o *options) hostPort() string { return net.JoinHostPort(o.addr, strconv.Itoa(int(o.port))) }

func (o *options) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if o.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "rping: %v (-h for help)\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := o.logger(stderr)
	switch {
	case o.sim != "":
		err = o.simulate(ctx, stdout, log)
	case o.server:
		err = o.serve(ctx, stdout, log)
	default:
		err = o.ping(ctx, stdout, log)
	}
	if err != nil {
		fmt.Fprintf(stderr, "rping: %v\n", err)
		return 1
	}
	return 0
}

// report says how pinging went. Being interrupted is how pinging without a count
// ends.
func (o *options) report(w io.Writer, pings int, took time.Duration, err error) error {
	if o.count == 0 && errors.Is(err, context.Canceled) {
		err = nil
	}
	if pings == 0 && err != nil {
		return err
	}
	size := o.size
	if size == 0 {
		size = 64
	}
	checked := "not verified"
	if o.verify {
		checked = "verified"
	}
	fmt.Fprintf(w, "%d pings of %d bytes in %v, %s\n", pings, size, took.Round(time.Millisecond), checked)
	return err
}
