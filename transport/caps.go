package transport

// Protocol is the wire protocol of a device.
type Protocol uint8

// Protocols.
const (
	InfiniBand Protocol = iota
	RoCE
	IWARP
)

// String returns the customary spelling.
func (p Protocol) String() string {
	switch p {
	case InfiniBand:
		return "InfiniBand"
	case RoCE:
		return "RoCE"
	case IWARP:
		return "iWARP"
	}
	return "unknown protocol"
}

// WindowKind is the kind of memory windows that a device has.
type WindowKind uint8

// Window kinds. Only type 2 is used: it is bound by a work request and answers
// to one queue pair.
const (
	NoWindows WindowKind = iota
	// Windows2A are tied to the queue pair they were bound on.
	Windows2A
	// Windows2B are tied to the queue pair and its protection domain.
	Windows2B
)

// String returns the specification's name.
func (w WindowKind) String() string {
	switch w {
	case NoWindows:
		return "none"
	case Windows2A:
		return "2A"
	case Windows2B:
		return "2B"
	}
	return "unknown windows"
}

// Invalidation tells what an invalidation does to a registration of some kind
// on some device.
type Invalidation uint8

// Invalidation outcomes.
const (
	// InvNone: the operation is refused. Nothing is lost but the queue pair.
	InvNone Invalidation = iota
	// InvWorks: the key is dead when the operation completes.
	InvWorks
	// InvHarmful: the operation must not be used: it breaks the registration
	// for good, or the machine (rxe in Linux 6.12 crashes when a window that is
	// free already is invalidated; siw kills a user MR for good).
	InvHarmful
)

// String returns "none", "works" or "harmful".
func (i Invalidation) String() string {
	switch i {
	case InvNone:
		return "none"
	case InvWorks:
		return "works"
	case InvHarmful:
		return "harmful"
	}
	return "unknown"
}

// FastRegCaps describes fast registration (FRWR): registration by work
// request. The zero value means the device has none. User-space verbs offer it
// nowhere; the kernel dialects of the simulator do.
type FastRegCaps struct {
	// MaxPages is the largest page list of one registration.
	MaxPages int
	// PageSizes is a mask of page sizes: bit n set means pages of 2^n bytes.
	PageSizes uint64
	// Gaps tells that elements may start and end anywhere (SG_GAPS); without
	// it, all but the first start and the last end lie on page borders.
	Gaps bool
}

// Caps describes what a device can do: as far as possible what it does, not
// what it claims. Counts are per device unless they say otherwise; zero means
// "none" or "not offered" everywhere.
type Caps struct {
	// Device is the device's name, such as "rxe0".
	Device string
	// Protocol is the wire protocol. It decides nothing alone: "iWARP" and "one
	// SGE per READ" are separate facts.
	Protocol Protocol

	// MaxSendSGE is the largest number of SGEs of a request other than a READ.
	MaxSendSGE int
	// MaxRecvSGE is the largest number of SGEs of a receive.
	MaxRecvSGE int
	// MaxSGERead is the largest number of SGEs of a READ: a hard limit. siw
	// truncates longer lists and reports success, so it is checked before each
	// post. Zero is to be read as one.
	MaxSGERead int
	// MaxSGLRead is a hint: READs of more pieces are better registered than
	// scattered directly. Zero: direct is always better. Only mlx5 sets it.
	MaxSGLRead int

	// MaxSendWR and MaxRecvWR are the largest queues of one queue pair, MaxSRQWR
	// is the largest shared receive queue.
	MaxSendWR, MaxRecvWR, MaxSRQWR int
	// MaxCQE is the largest completion queue.
	MaxCQE int
	// MaxInline is the largest inline payload in bytes.
	MaxInline int
	// MaxMsg is the largest message in bytes, of any operation.
	MaxMsg uint64

	// InitiatorDepth is how many READs and atomics one queue pair may have
	// outstanding (ORD), ResponderResources how many it answers at a time (IRD).
	InitiatorDepth, ResponderResources int

	// FastReg describes fast registration.
	FastReg FastRegCaps
	// Windows is the kind of type-2 windows.
	Windows WindowKind
	// MaxMR, MaxWindows are the largest numbers of each; MaxMRSize is in bytes.
	MaxMR, MaxWindows int
	MaxMRSize         uint64

	// ReadSinkNeedsRemoteWrite: the sink of a READ must be registered with
	// RemoteWrite. A measured fact: true for iWARP hardware, false for siw.
	ReadSinkNeedsRemoteWrite bool
	// ReadWithInv: OpReadWithInv works.
	ReadWithInv bool
	// SendWithInv: OpSendWithInv can be posted.
	SendWithInv bool
	// WriteWithImm: OpWriteWithImm and OpSendWithImm can be posted.
	WriteWithImm bool
	// Atomics: OpCompareSwap and OpFetchAdd can be posted.
	Atomics bool
	// AtomicPost: a refused chain leaves nothing posted. Otherwise the requests
	// before the refused one run.
	AtomicPost bool

	// LocalInv and RemoteInv tell, for each kind of registration, what an own
	// OpLocalInv and a peer's SEND_WITH_INV do to it.
	LocalInv, RemoteInv [NumRegistrationKinds]Invalidation
	// MapBlocks tells, for each kind of registration, whether Map and Unmap make
	// calls that may take hundreds of microseconds. True for SyncMR everywhere, and
	// for windows on devices that check an access through a window against the
	// memory region below it instead of the window (rxe in Linux 6.12: check_rkey):
	// there a window is bound over a region of exactly its range, which Map makes.
	MapBlocks [NumRegistrationKinds]bool
	// RemoteReadUnchecked: a peer can READ whatever it has a valid key of, also
	// where only WRITEs were allowed (siw in Linux 6.12: siw_check_sgl_tx is not
	// asked for the right). Old content of a WRITE sink is shown to that peer.
	RemoteReadUnchecked bool
	// CompletionReportsInv: the receive completion of a SEND_WITH_INV carries
	// the key that it invalidated.
	CompletionReportsInv bool
	// GlobalLKey: the device has one lkey for all memory.
	GlobalLKey bool
}

// ReadSGEs returns how many SGEs a READ may have on a queue pair that was
// granted sendSGE SGEs. At least one: devices that report no limit at all
// (hns once did) are taken at the least they can mean.
func (c *Caps) ReadSGEs(sendSGE int) int { return max(1, min(c.MaxSGERead, sendSGE)) }
