package sim

import (
	"time"

	"rdmarw/transport"
)

// The numbers of hardware that drivers read from firmware are those of a common
// card, or, where none is known, round ones: maximal queues, messages, inline
// data and tables are of that kind, and no rule of the library depends on them.

// hardwareCost models a 100 Gbit/s card.
var hardwareCost = Cost{
	WR: 150 * time.Nanosecond, SGE: 15 * time.Nanosecond, Bandwidth: 12e9, Latency: 1200 * time.Nanosecond,
	Register: 40 * time.Microsecond, RegisterPage: 120 * time.Nanosecond, FastReg: 300 * time.Nanosecond,
}

// hardware has what RoCE and iWARP cards have in common.
func hardware(name string, protocol transport.Protocol) Profile {
	p := Profile{
		Name: name,
		Caps: transport.Caps{
			Protocol:  protocol,
			MaxSendWR: 1 << 14, MaxRecvWR: 1 << 14, MaxSRQWR: 1 << 14, MaxCQE: 1 << 22,
			MaxInline: 96, MaxMsg: gib,
			MaxMR: 1 << 18, MaxMRSize: 1 << 46,
			SendWithInv: true, CompletionReportsInv: true,
		},
		FlushesLate:     true,
		BadSource:       transport.StatusLocalProtection,
		BadSink:         transport.StatusLocalProtection,
		BadReceive:      transport.StatusLocalProtection,
		BadRegistration: transport.StatusBindWindow,
		RefusedRead:     transport.StatusRemoteAccess,
		LongReceive:     transport.StatusLocalLength,
		LongSend:        transport.StatusRemoteInvalid,
		QueueSizes:      RoundPow2,
		Cost:            hardwareCost,
	}
	if protocol == transport.IWARP {
		p.Caps.ReadSinkNeedsRemoteWrite = true
	} else {
		p.Caps.WriteWithImm = true
		p.Caps.Atomics = true
	}
	return p
}

// withWindows adds type-2 windows that can be invalidated from both sides.
func withWindows(p Profile, kind transport.WindowKind) Profile {
	p.Caps.Windows = kind
	p.Caps.MaxWindows = 1 << 17
	p.Caps.LocalInv[transport.Window] = transport.InvWorks
	p.Caps.RemoteInv[transport.Window] = transport.InvWorks
	return p
}

// sges sets the SGE limits, depths the limits of READs outstanding.
func (p *Profile) sges(send, read int) {
	p.Caps.MaxSendSGE, p.Caps.MaxRecvSGE, p.Caps.MaxSGERead = send, send, read
}

func (p *Profile) depths(initiator, responder int) {
	p.Caps.InitiatorDepth, p.Caps.ResponderResources = initiator, responder
}

// mlx5 is ConnectX-5 and later. A chain is posted by ibv_wr_start and
// ibv_wr_complete there, which roll back as a whole.
func mlx5() Profile {
	p := withWindows(hardware("mlx5", transport.RoCE), transport.Windows2B)
	p.sges(30, 30)
	p.depths(16, 16)
	p.Caps.MaxSendWR, p.Caps.MaxRecvWR = 1<<15, 1<<15
	p.Caps.MaxInline = 512
	p.Caps.MaxSGLRead = 3 // firmware: max_sgl_for_optimized_performance
	p.Caps.AtomicPost = true
	return p
}

// mlx5Kernel registers lists with gaps, by KLM lists.
func mlx5Kernel() Profile {
	p := withFastReg(mlx5(), 1<<16, 0xffffffff_fffff000)
	p.Caps.FastReg.Gaps = true
	return p
}

// mlx4 is ConnectX-3; its firmware decides between windows 2A and 2B.
func mlx4() Profile {
	p := withWindows(hardware("mlx4", transport.RoCE), transport.Windows2A)
	p.sges(32, 30)
	p.depths(128, 16)
	p.LocalInvWaits = true // strong order on LOCAL_INV and BIND
	return p
}

// bnxtRe is Broadcom's; the kernel claims windows that users don't get.
func bnxtRe() Profile {
	p := hardware("bnxt_re", transport.RoCE)
	p.sges(6, 6)
	p.depths(126, 126)
	p.Caps.AtomicPost = true
	return p
}

// hns is HiSilicon's, as it was until 2025: it reported one SGE for READs by
// mistake, so that "one SGE" is no matter of iWARP.
func hns() Profile {
	p := hardware("hns", transport.RoCE)
	p.sges(64, 1)
	p.depths(128, 128)
	p.Caps.AtomicPost = true
	return p
}

// irdmaPages are pages of 4 KiB, 2 MiB and 1 GiB.
const irdmaPages = 1<<12 | 1<<21 | 1<<30

// irdma is Intel's E810.
func irdma(name string, protocol transport.Protocol) Profile {
	p := withWindows(hardware(name, protocol), transport.Windows2B)
	p.sges(13, 13)
	p.depths(255, 127)
	p.Caps.Atomics = false
	return p
}

func irdmaRoCE() Profile       { return irdma("irdma-roce", transport.RoCE) }
func irdmaRoCEKernel() Profile { return withFastReg(irdmaRoCE(), 512, irdmaPages) }

// irdmaIWARP is an iWARP device with more than one SGE per READ.
func irdmaIWARP() Profile       { return irdma("irdma-iwarp", transport.IWARP) }
func irdmaIWARPKernel() Profile { return withFastReg(irdmaIWARP(), 512, irdmaPages) }

// i40iw is Intel's X722, which the same driver serves since Linux 5.14: iWARP with
// three SGEs, and one for READs (irdma/i40iw_hw.h).
func i40iw() Profile {
	p := irdma("i40iw", transport.IWARP)
	p.sges(3, 1)
	p.depths(127, 63)
	return p
}

// cxgb4 is Chelsio's T5 and T6. Its user dialect has no invalidation at all,
// and its queue pairs take no requests that could flush late.
func cxgb4() Profile {
	p := hardware("cxgb4", transport.IWARP)
	p.sges(17, 1)
	p.depths(32, 32)
	p.FlushesLate = false
	p.RefusedRead = transport.StatusFlushed
	p.Caps.RemoteInv[transport.SyncMR] = transport.InvHarmful // any STag is a target
	p.Caps.CompletionReportsInv = false
	return p
}

func cxgb4Kernel() Profile { return withFastReg(cxgb4(), 128, 0xffff000) }
