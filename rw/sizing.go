package rw

import (
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// Workload describes the most that an endpoint shall have under way at a time.
// Counts of zero mean none.
type Workload struct {
	// Reads and Writes are numbers of transfers.
	Reads, Writes int
	// Bytes is the length of the largest transfer or exposure, Pieces that of the
	// longest local list (zero: 1), Remotes that of the longest list of remote
	// ranges (zero: 1).
	Bytes           uint64
	Pieces, Remotes int
	// Aligned tells that the pieces of a list but for its first start and its last
	// end lie on page borders, so that one fast registration holds many of them.
	Aligned bool
	// Sends and Recvs are numbers of messages, Exposures that of exposures.
	Sends, Recvs, Exposures int
}

// Sizes are what to ask for before a connection is made, so that nothing of a
// workload has to wait for anything but READ depth.
type Sizes struct {
	// MaxSendWR and MaxRecvWR are for EndpointConfig. They are cut to what the
	// device has: more has to wait then.
	MaxSendWR, MaxRecvWR int
	// CQEntries is what the endpoint adds to its poller's completion queue. Devices
	// grant more than they are asked for, so it is twice the queues.
	CQEntries int
	// ReadDepth is for ConnParams.InitiatorDepth, cut to what the device has.
	ReadDepth int
	// FastMRs, SyncMRs and Windows are what the endpoint adds to its pool.
	FastMRs, SyncMRs, Windows int
}

// Queues are the queue sizes to ask for, for EndpointConfig.
func (s Sizes) Queues() transport.QueueCaps {
	return transport.QueueCaps{MaxSendWR: s.MaxSendWR, MaxRecvWR: s.MaxRecvWR}
}

// Pool configures a pool for one endpoint. A pool that more of them share needs the counts of
// all.
func (s Sizes) Pool() mrpool.Config {
	return mrpool.Config{FastMRs: s.FastMRs, SyncMRs: s.SyncMRs, Windows: s.Windows}
}

// Size computes the sizes for a workload on a device. sendSGE is the number of SGEs
// that will be asked for; zero: EndpointConfig's default. A transfer that could
// never be posted is an error that matches [ErrTooLarge].
//
// The kernel's estimates (rdma_rw_mr_factor, rdma_rw_max_send_wr) take READs and
// WRITEs for equal, and entries for pages; these are upper bounds for any lists
// within the workload.
func Size(w Workload, caps *transport.Caps, policy Policy, sendSGE int) (Sizes, error) {
	const most = 1 << 24 // more is a slip of the pen, and would overflow
	for _, n := range []int{w.Reads, w.Writes, w.Pieces, w.Remotes, w.Sends, w.Recvs, w.Exposures} {
		if n < 0 || n > most {
			return Sizes{}, fmt.Errorf("size: a count of %d, may be 0 to %d: %w", n, most, transport.ErrInvalid)
		}
	}
	if w.Bytes > 1<<40 {
		return Sizes{}, fmt.Errorf("size: transfers of %d bytes: %w", w.Bytes, transport.ErrInvalid)
	}
	if sendSGE == 0 {
		sendSGE = min(16, caps.MaxSendSGE)
	}
	lim := Limits{Caps: caps, SendSGE: sendSGE, Policy: policy, FastMRs: 1, FastPages: min(256, caps.FastReg.MaxPages), PageShift: 12}
	w.Pieces, w.Remotes = max(1, w.Pieces), max(1, w.Remotes)
	read, write := w.worst(Read, &lim), w.worst(Write, &lim)
	var s Sizes
	s.MaxSendWR = 1 + w.Reads*read.WRs + w.Writes*write.WRs + w.Sends // 1 for draining
	s.MaxRecvWR = w.Recvs
	s.ReadDepth = min(w.Reads*read.Reads, caps.InitiatorDepth)
	regs := w.Reads*read.Registrations + w.Writes*write.Registrations

	kind := lim.exposureKinds()[0]
	n := w.exposureKeys(kind, &lim)
	if kind != transport.SyncMR {
		s.MaxSendWR += w.Exposures * n * 3 // made valid, perhaps invalidated first, made invalid
	}
	switch kind {
	case transport.FastMR:
		s.FastMRs = w.Exposures * n
	case transport.Window:
		s.Windows = w.Exposures * n
	default:
		s.SyncMRs = w.Exposures * n
	}
	if caps.FastReg.MaxPages > 0 {
		s.FastMRs += regs
	} else {
		s.SyncMRs += regs
	}

	largest := 0
	if w.Reads > 0 {
		largest = read.WRs
	}
	if w.Writes > 0 {
		largest = max(largest, write.WRs)
	}
	if largest+1 > caps.MaxSendWR && !policy.FeedReads {
		return s, fmt.Errorf("a transfer of %d bytes in %d pieces and %d remote ranges takes up to %d work requests, a send queue holds %d: %w",
			w.Bytes, w.Pieces, w.Remotes, largest, caps.MaxSendWR, ErrTooLarge)
	}
	s.MaxSendWR = max(2, min(s.MaxSendWR, caps.MaxSendWR))
	s.MaxRecvWR = max(1, min(s.MaxRecvWR, caps.MaxRecvWR))
	s.CQEntries = min(2*(s.MaxSendWR+s.MaxRecvWR), caps.MaxCQE)
	return s, nil
}

// worst is the most that one transfer of the workload can cost.
func (w *Workload) worst(op Op, lim *Limits) Cost {
	exposed := op == Read && lim.Caps.Protocol == transport.IWARP
	strict := exposed && (lim.Policy.Sink == SinkStrict || lim.Policy.Sink == SinkStaging) || lim.Policy.ForceRegistration
	hinted := op == Read && !exposed && lim.registerAbove() > 0
	c := w.direct(op, lim)
	if strict {
		c = Cost{}
	}
	if strict || hinted {
		r := w.registered(op, lim)
		c = Cost{WRs: max(c.WRs, r.WRs), Reads: max(c.Reads, r.Reads), Registrations: r.Registrations}
	}
	return c
}

// messages is in how many more requests the largest message can cut a transfer.
func (w *Workload) messages(lim *Limits) int {
	if lim.Caps.MaxMsg == 0 || w.Bytes == 0 {
		return 0
	}
	return int((w.Bytes - 1) / lim.Caps.MaxMsg)
}

// direct: a request ends with its remote range, with its SGEs, or with the largest
// message. A range or message that ends inside a piece makes one more SGE.
func (w *Workload) direct(op Op, lim *Limits) Cost {
	sges := max(1, lim.SendSGE)
	if op == Read {
		sges = lim.Caps.ReadSGEs(lim.SendSGE)
	}
	cuts := w.Remotes + w.messages(lim)
	c := Cost{WRs: cuts + (w.Pieces+cuts-1)/sges}
	if cuts == 1 {
		c.WRs = 1 + (w.Pieces-1)/sges
	}
	if op == Read {
		c.Reads = c.WRs
	}
	return c
}

// registered: a request ends with its remote range, its registration, or the
// largest message.
func (w *Workload) registered(op Op, lim *Limits) Cost {
	fast := lim.Caps.FastReg.MaxPages > 0
	kind := transport.SyncMR
	if fast {
		kind = transport.FastMR
	}
	regs := w.exposureKeys(kind, lim)
	moves := regs + w.Remotes - 1 + w.messages(lim)
	c := Cost{WRs: moves, Registrations: regs}
	if op == Read {
		c.Reads = moves
	}
	if fast {
		c.WRs += 2 * regs // registered, and invalidated before or after
	}
	return c
}

// exposureKeys is how many registrations of a kind the longest list can take.
func (w *Workload) exposureKeys(kind transport.RegistrationKind, lim *Limits) int {
	if kind != transport.FastMR {
		return w.Pieces + int(w.Bytes/lim.mrSize())
	}
	fast := &lim.Caps.FastReg
	page := uint64(1) << lim.PageShift
	elements := w.Bytes/page + 2 // the first and the last may be parts of pages
	switch {
	case fast.Gaps:
		elements = uint64(w.Pieces)
	case !w.Aligned:
		// At worst a registration for each piece, and for each page list that a piece
		// fills.
		return w.Pieces + int(elements)/lim.FastPages
	}
	return int((elements-1)/uint64(lim.FastPages)) + 1
}
