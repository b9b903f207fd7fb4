package mrpool

import "rdmarw/transport"

// footprint tells whose memory a registration covers, as far as can be told at once: it is
// taken with each mapping.
type footprint struct {
	region  transport.RegionID
	several bool // pieces, which may be of other regions, too
}

// footprintOf is that of a list from one position to another.
func footprintOf(list []transport.Piece, from, to transport.Cursor) footprint {
	last := to.Piece
	if to.Offset == 0 {
		last--
	}
	return footprint{region: list[from.Piece].Region, several: last > from.Piece}
}

// mayHold reports whether it may be memory of r.
func (f footprint) mayHold(r *transport.Region) bool { return f.several || f.region == r.ID() }

// Forget readies a region for transport.PD.RemoveRegion, which fails with transport.ErrBusy
// while a registration covers some of it: those that are free, and valid until their next
// use (see [MR.Put]), are replaced by new ones, where they cover several pieces also those of
// other regions; and so is what waits for [Pool.Repair].
// Nothing may use the region any more.
//
// It may block. A registration that somebody has just taken for other memory covers the
// region until its next use is posted: RemoveRegion may fail until then, and both may be
// called again. The error is that of Repair: there may be less in the pool then, but nothing
// that could be taken away from the device covers the region.
func (p *Pool) Forget(r *transport.Region) error {
	p.mu.Lock()
	s := &p.kinds[transport.FastMR]
	for range s.free.n {
		m := s.free.popFront()
		if m.stale && m.covers.mayHold(r) {
			m.state = lost
			s.broken = append(s.broken, m)
		} else {
			s.free.pushBack(m)
		}
	}
	p.mu.Unlock()
	return p.Repair()
}
