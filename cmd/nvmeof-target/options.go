package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"rdmarw/cmd/internal/bytesize"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target"
)

type options struct {
	addrs, hosts       []string
	device             string
	nqn, serial        string
	namespaces         []spec
	target             target.Config
	http               string
	grace              time.Duration
	json, verbose      bool
	inCapsule          bytesize.Size
	transfer, memories bytesize.Size
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("nvmeof-target", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("a", "", func(s string) error { return o.addAddress(s) })
	f.StringVar(&o.device, "d", "", "")
	f.StringVar(&o.nqn, "nqn", "nqn.2014-08.org.rdmarw:disk", "")
	f.Func("ns", "", func(s string) error {
		one, err := parseSpec(s)
		o.namespaces = append(o.namespaces, one)
		return err
	})
	f.Func("host", "", func(s string) error {
		o.hosts = append(o.hosts, s)
		return nvme.CheckNQN(s)
	})
	f.StringVar(&o.serial, "serial", "", "")
	f.IntVar(&o.target.QueueDepth, "depth", 128, "")
	f.IntVar(&o.target.IOQueues, "queues", 16, "")
	f.IntVar(&o.target.Controllers, "controllers", 128, "")
	f.IntVar(&o.target.Connections, "connections", 512, "")
	o.inCapsule, o.transfer = 4096, 1<<20
	f.Var(&o.inCapsule, "incapsule", "")
	f.Var(&o.transfer, "transfer", "")
	f.Var(&o.memories, "memory", "")
	f.IntVar(&o.target.Pollers, "pollers", 0, "")
	f.DurationVar(&o.target.Spin, "spin", 0, "")
	f.StringVar(&o.http, "http", "", "")
	f.DurationVar(&o.grace, "grace", defaultGrace, "")
	f.BoolVar(&o.json, "json", false, "")
	f.BoolVar(&o.verbose, "v", false, "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case len(o.addrs) == 0:
		return o, errors.New("need an address to listen on: -a")
	case len(o.namespaces) == 0:
		return o, errors.New("need something to serve: -ns memory:1G, or -ns PATH")
	case o.device != "" && len(o.addrs) > 1:
		return o, errors.New("-d names one device, and there are several addresses")
	case o.target.Pollers < 0:
		return o, fmt.Errorf("-pollers %d: at least 1, or 0", o.target.Pollers)
	case o.grace < 0:
		return o, errors.New("-grace is a time from now")
	}
	// Zero would be what target.Config takes for its defaults.
	for name, n := range map[string]int{
		"depth": o.target.QueueDepth, "queues": o.target.IOQueues, "controllers": o.target.Controllers,
		"connections": o.target.Connections, "transfer": int(o.transfer),
	} {
		if n < 1 {
			return o, fmt.Errorf("-%s %d: at least 1", name, n)
		}
	}
	if err := nvme.CheckNQN(o.nqn); err != nil {
		return o, err
	}
	o.target.MaxTransfer, o.target.QueueMemory, o.target.InCapsule = int(o.transfer), int(o.memories), int(o.inCapsule)
	if o.inCapsule == 0 {
		o.target.InCapsule = -1
	}
	return o, nil
}

func (o *options) addAddress(s string) error {
	if _, _, err := net.SplitHostPort(s); err != nil {
		s = net.JoinHostPort(strings.Trim(s, "[]"), strconv.Itoa(nvme.Port))
	}
	host, port, err := net.SplitHostPort(s)
	if n, e := strconv.Atoi(port); err == nil && (e != nil || n < 1 || n > 65535 || host == "") {
		err = fmt.Errorf("%q is no ADDRESS:PORT", s)
	} else if err == nil && slices.Contains(o.addrs, s) {
		err = fmt.Errorf("%s is given twice", s)
	}
	o.addrs = append(o.addrs, s)
	return err
}

// spec is a namespace to be opened.
type spec struct {
	text, path string
	memory     bytesize.Size
	file       backend.FileConfig
}

func parseSpec(text string) (s spec, err error) {
	words := strings.Split(text, ",")
	s.text, s.path = text, words[0]
	if m, ok := strings.CutPrefix(words[0], "memory:"); ok {
		s.path = ""
		if err := s.memory.Set(m); err != nil {
			return s, err
		}
		if s.memory == 0 {
			return s, errors.New("a memory of no size")
		}
	} else if s.path == "memory" {
		return s, errors.New("memory of what size: did you mean memory:1G? (a file of that name is ./memory)")
	} else if s.path == "" {
		return s, errors.New("a namespace is memory:SIZE or a path")
	}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		n, numErr := strconv.Atoi(value)
		switch {
		case key == "block" && numErr == nil:
			s.file.BlockSize = n
		case key == "size" && s.path != "":
			var v bytesize.Size
			err = v.Set(value)
			s.file.Size = int64(v)
		case w == "readonly" && s.path != "":
			s.file.ReadOnly = true
		case w == "buffered" && s.path != "":
			s.file.Buffered = true
		case key == "workers" && numErr == nil && n > 0 && s.path != "":
			s.file.Workers = n
		default:
			err = fmt.Errorf("%q is no option of %s", w, words[0])
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *spec) open() (backend.Backend, error) {
	if s.path == "" {
		return backend.NewMemory(int64(s.memory), s.file.BlockSize)
	}
	return backend.OpenFile(s.path, s.file)
}
