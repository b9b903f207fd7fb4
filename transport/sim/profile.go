package sim

import (
	"time"

	"rdmarw/transport"
)

// Profile describes a kind of device in one dialect: what its verbs offer
// (Caps), and how it behaves where devices differ and no capability says so.
// "rxe" and "siw" are what libibverbs gives a user of these devices, and are
// held to the real ones; "-kernel" profiles are what rw.c sees, and carry fast
// registration.
//
// A profile is data. To make a variant, change a copy.
type Profile struct {
	// Name is the profile's name, such as "siw-kernel".
	Name string
	// Refusal, if not empty, tells why no device of the profile can be used here.
	Refusal string
	// Caps is what devices of the profile report (Caps.Device is filled in).
	Caps transport.Caps

	// Kernel: the dialect of the kernel's own users. Otherwise a post is checked as
	// package ibverbs checks it, which refuses what would do harm: READs of too many SGEs
	// (siw would drop all but the first), and posts to a queue pair that is known to be
	// in the error state (siw would never complete them).
	Kernel bool
	// FlushesLate: requests posted in the error state flush. Otherwise they are
	// accepted and never complete (siw), so that a drain marker must be posted
	// before.
	FlushesLate bool
	// LocalInvWaits: LOCAL_INV starts when all earlier requests are complete
	// (rxe). Otherwise it overtakes READs that are outstanding unless fenced.
	LocalInvWaits bool
	// FencedReadFails: a READ with a fence is an error (siw), and refused when it is
	// posted but for the kernel's users.
	FencedReadFails bool
	// NoInlineWithInv: SEND_WITH_INV can't have inline data (siw).
	NoInlineWithInv bool
	// NoEmptySGEs: an empty SGE of a SEND or WRITE may only be the last one. Others are
	// refused, since they crash the machine (siw in Linux 6.12: siw_check_sgl_tx looks up
	// no memory for them, siw_tx_hdt follows the pointer).
	NoEmptySGEs bool
	// OneSTag: an lkey is an STag like any other: a peer that guesses one can use it for
	// what isn't checked (siw: READ and SEND_WITH_INV). Otherwise only that of a READ's
	// sink is known to devices that speak iWARP.
	OneSTag bool
	// DeviceLimits: SGEs and inline data are held to the device's limits and not to
	// those of the queue pair or shared receive queue (siw).
	DeviceLimits bool
	// HiddenRounding: what is granted is what was asked for, also where there is more
	// room (siw).
	HiddenRounding bool
	// RelaxedIRD: the passive side answers as many READs as the active side asks for,
	// whatever it says itself (siw, relaxed_ird_negotiation).
	RelaxedIRD bool
	// ConnectsInCall: Connect finds out whether anybody listens (siw makes its TCP
	// connection then).
	ConnectsInCall bool
	// FreeInv is what the invalidation of something that isn't valid does, by
	// kind. Nothing else than a key that was valid once comes into it: unknown
	// keys and wrong key bytes are always refused.
	FreeInv [transport.NumRegistrationKinds]FreeInv
	// InvAnyByte: invalidation compares the index of the key only (siw).
	InvAnyByte bool
	// InvAnyQP: any queue pair may invalidate any window whose key it knows (rxe).
	InvAnyQP bool
	// UncheckedReads: peers may READ whatever they have a key of, whether it
	// grants that or not (siw_qp_tx.c prepares the response with
	// siw_check_sgl_tx(.., 0)); range and domain count.
	UncheckedReads bool
	// WindowsReachRegion: an access through a window is checked against the
	// region below it, not against the window's own range (rxe, check_rkey).
	WindowsReachRegion bool
	// AcksBadInv: a SEND_WITH_INV whose key is refused succeeds at the sender, and
	// costs the receiver its queue pair (rxe). Otherwise it isn't answered.
	AcksBadInv bool
	// NoEmptyReceives: receives must have memory (siw from user space).
	NoEmptyReceives bool
	// FreeWindowsFirst: destroying a queue pair on which a window is bound hangs
	// for a minute and leaks (rxe in Linux 6.12).
	FreeWindowsFirst bool
	// BadSource, BadSink and BadReceive are the statuses of requests whose own memory is
	// refused (key, range or right): a SEND or WRITE, a READ or atomic, a receive.
	BadSource, BadSink, BadReceive transport.Status
	// OwnErrors is what a request does that fails at its own end, before anything is sent.
	OwnErrors OwnErrors
	// BadRegistration is the status of a FAST_REG that was refused.
	BadRegistration transport.Status
	// LongReceive and LongSend are the statuses, at the receiver and the sender, of
	// a message that is longer than the receive; on iWARP, the first only.
	LongReceive, LongSend transport.Status
	// RefusedRead is the status, at the initiator, of a READ that the peer
	// refused. iWARP has no answer for it but TERMINATE, which flushes.
	RefusedRead transport.Status
	// Segment is how many bytes of an incoming WRITE are checked and placed at a
	// time; zero: all. With segments, a WRITE that runs past the end of a range
	// has changed part of the range when it is refused.
	Segment int
	// QueueSizes is how queue sizes are rounded.
	QueueSizes Rounding
	// SRQSGEs, if not zero, is the largest number of SGEs of a receive of an SRQ, where
	// that is less than Caps.MaxRecvSGE.
	SRQSGEs int
	// LongMessages: a message that is too long is refused when it is run, not when it is
	// posted.
	LongMessages bool
	// ChecksAtomics: an atomic of an address that isn't a multiple of 8, or with less
	// than 8 bytes for the old value, is refused when it is posted (rxe, validate_send_wr).
	ChecksAtomics bool
	// InlineSGEs: the inline area and the SGEs of a request share their memory,
	// so that the larger of the two is granted for both (rxe).
	InlineSGEs bool

	// Cost is the modelled cost of things.
	Cost Cost
}

// OwnErrors is what a request does that fails at its own end.
type OwnErrors uint8

const (
	// OwnErrorsInTurn: it waits until those before it are complete, and completes with
	// its status, as the specifications have it.
	OwnErrorsInTurn OwnErrors = iota
	// OwnErrorsAtOnce: it completes with its status, and all others are flushed, those
	// before it included (siw, siw_qp_sq_process drops the connection).
	OwnErrorsAtOnce
	// OwnErrorsFlush: it is flushed with all others, and its status is lost: rxe_requester
	// moves the queue pair to the error state, and the completer flushes what it finds
	// then (rxe_req.c, rxe_comp.c flush_send_wqe).
	OwnErrorsFlush
)

// FreeInv is what an invalidation does to a registration that isn't valid.
type FreeInv uint8

const (
	// FreeInvOK: nothing, and it succeeds.
	FreeInvOK FreeInv = iota
	// FreeInvRefused: it fails as for an unknown key.
	FreeInvRefused
	// FreeInvCrash: the machine crashes (rxe windows in Linux 6.12: the check
	// refuses only the INVALID state and then follows a nil pointer).
	FreeInvCrash
)

// Rounding is how a device rounds queue sizes up.
type Rounding uint8

const (
	// RoundNone: exactly what was asked for.
	RoundNone Rounding = iota
	// RoundPow2: to a power of two.
	RoundPow2
	// RoundRing: to a power of two less one: a ring with one slot always free.
	RoundRing
)

func (r Rounding) round(n int) int {
	n = max(n, 1)
	size := 1
	switch r {
	case RoundPow2:
		for size < n {
			size *= 2
		}
		return size
	case RoundRing:
		for size < n+1 {
			size *= 2
		}
		return size - 1
	}
	return n
}

// Cost is the modelled cost of things in virtual time. The numbers say which
// of two plans is dearer, and roughly by how much, on hardware of that kind;
// they are models, not measurements. Software devices have costs here as if
// they were run on a fast machine.
type Cost struct {
	// WR is the cost of one work request on the device, SGE of each SGE beyond
	// the first.
	WR, SGE time.Duration
	// Bandwidth is in bytes per second.
	Bandwidth float64
	// Latency is one way through the fabric.
	Latency time.Duration
	// Register is the cost of a synchronous registration with its
	// deregistration, RegisterPage that of each page of it.
	Register, RegisterPage time.Duration
	// Flush is what deregistrations cost beside that, where the device must be told
	// to forget what it has cached; those that follow each other at once share it.
	Flush time.Duration
	// FastReg is the cost of a FAST_REG, a BIND_MW or a LOCAL_INV on the device.
	FastReg time.Duration
}

func (c *Cost) bytes(n uint64) time.Duration {
	return time.Duration(float64(n) / c.Bandwidth * 1e9)
}
