package rw

import (
	"fmt"
	"strings"
)

// String formats the explanation as a few lines of text.
func (x Explanation) String() string {
	var b strings.Builder
	c := x.Plan.Cost
	fmt.Fprintf(&b, "%s\n", x.Subject)
	fmt.Fprintf(&b, "strategy: %v\n  %s\n", x.Plan.Strategy, x.Reason)
	fmt.Fprintf(&b, "cost: %s (%s), %s, %s\n", count(c.WRs, "work request"), count(c.Reads, "READ"),
		count(c.Registrations, "registration"), count(c.Invalidations, "invalidation"))
	fmt.Fprintf(&b, "limits: %s\n", x.Limits)
	for i, phase := range x.Phases {
		if i == 0 {
			b.WriteString("in order:\n")
		}
		fmt.Fprintf(&b, "  %-11s %s\n", phase.During, phase.what())
	}
	for i, alt := range x.Rejected {
		if i == 0 {
			b.WriteString("rejected:\n")
		}
		fmt.Fprintf(&b, "  %-11v %s\n", alt.Strategy, alt.Reason)
	}
	return b.String()
}

func (p Phase) what() string {
	if p.Call != "" {
		return p.Call
	}
	return compact(p.Chain)
}

// The ends of a long chain that are written out.
const (
	chainHead = 6
	chainTail = 3
)

// compact lists requests, leaving out the middle of a long chain.
func compact(chain []Step) string {
	words := make([]string, 0, len(chain))
	for i, s := range chain {
		switch {
		case len(chain) <= chainHead+chainTail+1, i < chainHead, i >= len(chain)-chainTail:
			words = append(words, s.String())
		case i == chainHead:
			words = append(words, fmt.Sprintf("... %d more ...", len(chain)-chainHead-chainTail))
		}
	}
	return strings.Join(words, " ")
}
