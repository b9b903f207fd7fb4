package rw

import (
	"fmt"
	"math"

	"rdmarw/transport"
)

// need is what a transfer's regions must grant.
func (t *Transfer) need() transport.Access {
	if t.Op == Read {
		return transport.LocalWrite
	}
	return 0
}

// The list that fastReg, syncReg and staged plan for is checked already, and p.Bytes
// is known.

// fastReg plans a transfer over memory that the chain itself registers. On iWARP
// a READ's sink is invalidated before it is done:
//
//	REG0 READ0.. REG1 READ1.. with the last READ of each being READ_WITH_INV
//	REG0 READ0.. REG1 READ1.. INV0(fence) INV1.. where there is none
//
// Never an invalidation between READs, where its fence would make every READ wait
// for the one before; never a fence on a READ, which siw refuses. Elsewhere no peer
// sees the key, and the registration stays valid until its next use:
//
//	[INV] REG0 OP0.. [INV] REG1 OP1..
func (p *plan) fastReg(t *Transfer, from transport.Cursor, lim *Limits) error {
	p.clear()
	p.Strategy = FastReg
	if lim.FastMRs == 0 {
		return fmt.Errorf("%v on %s: the memory is to be registered, but the pool was made without fast registrations: %w",
			t.Op, lim.Caps.Device, ErrTooLarge)
	}
	if err := p.register(t, from, lim); err != nil {
		return err
	}
	regs := len(p.segs)
	p.Cost = Cost{WRs: regs + len(p.wrs), Registrations: regs}
	p.lazy = true
	if t.Op == Read {
		p.Cost.Reads = len(p.wrs)
		p.lazy = lim.Caps.Protocol != transport.IWARP
	}
	switch {
	case p.lazy:
	case lim.Caps.ReadWithInv:
		last := -1
		for _, seg := range p.segs {
			last += seg.wrs
			p.wrs[last].Op = transport.OpReadWithInv
		}
	default:
		p.Cost.WRs += regs
		p.Cost.Invalidations = regs
	}
	if regs > lim.FastMRs {
		return fmt.Errorf("%v of %d bytes takes %d registrations, the pool has %d: %w", t.Op, p.Bytes, regs, lim.FastMRs, ErrTooLarge)
	}
	return nil
}

// syncReg plans a transfer over memory that is registered by calls, each
// contiguous run by itself, for just this transfer.
func (p *plan) syncReg(t *Transfer, from transport.Cursor, lim *Limits) error {
	p.clear()
	p.Strategy = SyncReg
	if err := p.register(t, from, lim); err != nil {
		return err
	}
	p.Cost = Cost{WRs: len(p.wrs), Registrations: len(p.segs)}
	if t.Op == Read {
		p.Cost.Reads = len(p.wrs)
	}
	if len(p.segs) > lim.SyncMRs {
		return fmt.Errorf("%v of %d bytes in %d contiguous runs takes as many synchronous registrations, the pool has %d: %w",
			t.Op, p.Bytes, len(p.segs), lim.SyncMRs, ErrTooLarge)
	}
	return nil
}

// staged plans a READ that lands in staging memory, a slot for each segment.
func (p *plan) staged(t *Transfer, from transport.Cursor, lim *Limits, regions transport.RegionView) error {
	p.clear()
	p.Strategy = Staged
	slots := (p.Bytes-1)/uint64(max(1, lim.StagingSlot)) + 1
	if slots > uint64(lim.StagingSlots) {
		return fmt.Errorf("READ of %d bytes is larger than the staging memory (%d slots of %d bytes): %w",
			p.Bytes, lim.StagingSlots, lim.StagingSlot, ErrTooLarge)
	}
	if err := checkVisible(t, from, p.Bytes, regions); err != nil {
		return err
	}
	if err := p.register(t, from, lim); err != nil {
		return err
	}
	p.Cost = Cost{WRs: len(p.wrs), Reads: len(p.wrs), Slots: len(p.segs), StagedBytes: p.Bytes}
	return nil
}

// checkVisible refuses to stage for memory that the CPU can't write to.
func checkVisible(t *Transfer, from transport.Cursor, n uint64, regions transport.RegionView) error {
	n += uint64(from.Offset)
	for _, piece := range t.Local[from.Piece:] {
		if e := regions.Lookup(piece.Region); piece.Len > 0 && e.Region.Bytes() == nil {
			return fmt.Errorf("piece %v: memory that the CPU can't see can't be staged: %w", piece, transport.ErrUnsupported)
		}
		if n <= uint64(piece.Len) {
			return nil
		}
		n -= uint64(piece.Len)
	}
	return nil
}

func (lim *Limits) mrSize() uint64 {
	if lim.Caps.MaxMRSize == 0 {
		return math.MaxUint64
	}
	return lim.Caps.MaxMRSize
}

// register cuts the local list into segments of one registration (or staging slot)
// each, and the transfer with it.
func (p *plan) register(t *Transfer, from transport.Cursor, lim *Limits) error {
	var s splitter
	s.begin(t, lim)
	for left := p.Bytes; left > 0; {
		covered, next := p.cover(t, from, left, lim)
		if covered == 0 {
			return fmt.Errorf("a registration of this device can't hold the byte at piece %d: %w", from.Piece, transport.ErrUnsupported)
		}
		before := len(p.wrs)
		for at := uint64(0); at < covered; {
			n, err := s.next(covered - at)
			if err != nil {
				return err
			}
			n = min(n, covered-at)
			p.wrs = s.append(p.wrs, n, len(p.sges), len(p.sges)+1)
			p.sges = append(p.sges, transport.SGE{Addr: at, Len: uint32(n)})
			at += n
		}
		p.segs = append(p.segs, segment{from: from, len: covered, wrs: len(p.wrs) - before})
		from = next
		left -= covered
	}
	return nil
}

// cover tells how many of the bytes left one registration, or staging slot, covers from a
// position on, and where the next goes on.
func (p *plan) cover(t *Transfer, from transport.Cursor, left uint64, lim *Limits) (n uint64, next transport.Cursor) {
	var ext transport.Extent
	switch {
	case p.paged && p.Strategy == FastReg:
		pieces := min(len(t.Local)-from.Piece, lim.FastPages)
		return uint64(pieces) << lim.PageShift, transport.Cursor{Piece: from.Piece + pieces}
	case p.Strategy == FastReg:
		ext = transport.Coverage(t.Local, from, min(left, lim.mrSize()), lim.PageShift, lim.FastPages, lim.Caps.FastReg.Gaps)
	case p.Strategy == SyncReg:
		ext = transport.Contiguous(t.Local, from, min(left, lim.mrSize()))
	default:
		ext.Len = min(left, uint64(lim.StagingSlot))
	}
	return ext.Len, ext.Next
}
