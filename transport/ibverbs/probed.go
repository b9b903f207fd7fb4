package ibverbs

import (
	"fmt"

	"rdmarw/transport"
)

// Outcome is what a probe came to.
type Outcome uint8

// Outcomes.
const (
	// NotTried: it isn't offered, or known to do harm.
	NotTried Outcome = iota
	// Works: as verbs specifies it.
	Works
	// Fails: it can't be posted, completes in error, or isn't done as specified.
	Fails
)

// String returns "not tried", "works" or "fails".
func (o Outcome) String() string {
	switch o {
	case NotTried:
		return "not tried"
	case Works:
		return "works"
	case Fails:
		return "fails"
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// MarshalText makes JSON readable.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Probed is what [Probe] found out about a device.
type Probed struct {
	// BindWindow: a type-2 window is bound by a work request, and a WRITE through it
	// arrives.
	BindWindow Outcome `json:"bind_window"`
	// LocalInvWindow: an own LOCAL_INV kills a window that is valid.
	LocalInvWindow Outcome `json:"local_inv_window"`
	// LocalInvMR: one of an ordinary MR does.
	LocalInvMR Outcome `json:"local_inv_mr"`
	// SendWithInvWindow: the peer's SEND_WITH_INV kills a window; ReportsInv: and the
	// receive's completion names the key.
	SendWithInvWindow Outcome `json:"send_with_inv_window"`
	ReportsInv        Outcome `json:"reports_inv"`
	// SendWithInvMR: the peer's SEND_WITH_INV kills an ordinary MR. Nothing brings it back.
	SendWithInvMR Outcome `json:"send_with_inv_mr"`
	// BatchPosting: requests posted by ibv_wr_* are what was asked for, and nothing is
	// posted of a batch with an error.
	BatchPosting Outcome `json:"batch_posting"`
	// InOrder: completions come in the order of posting, also behind a READ.
	InOrder Outcome `json:"in_order"`
}

// merge corrects capabilities, and the quirk they came from, by what was seen. What
// the table knows to do harm stays harmful: no probe can rule it out.
func (p *Probed) merge(c *transport.Caps, q *quirk, batchOffered bool) {
	switch p.BatchPosting {
	case Works:
		c.AtomicPost = batchOffered
	case Fails:
		c.AtomicPost = false
	}
	if p.InOrder == Fails {
		q.unordered = true
	}
	if p.BindWindow == Fails {
		c.Windows, c.MaxWindows = transport.NoWindows, 0
		c.LocalInv[transport.Window], c.RemoteInv[transport.Window] = none, none
		return
	}
	invalidation := func(o Outcome, believed *transport.Invalidation) {
		switch {
		case *believed == harmful:
		case o == Works:
			*believed = works
		case o == Fails:
			*believed = none
		}
	}
	invalidation(p.LocalInvWindow, &c.LocalInv[transport.Window])
	invalidation(p.SendWithInvWindow, &c.RemoteInv[transport.Window])
	if p.SendWithInvMR == Works {
		c.RemoteInv[transport.SyncMR] = harmful
	}
	if p.ReportsInv == Fails {
		c.CompletionReportsInv = false
	}
}
