package ibverbs

import "sync/atomic"

// Objects counts what is open.
type Objects struct {
	PDs, CQs, QPs, SRQs int
	// MRs are those of regions in protection domains and of registrations.
	MRs int
	// Windows are type-2 memory windows: the kernel lists all else in "rdma resource",
	// but not these.
	Windows int
	// CMIDs are connections and listeners.
	CMIDs int
}

var inUse struct{ pds, cqs, qps, srqs, mrs, windows, ids atomic.Int64 }

// InUse counts what this process has open through this package, on all devices.
// When everything was closed all of it is zero. It may be called from any
// goroutine.
func InUse() Objects {
	return Objects{
		PDs: int(inUse.pds.Load()), CQs: int(inUse.cqs.Load()), QPs: int(inUse.qps.Load()), SRQs: int(inUse.srqs.Load()),
		MRs: int(inUse.mrs.Load()), Windows: int(inUse.windows.Load()), CMIDs: int(inUse.ids.Load()),
	}
}
