// Command nvmeof-host is an NVMe over Fabrics host for people: it finds subsystems on
// RDMA targets, shows what they are, reads, writes, verifies and measures. See package
// rdmarw/ulp/nvmeof/host for the library; run it with -h for more.
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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rdmarw/cmd/internal/bytesize"
	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"
)

const usage = `usage: nvmeof-host COMMAND -a ADDRESS [-n NQN] [OPTION...]

A host of NVMe over Fabrics with RDMA, in user space. Nothing appears in /dev: it connects,
does one thing, and disconnects. Works with the kernel's target (nvmet-rdma), with
nvmeof-target, and with what else keeps to the specification.

Commands:
  discover   what subsystems the target at ADDRESS has
  identify   what a subsystem's controller says about itself and its namespaces
  read       write what a namespace holds to stdout, or to a file (-f)
  write      write stdin, or a file (-f), to a namespace, and flush
  verify     write a pattern in transfers of mixed sizes, flush, read it back in others
             and compare. DESTROYS what the range holds
  bench      measure: -op, -size, -depth, -queues, -time. -op write DESTROYS data

Which target:
  -a ADDRESS     its address, or ADDRESS:PORT; port 4420 if none is given
  -n NQN         the subsystem's name (discover: not needed; it lists them)
  -d DEVICE      RDMA device to go out by (rxe0), its network device (eth0), or an address of
                 that. Without it: the one that ADDRESS is reached through
  -hostnqn NQN   this host's name. Without it: a random one
  -hostid UUID   this host's id. Without it: a random one
  -queues N      I/O queues (1)
  -depth N       commands under way on each (32); for bench, on all of them together
  -kato TIME     keep alive timeout (5s)

What:
  -ns ID         namespace; without it the first one
  -offset N      byte to start at (0)
  -length N      bytes (to the end of the namespace, or of the input)
  -f FILE        file to read to, or write from
  -op OP         bench: read, write, randread, randwrite, or randrw (randread)
  -size N        bench: bytes of a command (4k); verify: of the largest (1m)
  -time TIME     bench: for how long (5s)
  -seed N        verify, bench: of what is random (1)
Numbers of bytes may end in K, M, G or T, or k, m, g or t.

  -v             log connections and the like to stderr
  -h             this

It has to be built with -tags ibverbs: without it no device can be opened.

Without hardware, and with nothing else either:
  rdma link add rxe0 type rxe netdev eth0
  nvmeof-target -a 192.0.2.1 -ns memory:256M &
  nvmeof-host discover -a 192.0.2.1
  nvmeof-host verify -a 192.0.2.1 -n nqn.2014-08.org.rdmarw:disk

SIGINT and SIGTERM end it cleanly: commands under way are waited for, the controller is
told. A second one ends it at once.

Exit status: 0 all well, 1 something failed (verify: or differed), 2 wrong usage
`

type options struct {
	command, addr, nqn, device, hostNQN, hostID string
	namespace                                   uint
	queues, depth                               int
	keepAlive, time                             time.Duration
	offset, length, size                        bytesize.Size
	file, op                                    string
	seed                                        uint64
	verbose                                     bool
}

// commands are what can be done.
var commands = map[string]func(context.Context, *options, *program) error{
	"discover": discover, "identify": identify, "read": read, "write": write, "verify": verify, "bench": bench,
}

// program is what a command talks to.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	log            *slog.Logger
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("nvmeof-host", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.addr, "a", "", "")
	f.StringVar(&o.nqn, "n", "", "")
	f.StringVar(&o.device, "d", "", "")
	f.StringVar(&o.hostNQN, "hostnqn", "", "")
	f.StringVar(&o.hostID, "hostid", "", "")
	f.IntVar(&o.queues, "queues", 1, "")
	f.IntVar(&o.depth, "depth", 32, "")
	f.DurationVar(&o.keepAlive, "kato", 0, "")
	f.UintVar(&o.namespace, "ns", 0, "")
	f.Var(&o.offset, "offset", "")
	f.Var(&o.length, "length", "")
	f.StringVar(&o.file, "f", "", "")
	f.StringVar(&o.op, "op", "randread", "")
	f.Var(&o.size, "size", "")
	f.DurationVar(&o.time, "time", 5*time.Second, "")
	f.Uint64Var(&o.seed, "seed", 1, "")
	f.BoolVar(&o.verbose, "v", false, "")
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		o.command, args = args[0], args[1:]
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case o.command == "" && commands[f.Arg(0)] != nil:
		at := len(args) - f.NArg()
		right := slices.Concat([]string{"nvmeof-host", f.Arg(0)}, args[:at], args[at+1:])
		return o, fmt.Errorf("the command comes first: %s", strings.Join(right, " "))
	case o.command == "":
		return o, errors.New("which command?")
	case commands[o.command] == nil:
		return o, fmt.Errorf("no command %q", o.command)
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.addr == "":
		return o, errors.New("which target? -a ADDRESS")
	case o.nqn == "" && o.command != "discover":
		return o, errors.New("which subsystem? -n NQN (nvmeof-host discover lists them)")
	case o.queues < 1 || o.depth < 1:
		return o, errors.New("-queues and -depth are at least 1")
	case o.namespace > 0xFFFFFFFE:
		return o, fmt.Errorf("no such namespace: %d", o.namespace)
	}
	switch {
	case o.command == "bench" && !benchOps[o.op]:
		return o, fmt.Errorf("-op %q is none of read, write, randread, randwrite, randrw", o.op)
	case o.command == "bench" && o.time <= 0:
		return o, errors.New("-time has to be more than nothing")
	case o.size > 1<<30:
		return o, errors.New("-size is at most 1g")
	}
	for _, nqn := range []string{o.nqn, o.hostNQN} {
		if nqn == "" {
			continue
		}
		if err := nvme.CheckNQN(nqn); err != nil {
			return o, err
		}
	}
	if _, err := o.parseHostID(); err != nil {
		return o, err
	}
	err = o.completeAddress()
	return o, err
}

// completeAddress adds the port if there is none.
func (o *options) completeAddress() error {
	if _, _, err := net.SplitHostPort(o.addr); err != nil {
		o.addr = net.JoinHostPort(strings.Trim(o.addr, "[]"), strconv.Itoa(nvme.Port))
	}
	host, port, err := net.SplitHostPort(o.addr)
	if n, e := strconv.Atoi(port); err == nil && (e != nil || n < 1 || n > 65535 || host == "") {
		err = fmt.Errorf("%q is no ADDRESS:PORT", o.addr)
	}
	return err
}

func (o *options) parseHostID() (id [16]byte, err error) {
	if o.hostID == "" {
		return id, nil
	}
	n := 0
	for i := 0; i < len(o.hostID); {
		if o.hostID[i] == '-' {
			i++
			continue
		}
		v, err := strconv.ParseUint(o.hostID[i:min(i+2, len(o.hostID))], 16, 8)
		if err != nil || n == len(id) {
			return id, fmt.Errorf("-hostid %q is no UUID", o.hostID)
		}
		id[n] = byte(v)
		n, i = n+1, i+2
	}
	if n != len(id) {
		return id, fmt.Errorf("-hostid %q is no UUID", o.hostID)
	}
	return id, nil
}

// open is replaced by tests.
var open = func(name string) (transport.Device, error) { return ibverbs.Open(name) }

// openDevice opens the device that was named, or the one that the target is reached
// through.
func (o *options) openDevice() (transport.Device, error) {
	if o.device != "" {
		return open(o.device)
	}
	probe, err := net.Dial("udp", o.addr) // sends nothing: this asks the routing table
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrUnreachable, err)
	}
	name := probe.LocalAddr().(*net.UDPAddr).IP.String()
	probe.Close()
	dev, err := open(name)
	if err != nil {
		return nil, fmt.Errorf("the route to %s leaves by %s: %w", o.addr, name, err)
	}
	return dev, nil
}

func (o *options) config(dev transport.Device, log *slog.Logger) host.Config {
	id, _ := o.parseHostID()
	return host.Config{
		Device: dev, HostNQN: o.hostNQN, HostID: id, Queues: o.queues, Depth: o.depth, KeepAlive: o.keepAlive, Log: log,
	}
}

// connected has f use a controller.
func (o *options) connected(ctx context.Context, p *program, f func(*host.Controller) error) (err error) {
	dev, err := o.openDevice()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	c, err := host.Connect(ctx, o.addr, o.nqn, o.config(dev, p.log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return f(c)
}

// opened has f use a namespace.
func (o *options) opened(ctx context.Context, p *program, f func(*host.Controller, *host.Namespace) error) error {
	return o.connected(ctx, p, func(c *host.Controller) error {
		id := uint32(o.namespace)
		if id == 0 {
			ids, err := c.Namespaces(ctx)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				return errors.New("the subsystem has no namespace")
			}
			id = ids[0]
		}
		ns, err := c.Namespace(ctx, id)
		if err != nil {
			return err
		}
		return f(c, ns)
	})
}

func main() {
	// Who reads from here may go: that is an error like others, after which to disconnect.
	signal.Ignore(syscall.SIGPIPE)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "nvmeof-host: %v (-h for help)\n", err)
		return 2
	}
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second one ends it at once
	p := &program{stdin, stdout, stderr, slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))}
	if err := commands[o.command](ctx, &o, p); err != nil {
		fmt.Fprintf(stderr, "nvmeof-host: %v\n", err)
		return 1
	}
	return 0
}
