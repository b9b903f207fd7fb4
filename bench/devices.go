package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
)

const devicesUsage = `usage: bench devices [-device NAMES] [-probe=false] [-json]

Shows the RDMA devices of this machine: what they are, what they can do as far as is known, what is known of their drivers and taken care
of, and what a probe finds that they really do. Capabilities and the probe need a build with -tags ibverbs.

  -device NAMES  only these
  -probe=false   don't probe. A probe connects the device to itself and posts a few requests; it does nothing known to do harm
  -json          one JSON object a line, with the counters of the ports
`

// deviceReport is what is known of a device. Its JSON is an interface: names
// don't change.
type deviceReport struct {
	Name     string                 `json:"name"`
	Driver   string                 `json:"driver"`
	Protocol string                 `json:"protocol"`
	NetDevs  []string               `json:"net_devices"`
	Addrs    []string               `json:"addresses"`
	CharDevs []string               `json:"character_devices"`
	Quirks   []string               `json:"quirks"`
	Caps     *transport.Caps        `json:"caps,omitempty"`
	Probed   *ibverbs.Probed        `json:"probed,omitempty"`
	Counters []ibverbs.PortCounters `json:"counters"`
	// Error tells why something is missing.
	Error string `json:"error,omitempty"`

	text string // caps in lines
}

// showDevices prints what is known of the devices.
func showDevices(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("bench devices", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	names := fs.String("device", "", "")
	probe := fs.Bool("probe", true, "")
	asJSON := fs.Bool("json", false, "")
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if err != nil {
		return refuse(err, devicesUsage, stdout, stderr)
	}
	infos, err := ibverbs.Devices()
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	asked := list(*names)
	for _, name := range asked {
		if !slices.ContainsFunc(infos, func(i ibverbs.Info) bool { return i.Name == name }) {
			return refuse(fmt.Errorf("-device %q: no such device", name), devicesUsage, stdout, stderr)
		}
	}
	if len(infos) == 0 && !*asJSON {
		fmt.Fprintln(stdout, noDevice())
	}
	status := exitOK
	lines := json.NewEncoder(stdout)
	for _, i := range infos {
		if len(asked) > 0 && !slices.Contains(asked, i.Name) {
			continue
		}
		r := report(i, *probe)
		if r.Error != "" {
			status = exitFailed
		}
		if !*asJSON {
			r.write(stdout)
		} else if err := lines.Encode(r); err != nil {
			return exitFailed
		}
	}
	return status
}

// noDevice says where there is none, and what would do without.
func noDevice() string {
	text := "no RDMA device: the kernel lists none in this network namespace (rdma link, /sys/class/infiniband); bench -transport sim needs none"
	if _, err := ibverbs.Open("any"); errors.Is(err, transport.ErrUnsupported) { // this build opens none at all
		text += " (built without -tags ibverbs: go build -tags ibverbs ./bench)"
	}
	return text
}

func report(i ibverbs.Info, probe bool) deviceReport {
	r := deviceReport{
		Name: i.Name, Driver: i.Driver, Protocol: i.Protocol.String(), NetDevs: i.NetDevs, CharDevs: i.CharDevs, Quirks: i.Quirks,
	}
	for _, a := range i.Addrs {
		r.Addrs = append(r.Addrs, a.String())
	}
	fail := func(err error) { r.Error = strings.TrimPrefix(r.Error+"; "+err.Error(), "; ") }
	var err error
	if r.Counters, err = ibverbs.Counters(i.Name); err != nil {
		fail(err)
	}
	if probe {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		p, err := ibverbs.Probe(ctx, i.Name)
		if err != nil {
			fail(err)
		} else {
			r.Probed = &p
		}
	}
	dev, err := ibverbs.Open(i.Name) // after the probe, and so corrected by it
	if err != nil {
		if r.Error == "" { // else it is the same
			fail(err)
		}
		return r
	}
	defer dev.Close()
	caps := *dev.Caps()
	r.Caps = &caps
	r.text = fmt.Sprint(dev)
	return r
}

func (r *deviceReport) write(w io.Writer) {
	if r.text != "" {
		fmt.Fprintln(w, r.text)
	} else {
		fmt.Fprintf(w, "%s (%s, driver %s, on %s)\n", r.Name, r.Protocol, r.Driver, strings.Join(append(r.NetDevs, r.Addrs...), " "))
	}
	for n, q := range r.Quirks {
		fmt.Fprintf(w, "  %-9s %s\n", label("quirks:", n), q)
	}
	if p := r.Probed; p != nil {
		for n, line := range []string{
			fmt.Sprintf("window: BIND_MW %v, own LOCAL_INV %v, peer's SEND_WITH_INV %v and reported: %v",
				p.BindWindow, p.LocalInvWindow, p.SendWithInvWindow, p.ReportsInv),
			fmt.Sprintf("MR: own LOCAL_INV %v, peer's SEND_WITH_INV %v", p.LocalInvMR, p.SendWithInvMR),
			fmt.Sprintf("batch posting %v, completions in order %v", p.BatchPosting, p.InOrder),
		} {
			fmt.Fprintf(w, "  %-9s %s\n", label("probed:", n), line)
		}
	}
	for _, p := range r.Counters {
		fmt.Fprintf(w, "  counters: port %d has %d\n", p.Port, len(p.Counters))
	}
	if r.Error != "" {
		fmt.Fprintf(w, "  error:    %s\n", r.Error)
	}
}

func label(s string, n int) string {
	if n > 0 {
		return ""
	}
	return s
}
