package sim

import (
	"time"

	"rdmarw/transport"
)

// fmr is a device of before 2010, as the kernel's users saw it until Linux 5.8
// removed the last of it: InfiniBand with neither requests that register nor
// requests that invalidate, but with "fast memory regions" (ib_map_phys_fmr,
// ib_unmap_fmr; mthca, mlx4). Mapping wrote a few words to the card; unmapping
// took a command that makes the card forget what it has cached, so expensive that
// ib_unmap_fmr took a list, for one such command in all (Cost.Flush).
//
// Here they are synchronous registrations that are cheap to make and dear to
// take back. The kernel's ib_fmr_pool went further and left what was unmapped
// valid until enough of it had gathered. That is not modelled, since the contract
// of transport.Registration rules it out: a key is dead when Unmap returns.
//
// Only contiguous runs are registered, as by all synchronous registrations; the
// real ones took lists of whole pages.
func fmr() Profile {
	p := hardware("fmr", transport.InfiniBand)
	p.sges(30, 30)
	p.depths(4, 4)
	p.Caps.SendWithInv = false
	p.Caps.CompletionReportsInv = false
	p.QueueSizes = RoundPow2
	p.Cost = Cost{
		WR: 300 * time.Nanosecond, SGE: 25 * time.Nanosecond, Bandwidth: 1.8e9, Latency: 2 * time.Microsecond,
		Register: 1500 * time.Nanosecond, RegisterPage: 10 * time.Nanosecond, Flush: 30 * time.Microsecond,
	}
	return p
}

// flushCost lets the time of a flush pass, after a deregistration on devices
// that need one. Deregistrations between which nothing has happened share it:
// they might as well have been one call with a list.
func (d *Device) flushCost() {
	f := d.fabric
	cost := int64(d.profile.Cost.Flush)
	if cost == 0 || d.flushed == f.now && d.flushRan == f.ran {
		return
	}
	f.now += cost
	d.flushed, d.flushRan = f.now, f.ran
	d.stats.Flushes++
	f.timeline.call(d, "flush", cost)
	if f.log != nil {
		f.tracef(d, "flush")
	}
}
