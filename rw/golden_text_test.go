package rw_test

import (
	"errors"
	"fmt"
	"strings"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// sentinels names the errors that plans are refused with.
var sentinels = []struct {
	err  error
	name string
}{
	{rw.ErrTooLarge, "rw.ErrTooLarge"}, {mrpool.ErrEmpty, "mrpool.ErrEmpty"},
	{transport.ErrInvalid, "ErrInvalid"}, {transport.ErrRegion, "ErrRegion"}, {transport.ErrRange, "ErrRange"},
	{transport.ErrAccess, "ErrAccess"}, {transport.ErrUnsupported, "ErrUnsupported"}, {transport.ErrReadDepth, "ErrReadDepth"},
}

// line formats an outcome on one line: what was asked for, the plan with its cost,
// and the requests as they were posted, each chain after a bar.
func (o *outcome) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s %-11s %-5s %-17s %4d pieces %10d B: ", o.op, o.shape, o.remote, o.under, len(o.local), o.bytes)
	if o.err != nil {
		name := "another error"
		for _, s := range sentinels {
			if errors.Is(o.err, s.err) {
				name = s.name
				break
			}
		}
		return b.String() + "refused: " + name
	}
	c := o.plan.Cost
	if o.waited {
		b.WriteString("waits, then ")
	}
	fmt.Fprintf(&b, "%v wrs=%d reads=%d regs=%d inv=%d", o.plan.Strategy, c.WRs, c.Reads, c.Registrations, c.Invalidations)
	if c.Slots > 0 {
		fmt.Fprintf(&b, " slots=%d copied=%d", c.Slots, c.StagedBytes)
	}
	if o.plan.Fallback {
		b.WriteString(" fallback")
	}
	for _, p := range o.posts {
		b.WriteString(" | " + tokens(p.wrs))
	}
	if o.op == opSource || o.op == opSink {
		fmt.Fprintf(&b, " | keys=%d, revoke: ", len(o.remotes))
		for _, p := range o.revoked {
			b.WriteString(tokens(p.wrs))
		}
		if len(o.revoked) == 0 {
			b.WriteString("by calls")
		}
	}
	return b.String()
}

// tokens abbreviates a chain: what repeats is written once.
func tokens(wrs []transport.WR) string {
	words := make([]string, len(wrs))
	for i, wr := range wrs {
		words[i] = token(&wr)
	}
	var out []string
	for at := 0; at < len(words); {
		period, times := 1, 1
		for p := 1; p <= 4; p++ {
			if p > 1 && !strings.HasPrefix(words[at], "REG") && !strings.HasPrefix(words[at], "INV") {
				break // groups begin with what makes a registration valid
			}
			n := 1
			for at+(n+1)*p <= len(words) && equal(words[at:at+p], words[at+n*p:at+(n+1)*p]) {
				n++
			}
			if n > 1 && n*p > period*times {
				period, times = p, n
			}
		}
		text := strings.Join(words[at:at+period], " ")
		switch {
		case times > 1 && period > 1:
			text = fmt.Sprintf("%d*(%s)", times, text)
		case times > 1:
			text = fmt.Sprintf("%d*%s", times, text)
		}
		out = append(out, text)
		at += period * times
	}
	return strings.Join(out, " ")
}

func equal(a, b []string) bool { return strings.Join(a, " ") == strings.Join(b, " ") }

// token is a request in a word: with the number of SGEs where it isn't one.
func token(wr *transport.WR) string {
	name := map[transport.Opcode]string{
		transport.OpFastReg: "REG", transport.OpBindWindow: "BIND", transport.OpLocalInv: "INV", transport.OpReadWithInv: "READ+INV",
	}[wr.Op]
	if name == "" {
		name = wr.Op.String()
	}
	if wr.NumSGE > 1 {
		name += fmt.Sprintf("/%d", wr.NumSGE)
	}
	if wr.Flags&transport.Fence != 0 {
		name += "(fence)"
	}
	return name
}

// inFull prints every request of an outcome, with what each key covers.
func (o *outcome) inFull(m *memories) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", o.line())
	names := make(map[*registered]string)
	for _, mp := range o.mappings {
		if names[mp.reg] == "" {
			names[mp.reg] = fmt.Sprintf("#%d", len(names))
		}
		fmt.Fprintf(&b, "  map %v %s %v:", mp.reg.Kind(), names[mp.reg], mp.Access)
		for _, s := range mp.stretches(0, mp.ext.Len) {
			fmt.Fprintf(&b, " %s+%d", m.name(s.addr), s.n)
		}
		b.WriteString("\n")
	}
	chain := func(p posted) {
		moves := p.moves
		for i, wr := range p.wrs {
			fmt.Fprintf(&b, "  %3d %-13v", i, wr.Op)
			for r, name := range names {
				if wr.Reg != 0 && r.ID() == wr.Reg {
					b.WriteString(" " + name)
				}
			}
			if wr.NumSGE > 0 {
				fmt.Fprintf(&b, " %#x key %v:", wr.RemoteAddr, wr.RKey)
			}
			for end := wr.RemoteAddr + sgeBytes(p.sges[wr.FirstSGE:][:wr.NumSGE]); wr.NumSGE > 0 && len(moves) > 0; {
				mv := moves[0]
				fmt.Fprintf(&b, " %s+%d", m.name(mv.local), mv.n)
				moves = moves[1:]
				if mv.remote+mv.n == end {
					break
				}
			}
			if wr.Flags&transport.Fence != 0 {
				b.WriteString(" fence")
			}
			if wr.Flags&transport.Signaled != 0 {
				b.WriteString(" signaled")
			}
			b.WriteString("\n")
		}
	}
	for _, p := range o.posts {
		chain(p)
	}
	for i, r := range o.remotes {
		fmt.Fprintf(&b, "  tell the peer: %s+%d under a key of its own (%d of %d)\n", m.name(r.Addr), r.Len, i+1, len(o.remotes))
	}
	for _, p := range o.revoked {
		b.WriteString("  revoke:\n")
		chain(p)
	}
	return b.String()
}

func sgeBytes(sges []transport.SGE) (n uint64) {
	for _, sge := range sges {
		n += uint64(sge.Len)
	}
	return n
}

// name is an address as an offset in one of the regions.
func (m *memories) name(addr uint64) string {
	for _, r := range []struct {
		name   string
		region *transport.Region
	}{{"memory", m.region}, {"read-only", m.readOnly}, {"vast", m.vast}} {
		if addr-r.region.Addr() < r.region.Len() {
			return fmt.Sprintf("%s[%#x]", r.name, addr-r.region.Addr())
		}
	}
	return fmt.Sprintf("staging[%#x]", addr&(1<<20-1))
}
