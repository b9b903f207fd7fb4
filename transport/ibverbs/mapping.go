package ibverbs

import (
	"fmt"

	"rdmarw/transport"
)

// contiguous computes what a registration of one contiguous range of one region
// covers of a mapping, and checks the pieces that it touches.
func contiguous(view transport.RegionView, m transport.Mapping, need transport.Access, limit uint64) (transport.Extent, *transport.RegionEntry, error) {
	if m.Len != 0 {
		limit = min(limit, m.Len)
	}
	ext := transport.Contiguous(m.List, m.From, limit)
	if ext.Len == 0 {
		return ext, nil, fmt.Errorf("map: nothing left of a list of %d pieces at piece %d: %w", len(m.List), m.From.Piece, transport.ErrRange)
	}
	var entry *transport.RegionEntry
	for i := m.From.Piece; i < len(m.List) && (i < ext.Next.Piece || ext.Next.Offset > 0 && i == ext.Next.Piece); i++ {
		p := m.List[i]
		if p.Len == 0 || i == m.From.Piece && m.From.Offset >= p.Len {
			continue // skipped, as by Contiguous
		}
		e, err := view.Check(p, need)
		if err != nil {
			return transport.Extent{Next: m.From}, nil, fmt.Errorf("map: %w", err)
		}
		entry = e
	}
	return ext, entry, nil
}
