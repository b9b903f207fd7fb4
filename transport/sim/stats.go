package sim

import "rdmarw/transport"

// Stats counts what a device did.
type Stats struct {
	// Posted counts accepted requests by opcode.
	Posted [16]uint64
	// BytesPosted is the payload of those: SENDs, WRITEs and READs.
	BytesPosted uint64
	// Receives counts posted receives, Completions those that reached a CQ.
	Receives, Completions uint64
	// Registrations and Deregistrations are synchronous ones, of regions too.
	Registrations, Deregistrations uint64
	// Flushes are those of Cost.Flush.
	Flushes uint64
	// WindowRegions are those of exactly a window's range, where a window alone
	// would let peers reach more.
	WindowRegions uint64
	// FastRegs, Binds, LocalInvs and RemoteInvs count registrations made valid and
	// invalid by requests, own (READ_WITH_INV is one) and, the last, the peer's.
	FastRegs, Binds, LocalInvs, RemoteInvs uint64
	// BytesIn was written to the memory of this device by SENDs, WRITEs and READs;
	// BytesOut was read by peers.
	BytesIn, BytesOut uint64
}

// Count returns how many requests of an opcode were accepted.
func (s *Stats) Count(op transport.Opcode) uint64 { return s.Posted[op&15] }

func (s *Stats) posted(op transport.Opcode, n uint32) {
	s.Posted[op&15]++
	s.BytesPosted += uint64(n)
}

func (s *Stats) unposted(op transport.Opcode, n uint32) {
	s.Posted[op&15]--
	s.BytesPosted -= uint64(n)
}

// Stats returns the counts since the device was made.
func (d *Device) Stats() Stats {
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	return d.stats
}
