package main

import (
	"fmt"
	"strings"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// variant is a device, and a use of it, that differs from what a row measures. The
// zero value doesn't.
type variant struct {
	// adapt changes what the measured side's device offers; the peer's stays.
	adapt  func(*transport.Caps)
	policy rw.Policy
	// sink makes the measured memory a persistent sink of READs.
	sink bool
}

// alternative is what protocols do that don't choose: another way to do the same
// transfer on the same device.
type alternative struct {
	name    string // in JSON
	heading string
	variant func(w work, caps *transport.Caps) (variant, bool)
}

var alternatives = []alternative{
	{"register_per_io", "register per I/O", registerPerIO},
	{"register_always", "register always", registerAlways},
	{"one_sge", "one SGE", oneSGE},
}

func withoutFastReg(caps *transport.Caps) { caps.FastReg = transport.FastRegCaps{} }

func withoutWindows(caps *transport.Caps) {
	withoutFastReg(caps)
	caps.Windows, caps.MaxWindows = transport.NoWindows, 0
	caps.LocalInv[transport.Window], caps.RemoteInv[transport.Window] = transport.InvNone, transport.InvNone
}

// registerPerIO registers each contiguous run by a call, and deregisters it.
func registerPerIO(w work, _ *transport.Caps) (variant, bool) {
	return variant{adapt: withoutWindows, policy: rw.Policy{ForceRegistration: true}}, true
}

// registerAlways is rw.c with force_mr: by work requests, whatever the operation. What
// is exposed is registered anyhow.
func registerAlways(w work, caps *transport.Caps) (variant, bool) {
	return variant{policy: rw.Policy{ForceRegistration: true}}, w.op != "expose" && caps.FastReg.MaxPages > 0
}

// oneSGE moves each piece by an operation of its own. On iWARP READs take a key that
// lasts for that, which the peer sees. An exposure has a window for each piece.
func oneSGE(w work, caps *transport.Caps) (variant, bool) {
	if w.op == "expose" {
		return variant{adapt: withoutFastReg}, caps.Windows != transport.NoWindows
	}
	v := variant{
		adapt: func(caps *transport.Caps) {
			withoutFastReg(caps)
			caps.MaxSendSGE, caps.MaxSGERead = 1, 1
		},
		sink: keyLasts(w.op, caps),
	}
	if v.sink {
		v.policy.Sink = rw.SinkPersistent
	}
	return v, true
}

// keyLasts reports whether READs without a registration show the peer a key that
// outlives them.
func keyLasts(op string, caps *transport.Caps) bool {
	return op == "read" && caps.Protocol == transport.IWARP
}

// alternativeRow is what an alternative took.
type alternativeRow struct {
	Strategy      string  `json:"strategy"`
	WRs           int     `json:"wrs"`
	Registrations int     `json:"registrations"`
	Invalidations int     `json:"invalidations"`
	CPUNS         int64   `json:"cpu_ns"`
	ModelledUS    float64 `json:"modelled_us"`
	// KeyLasts tells that the peer sees a key that is good for longer than the
	// transfer: what the alternative saves is paid in safety.
	KeyLasts bool `json:"key_lasts"`
}

// alternativeRuns is how many repetitions an alternative has after its warm-up.
const alternativeRuns = 3

// measureAlternatives runs a row's alternatives, as it was run: each with new data,
// and each verified. What a device can't do is nil.
func measureAlternatives(o options, w work, res *row) error {
	profile, _ := sim.LookupProfile(w.device)
	res.Alternatives = make(map[string]*alternativeRow, len(alternatives))
	o.n, o.counted = min(o.n, alternativeRuns), 0
	for _, alt := range alternatives {
		res.Alternatives[alt.name] = nil
		v, possible := alt.variant(w, &profile.Caps)
		if !possible {
			continue
		}
		var r row
		if err := measureTrial(o, w, v, nil, &r); err != nil {
			return fmt.Errorf("%s: %w", alt.heading, err)
		}
		res.Alternatives[alt.name] = &alternativeRow{
			r.Strategy, r.WRs, r.Registrations, r.Invalidations, r.CPUNS, *r.ModelledUS, v.sink,
		}
	}
	return nil
}

// alternativeCells are an alternative's figures beside its row.
func (r *row) alternativeCells() (cells []string) {
	for _, alt := range alternatives {
		a := r.Alternatives[alt.name]
		switch {
		case a == nil:
			cells = append(cells, "–")
		case a.Strategy == r.Strategy && a.WRs == r.WRs && a.Registrations == r.Registrations && !a.KeyLasts:
			cells = append(cells, "=")
		default:
			lasts := ""
			if a.KeyLasts {
				lasts = "*"
			}
			cells = append(cells, fmt.Sprintf("%s%d/%d/%s", lasts, a.WRs, a.Registrations, microseconds(&a.ModelledUS)))
		}
	}
	return cells
}

// microseconds has three digits that count, or all before the point.
func microseconds(us *float64) string {
	switch {
	case us == nil:
		return "–"
	case *us < 10:
		return fmt.Sprintf("%.2f", *us)
	case *us < 100:
		return fmt.Sprintf("%.1f", *us)
	}
	return fmt.Sprintf("%.0f", *us)
}

// legend explains the columns that don't explain themselves.
var legend = strings.TrimLeft(`
modelled µs: virtual time of the simulator's cost model until the transfer is complete, for expose with the peer's WRITE. Not a measurement.
register per I/O, register always, one SGE: WRs/registrations/modelled µs of the same transfer on the same device, run and verified, if it
  is done by a registration by call for each contiguous run; by a fast registration (Linux: force_mr); by an operation, or a window, for each piece.
  – the device has no such way   = it is what the row does   * the peer sees a key that lives longer than the transfer
`, "\n")
