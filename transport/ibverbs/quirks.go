package ibverbs

import "rdmarw/transport"

// driverID is the kernel's number of a driver (enum rdma_driver_id in
// include/uapi/rdma/ib_user_ioctl_verbs.h).
type driverID uint32

const (
	driverUnknown driverID = 0
	driverMLX5    driverID = 1
	driverMLX4    driverID = 2
	driverCXGB4   driverID = 4
	driverBNXT    driverID = 6
	driverIRDMA   driverID = 9
	driverQEDR    driverID = 11
	driverHNS     driverID = 12
	driverRXE     driverID = 14
	driverSIW     driverID = 18
	driverERDMA   driverID = 19
)

var driverNames = map[driverID]string{
	1: "mlx5", 2: "mlx4", 3: "cxgb3", 4: "cxgb4", 5: "mthca", 6: "bnxt_re", 7: "ocrdma", 8: "nes", 9: "irdma",
	10: "vmw_pvrdma", 11: "qedr", 12: "hns", 13: "usnic", 14: "rxe", 15: "hfi1", 16: "qib", 17: "efa", 18: "siw",
	19: "erdma", 20: "mana",
}

// String returns the name of the kernel module, more or less.
func (d driverID) String() string {
	if s, ok := driverNames[d]; ok {
		return s
	}
	return "unknown"
}

// opSet is a set of opcodes: bit n is the opcode n.
type opSet uint32

func ops(list ...transport.Opcode) opSet {
	var s opSet
	for _, op := range list {
		s |= 1 << op
	}
	return s
}

var (
	anyInline  = ops(transport.OpSend, transport.OpSendWithInv, transport.OpSendWithImm, transport.OpWrite, transport.OpWriteWithImm)
	noInvalids = [transport.NumRegistrationKinds]transport.Invalidation{}
)

// invalidations spells a set of outcomes in the order of the kinds. Fast
// registrations don't exist in user space.
func invalidations(mr, window transport.Invalidation) [transport.NumRegistrationKinds]transport.Invalidation {
	set := noInvalids
	set[transport.SyncMR] = mr
	set[transport.Window] = window
	return set
}

// quirk is what is known of a driver and can't be asked for. Flags of the
// device describe what its kernel driver does for kernel users; what the
// provider lets a user post is another matter, known from its source.
type quirk struct {
	// windows: the provider can allocate and bind type-2 windows. The kind is
	// the device's word.
	windows bool
	// local and remote are Caps.LocalInv and Caps.RemoteInv. Windows count only
	// if the device has them.
	local, remote [transport.NumRegistrationKinds]transport.Invalidation
	// sendWithInv, reportsInv: Caps.SendWithInv, CompletionReportsInv.
	sendWithInv, reportsInv bool
	// noImm, noAtomics: no immediate data, no atomics, whatever the device says.
	noImm, noAtomics bool
	// maxSGERead, if not 0, is the largest SGE list of a READ, whatever the
	// device says.
	maxSGERead int
	// inline are the operations that may have inline data; maxInline, if not 0,
	// is how much, whatever a probe says.
	inline    opSet
	maxInline int
	// noEmptySGEs: an empty SGE of a SEND or WRITE may only be the last one. siw's kernel
	// looks up no memory for it (siw_qp_tx.c siw_check_sgl_tx) and then follows the
	// pointer (siw_tx_hdt): any user can crash Linux 6.12 that way, seen.
	noEmptySGEs bool
	// maxMsg, if not 0, is the largest message, whatever the device says.
	maxMsg uint64
	// sinkRemoteWrite: Caps.ReadSinkNeedsRemoteWrite.
	sinkRemoteWrite bool
	// noFence are the operations that must not be fenced.
	noFence opSet
	// windowsReachRegion: an access through a window is checked against the
	// memory region below it, so that a region of exactly the range is needed.
	windowsReachRegion bool
	// readUnchecked: Caps.RemoteReadUnchecked.
	readUnchecked bool
	// noBatch: batch posting (ibv_wr_*) is offered, and wrong.
	noBatch bool
	// unordered: what is posted behind a READ may complete before it; see order.
	unordered bool
	// splices: a request of a page or more that isn't signaled is sent from where its data
	// lies, also after a signaled one behind it has completed (siw_qp_tx.c,
	// siw_prepare_fpdu: "Allow direct sending out of user buffer if WR is non signalled"):
	// TCP has the pages, not the bytes. Whoever uses the memory again changes what the peer
	// gets. So such requests are always signaled; order, which it needs, drops what wasn't
	// asked for.
	splices bool
	// answersEarly: the passive side answers before it listens to its socket (siw_cm.c,
	// siw_accept: siw_send_mpareqrep, then siw_qp_socket_assoc). It doesn't notice what comes
	// in between until more comes: who sends one message and waits may wait for ever, seen.
	// So the active side gives it a moment.
	answersEarly bool
	// onCPUs: there is no hardware: kernel threads do the work, and may wait for the CPU of
	// whoever polls for its end. Who has found nothing gives it to them.
	onCPUs bool
	// keyTaken: one of the keys by which queues are mapped is taken for none.
	keyTaken bool
	// invFlag is what the driver sets in completions in place of IBV_WC_WITH_INV.
	invFlag uint32
	// depthsSwapped: initiator depth and responder resources come in each other's
	// place when a queue pair is queried, and with the answer to a connection
	// request.
	depthsSwapped bool
}

const (
	none    = transport.InvNone
	works   = transport.InvWorks
	harmful = transport.InvHarmful
)

// quirks by driver. Sources: rdma-core 44 providers, Linux 6.12 drivers; "seen"
// is what the tests of this package assert on the device.
var quirks = map[driverID]quirk{
	// Windows as specified, seen. An own LOCAL_INV of a window that the peer has
	// invalidated already dereferences NULL in rxe_invalidate_mw (6.12: the state
	// FREE isn't refused), seen, and nobody can rule the peer out: windows are
	// revoked by closing them. User MRs are refused as the target of either
	// invalidation (rxe_invalidate_mr wants a fast registration), at the price of
	// the receiver's queue pair, seen: the sender's request succeeds. The driver
	// marks completions with the kernel's IB_WC_WITH_INVALIDATE, 1<<2, which is
	// IBV_WC_IP_CSUM_OK to verbs, seen. Inline is RXE_MAX_SGE SGEs' room, seen.
	// An access through a window is checked against the MR below it (check_rkey
	// calls mr_check_range, nothing looks at the window's own range), seen.
	// Batch posting sends a list of SGEs as long as its first one times their number
	// (rdma-core 44, wr_set_sge_list; mended in June 2026), seen. Probe finds out.
	driverRXE: {
		windows: true, local: invalidations(none, harmful), remote: invalidations(none, works), windowsReachRegion: true,
		sendWithInv: true, reportsInv: true, invFlag: 1 << 2, inline: anyInline, maxInline: 512, noBatch: true,
		onCPUs: true,
	},
	// The provider maps SEND, SEND_WITH_INV, WRITE and READ (siw.c
	// map_send_opcode). A READ's further SGEs are dropped in silence
	// (siw_qp_tx.c), seen. SEND_WITH_INV kills a user MR for good, seen, and the
	// completion doesn't tell. Inline works with SEND and WRITE only
	// (siw_activate_tx_from_sq), and a fenced READ is an error there. The response
	// of a READ is checked against the READ, so LOCAL_WRITE is enough for a sink,
	// seen.
	//
	// The right to be READ is not checked at all: siw_qp_tx.c prepares a READ
	// response with siw_check_sgl_tx(.., 0). A peer that knows or guesses the STag of
	// anything registered in its protection domain can read it, seen. The right to
	// be written is checked. Only a protection domain per peer contains that.
	//
	// Completions aren't in the order of posting, seen: see order.
	//
	// A connection's depths: siw_query_qp returns the sizes of its inbound queue as
	// initiator depth; siw_cm_upcall names its own IRD and ORD in an answer, where
	// the CM expects the peer's. A listener's responder resources are raised to what
	// the peer asks for (relaxed_ird_negotiation), seen.
	driverSIW: {
		local: invalidations(none, none), remote: invalidations(harmful, none),
		sendWithInv: true, noImm: true, noAtomics: true, maxSGERead: 1,
		inline: ops(transport.OpSend, transport.OpWrite), maxInline: 80,
		noFence: ops(transport.OpRead), depthsSwapped: true, readUnchecked: true, unordered: true, splices: true, noEmptySGEs: true,
		keyTaken: true, answersEarly: true, onCPUs: true,
		maxMsg: 1<<31 - 1, // siw_check_sgl_tx adds lengths in an int; the port says 2^32 - 1
	},
	driverMLX5: {
		windows: true, local: invalidations(none, works), remote: invalidations(none, works),
		sendWithInv: true, reportsInv: true, inline: anyInline,
	},
	driverMLX4: {
		windows: true, local: invalidations(none, works), remote: invalidations(none, works),
		sendWithInv: true, reportsInv: true, inline: anyInline,
	},
	driverIRDMA: {
		windows: true, local: invalidations(none, works), remote: invalidations(none, works),
		sendWithInv: true, reportsInv: true, inline: anyInline, sinkRemoteWrite: true,
	},
	// T4 and later: one SGE per READ in the work request's format (t4fw_ri_api).
	driverCXGB4: {
		remote:      invalidations(harmful, none),
		sendWithInv: true, noImm: true, noAtomics: true, maxSGERead: 1, inline: anyInline, sinkRemoteWrite: true,
	},
	// The kernel claims 2B windows; the provider has no alloc_mw.
	driverBNXT: {sendWithInv: true, inline: anyInline},
	driverHNS:  {sendWithInv: true, inline: anyInline},
	driverQEDR: {remote: invalidations(harmful, none), sendWithInv: true, inline: anyInline, sinkRemoteWrite: true},
	driverERDMA: {
		remote:      invalidations(harmful, none),
		sendWithInv: true, inline: anyInline, sinkRemoteWrite: true,
	},
}

// quirkOf returns what is known of a driver. For one that isn't in the table:
// plain SENDs, WRITEs and READs, and the careful assumption everywhere else. On
// iWARP a peer's invalidation is taken for harmful, since any STag on the wire is
// a legal target.
func quirkOf(d driverID, p transport.Protocol) quirk {
	q, ok := quirks[d]
	if !ok {
		q = quirk{inline: ops(transport.OpSend, transport.OpWrite), sinkRemoteWrite: true}
		if p == transport.IWARP {
			q.remote = invalidations(harmful, none)
			q.noImm, q.noAtomics = true, true
		}
	}
	if p != transport.IWARP {
		q.sinkRemoteWrite = false // the rule is iWARP's; irdma and qedr speak both
	}
	return q
}

// reported is what a device says of itself, in verbs' terms.
type reported struct {
	maxSGE, maxSGERead, maxQPWR, maxCQE, maxSRQWR int
	maxMR, maxWindows                             int
	respRes, initDepth                            int
	windows                                       transport.WindowKind
	atomics                                       bool
	protocol                                      transport.Protocol
	maxMsg, maxMRSize                             uint64
	inline                                        int // probed
}

// caps makes capabilities of a report and a quirk.
func (q *quirk) caps(name string, r reported) transport.Caps {
	c := transport.Caps{
		Device:     name,
		Protocol:   r.protocol,
		MaxSendSGE: r.maxSGE,
		MaxRecvSGE: r.maxSGE,
		MaxSGERead: min(max(r.maxSGERead, 1), r.maxSGE),
		MaxSendWR:  r.maxQPWR,
		MaxRecvWR:  r.maxQPWR,
		MaxSRQWR:   r.maxSRQWR,
		MaxCQE:     r.maxCQE,
		MaxInline:  r.inline,
		MaxMsg:     r.maxMsg,
		// The CM carries depths in a byte, and 255 means "all" there.
		InitiatorDepth:           min(r.initDepth, 254),
		ResponderResources:       min(r.respRes, 254),
		MaxMR:                    r.maxMR,
		MaxMRSize:                r.maxMRSize,
		ReadSinkNeedsRemoteWrite: q.sinkRemoteWrite,
		SendWithInv:              q.sendWithInv,
		WriteWithImm:             !q.noImm,
		Atomics:                  r.atomics && !q.noAtomics,
		LocalInv:                 q.local,
		RemoteInv:                q.remote,
		CompletionReportsInv:     q.reportsInv,
		RemoteReadUnchecked:      q.readUnchecked,
	}
	c.MapBlocks[transport.SyncMR] = true
	c.MapBlocks[transport.Window] = q.windowsReachRegion
	if q.maxSGERead != 0 {
		c.MaxSGERead = q.maxSGERead
	}
	if q.maxInline != 0 {
		c.MaxInline = q.maxInline
	}
	if q.maxMsg != 0 {
		c.MaxMsg = q.maxMsg
	}
	if q.windows && r.windows != transport.NoWindows && r.maxWindows > 0 {
		c.Windows = r.windows
		c.MaxWindows = r.maxWindows
	} else {
		c.LocalInv[transport.Window] = none
		c.RemoteInv[transport.Window] = none
	}
	return c
}

// sendOps returns the operations that can be posted.
func sendOps(c *transport.Caps) opSet {
	s := ops(transport.OpSend, transport.OpWrite, transport.OpRead)
	if c.SendWithInv {
		s |= ops(transport.OpSendWithInv)
	}
	if c.WriteWithImm {
		s |= ops(transport.OpSendWithImm, transport.OpWriteWithImm)
	}
	if c.Atomics {
		s |= ops(transport.OpCompareSwap, transport.OpFetchAdd)
	}
	if c.Windows != transport.NoWindows {
		s |= ops(transport.OpBindWindow)
		if c.LocalInv[transport.Window] == works {
			s |= ops(transport.OpLocalInv)
		}
	}
	return s
}

// notes say in words what the table has to say of a driver.
func (q *quirk) notes() (notes []string) {
	for _, n := range []struct {
		holds bool
		text  string
	}{
		{q.local[transport.Window] == harmful, "an own LOCAL_INV of a window may crash the kernel: windows are revoked by closing them"},
		{q.remote[transport.SyncMR] == harmful, "a peer's SEND_WITH_INV kills an MR whose key it knows, for good"},
		{q.windowsReachRegion, "a peer's access through a window is checked against the MR below it: windows get an MR of exactly their range"},
		{q.readUnchecked, "the right to READ isn't checked"},
		{q.splices, "unsignaled requests are sent from memory that is said to be free: all are signaled here"},
		{q.unordered, "what is posted behind a READ completes before it: put back in order here"},
		{q.noBatch, "batch posting (ibv_wr_*) is offered, and sends the wrong length of lists of SGEs"},
		{q.invFlag != 0, "completions mark a peer's invalidation by another flag"},
		{q.onCPUs, "kernel threads do a device's work: an empty poll gives them the CPU"},
		{q.noEmptySGEs, "an empty SGE in front of others may crash the kernel: refused"},
		{q.answersEarly, "the passive side may sleep over a first message: connections count as up here 5 ms later"},
		{q.depthsSwapped, "READ depths are reported in each other's place"},
		{q.keyTaken, "a queue whose mapping has a certain key can't be made: a small one is laid over it"},
		{q.noFence != 0, "READs can't be fenced"},
		{q.noImm, "no immediate data"},
		{q.noAtomics, "no atomics"},
		{q.sinkRemoteWrite, "the sink of a READ needs REMOTE_WRITE"},
		{q.maxSGERead != 0, "one SGE for each READ"},
	} {
		if n.holds {
			notes = append(notes, n.text)
		}
	}
	return notes
}
