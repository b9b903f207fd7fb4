package sim

import (
	"time"

	"rdmarw/transport"
)

const (
	kib = 1 << 10
	gib = 1 << 30
)

// Profiles returns all profiles that devices can be made of: the software devices
// first, which are held to real ones, then hardware, whose numbers are those of its
// drivers (Linux 5.17, rdma-core of 2026) and whose behaviour is what these let one
// conclude, and a legacy one.
func Profiles() []Profile {
	return []Profile{
		rxe(), rxeKernel(), siw(), siwKernel(),
		mlx5(), mlx5Kernel(), mlx4(), bnxtRe(), hns(), irdmaRoCE(), irdmaRoCEKernel(),
		cxgb4(), cxgb4Kernel(), irdmaIWARP(), irdmaIWARPKernel(),
		i40iw(), fmr(),
	}
}

// RefusedProfiles returns profiles that exist to say why their devices can't be
// used: see Profile.Refusal.
func RefusedProfiles() []Profile { return []Profile{efa()} }

// LookupProfile returns the profile of a name, refused or not, and whether there is
// one.
func LookupProfile(name string) (Profile, bool) {
	for _, p := range append(Profiles(), RefusedProfiles()...) {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// invs lists outcomes by kind of registration.
func invs(mr, fast, window transport.Invalidation) [transport.NumRegistrationKinds]transport.Invalidation {
	return [...]transport.Invalidation{transport.SyncMR: mr, transport.FastMR: fast, transport.Window: window}
}

// softwareCost models a software device.
var softwareCost = Cost{
	WR: 2 * time.Microsecond, SGE: 100 * time.Nanosecond, Bandwidth: 1.2e9, Latency: 15 * time.Microsecond,
	Register: 90 * time.Microsecond, RegisterPage: 250 * time.Nanosecond, FastReg: 3 * time.Microsecond,
}

// rxe is Soft-RoCE, as libibverbs shows it.
func rxe() Profile {
	return Profile{
		Name: "rxe",
		Caps: transport.Caps{
			Protocol:   transport.RoCE,
			MaxSendSGE: 32, MaxRecvSGE: 32, MaxSGERead: 32,
			MaxSendWR: 1 << 20, MaxRecvWR: 1 << 20, MaxSRQWR: 1 << 20, MaxCQE: 1<<15 - 1,
			MaxInline: 512, MaxMsg: 2 * gib,
			InitiatorDepth: 128, ResponderResources: 128,
			Windows: transport.Windows2B,
			MaxMR:   1<<19 - 1, MaxWindows: 1<<19 - 1, MaxMRSize: 1<<64 - 1,
			SendWithInv: true, WriteWithImm: true, Atomics: true,
			// LOCAL_INV of a window works as long as nobody has invalidated it
			// before, which its owner can't know: the peer may just be doing it.
			LocalInv:             invs(transport.InvNone, transport.InvNone, transport.InvHarmful),
			RemoteInv:            invs(transport.InvNone, transport.InvNone, transport.InvWorks),
			CompletionReportsInv: true,
		},
		FlushesLate:        true,
		LocalInvWaits:      true,
		FreeInv:            [...]FreeInv{transport.SyncMR: FreeInvRefused, transport.FastMR: FreeInvOK, transport.Window: FreeInvCrash},
		InvAnyQP:           true,
		WindowsReachRegion: true,
		AcksBadInv:         true,
		LongReceive:        transport.StatusLocalQPOp,
		LongSend:           transport.StatusRemoteOp,
		FreeWindowsFirst:   true,
		BadSource:          transport.StatusLocalQPOp,
		BadSink:            transport.StatusLocalProtection,
		BadReceive:         transport.StatusLocalQPOp,
		OwnErrors:          OwnErrorsFlush,
		ChecksAtomics:      true,
		BadRegistration:    transport.StatusLocalQPOp,
		RefusedRead:        transport.StatusRemoteAccess,
		QueueSizes:         RoundRing,
		SRQSGEs:            27,
		LongMessages:       true,
		InlineSGEs:         true,
		Cost:               softwareCost,
	}
}

// rxeKernel is Soft-RoCE as the kernel's users see it.
func rxeKernel() Profile {
	return withFastReg(rxe(), 512, 0xfffff000)
}

// withFastReg makes the kernel dialect of a profile.
func withFastReg(p Profile, pages int, sizes uint64) Profile {
	p.Name += "-kernel"
	p.Caps.AtomicPost = false // the kernel has no batches that are rolled back
	p.Kernel = true
	p.Caps.FastReg = transport.FastRegCaps{MaxPages: pages, PageSizes: sizes}
	p.Caps.ReadWithInv = p.Caps.Protocol == transport.IWARP
	p.Caps.LocalInv[transport.FastMR] = transport.InvWorks
	p.Caps.RemoteInv[transport.FastMR] = transport.InvWorks
	p.Caps.CompletionReportsInv = true
	return p
}

// siw is Soft-iWARP, as libibverbs shows it.
func siw() Profile {
	return Profile{
		Name: "siw",
		Caps: transport.Caps{
			Protocol:   transport.IWARP,
			MaxSendSGE: 6, MaxRecvSGE: 6, MaxSGERead: 1,
			MaxSendWR: 1 << 15, MaxRecvWR: 1 << 15, MaxSRQWR: 327680, MaxCQE: 3276800,
			MaxInline: 80, MaxMsg: 1<<31 - 1,
			InitiatorDepth: 128, ResponderResources: 128,
			MaxMR: 1024000, MaxMRSize: 1<<64 - 1,
			SendWithInv: true,
			LocalInv:    invs(transport.InvNone, transport.InvNone, transport.InvNone),
			RemoteInv:   invs(transport.InvHarmful, transport.InvNone, transport.InvNone),
		},
		FencedReadFails: true,
		NoInlineWithInv: true,
		NoEmptySGEs:     true,
		OneSTag:         true,
		OwnErrors:       OwnErrorsAtOnce,
		DeviceLimits:    true,
		HiddenRounding:  true,
		RelaxedIRD:      true,
		ConnectsInCall:  true,
		LongMessages:    true,
		InvAnyByte:      true,
		UncheckedReads:  true,
		NoEmptyReceives: true,
		LongReceive:     transport.StatusLocalLength,
		BadSource:       transport.StatusLocalQPOp,
		BadSink:         transport.StatusLocalProtection,
		BadReceive:      transport.StatusGeneral,
		BadRegistration: transport.StatusLocalQPOp,
		RefusedRead:     transport.StatusFlushed,
		Segment:         1440,
		QueueSizes:      RoundPow2,
		Cost:            softwareCost,
	}
}

// siwKernel is Soft-iWARP as the kernel's users see it: with fast registration
// and READ_WITH_INV.
func siwKernel() Profile {
	p := withFastReg(siw(), 256, 1<<12)
	p.NoInlineWithInv = false
	p.NoEmptyReceives = false
	// A post of the kernel's own hands its requests over, and they are flushed
	// (siw_post_send); a user's doorbell brings none along.
	p.FlushesLate = true
	p.Caps.LocalInv[transport.SyncMR] = transport.InvHarmful
	return p
}
