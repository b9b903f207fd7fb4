package main

import (
	"errors"
	"fmt"
	"io"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// explain prints the plan of one transfer.
func explain(args []string, stdout, stderr io.Writer) int {
	o, w, err := parseExplain(args)
	if err != nil {
		return refuse(err, explainUsage, stdout, stderr)
	}
	if p, ok := sim.LookupProfile(w.device); ok && o.transport == simulated && p.Refusal != "" {
		fmt.Fprintf(stdout, "%s\nrefused: no connection can be made\n  %s\n", w, p.Refusal)
		return exitFailed
	}
	x, err := explanation(o, w)
	var unusable *setupError
	if errors.As(err, &unusable) {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitUsage
	}
	if x.Subject != "" {
		fmt.Fprint(stdout, x)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	return exitOK
}

func parseExplain(args []string) (o options, w work, err error) {
	t := newTarget("bench explain")
	empty := t.fs.Bool("pool-empty", false, "")
	if o, err = t.parse(args); err != nil {
		return o, w, err
	}
	switch {
	case *t.devices == "" || len(o.devices) != 1:
		return o, w, errors.New("explain needs one -device, such as siw")
	case len(o.ops) > 1 || len(o.pieces) > 1:
		return o, w, errors.New("explain takes one -op and one number of -pieces")
	}
	o.poolEmpty = *empty
	if len(o.ops) == 0 {
		o.ops = []string{"read"}
	}
	if len(o.pieces) == 0 {
		o.pieces = []int{64}
	}
	w = o.work()[0]
	if w.bytes < w.pieces {
		return o, w, fmt.Errorf("-bytes %d: less than a byte for each of %d pieces", w.bytes, w.pieces)
	}
	return o, w, nil
}

// explanation explains what a real connection of that device would do: with the
// limits that it was granted.
func explanation(o options, w work) (x rw.Explanation, err error) {
	r, err := openRig(o, w, variant{})
	if err != nil {
		return x, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	limits, regions := r.a.ep.Limits(), r.a.pd.Regions().View()
	pieces := r.a.scattered.pieces
	transfer := rw.Transfer{Op: rw.Read, Local: pieces, Remote: r.remote(w)}
	switch w.op {
	case "expose":
		x, err = rw.ExplainExposure(pieces, mrpool.WriteSink, limits, regions)
	case "write":
		transfer.Op = rw.Write
		fallthrough
	default:
		x, err = rw.Explain(transfer, limits, regions)
	}
	if err != nil || !o.poolEmpty || x.Plan.Strategy != rw.FastReg {
		return x, err
	}
	switch n := x.Plan.Cost.Registrations; {
	case w.op == "expose":
		x.Reason += fmt.Sprintf("; none of the %d that it takes is free: refused at once (mrpool.ErrEmpty)", n)
		x.Phases = nil
	case limits.Caps.Protocol == transport.IWARP:
		x.Reason += fmt.Sprintf("; none of the %d that it takes is free: it waits for them, and holds nothing meanwhile", n)
	default:
		limits.FastMRs = 0
		x, err = rw.Explain(transfer, limits, regions)
		x.Plan.Fallback = true
	}
	return x, err
}

// remote describes memory of the peer's that nothing is going to reach.
func (r *rig) remote(w work) []transport.Remote {
	return []transport.Remote{{Addr: r.b.contiguous.region.Addr(), Len: uint32(w.bytes), Key: 1}}
}
