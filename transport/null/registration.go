package null

import (
	"fmt"
	"math/bits"

	"rdmarw/transport"
)

// registration is of any kind. As a driver's does, it holds the page list that the
// next FAST_REG hands to the device.
type registration struct {
	caps *transport.Caps
	kind transport.RegistrationKind
	id   transport.RegistrationID

	// What was mapped last.
	iova, length uint64
	access       transport.Access
	pages        []uint64
	used         int // of pages
}

func (r *registration) ID() transport.RegistrationID     { return r.id }
func (r *registration) Kind() transport.RegistrationKind { return r.kind }

// Map fills the page list.
func (r *registration) Map(m transport.Mapping) (ext transport.Extent, err error) {
	limit := m.Len
	if r.caps.MaxMRSize != 0 && (limit == 0 || limit > r.caps.MaxMRSize) {
		limit = r.caps.MaxMRSize
	}
	if r.kind != transport.FastMR {
		ext = transport.Contiguous(m.List, m.From, limit)
	} else {
		shift := m.PageShift
		if shift == 0 {
			shift = uint8(bits.TrailingZeros64(r.caps.FastReg.PageSizes))
		}
		ext = transport.PageList(r.pages, m.List, m.From, limit, shift)
	}
	if ext.Len == 0 {
		return ext, fmt.Errorf("map: nothing is left of the list: %w", transport.ErrRange)
	}
	r.iova, r.length, r.used, r.access = ext.IOVA, ext.Len, ext.Pages, m.Access
	return ext, nil
}

func (r *registration) Unmap() error   { return nil }
func (r *registration) KeyByte() uint8 { return 0 }

func (r *registration) LKey(keyByte uint8) transport.LKey {
	if r.kind == transport.Window {
		return 0
	}
	return registrationKey | transport.LKey(r.id)<<8 | transport.LKey(keyByte)
}

func (r *registration) RKey(keyByte uint8) transport.RKey {
	return transport.RKey(registrationKey) | transport.RKey(r.id)<<8 | transport.RKey(keyByte)
}

func (r *registration) AppendValid(wrs []transport.WR, keyByte uint8) []transport.WR {
	switch r.kind {
	case transport.FastMR:
		return r.append(wrs, transport.OpFastReg, keyByte)
	case transport.Window:
		return r.append(wrs, transport.OpBindWindow, keyByte)
	}
	return wrs
}

func (r *registration) AppendInvalid(wrs []transport.WR, keyByte uint8) []transport.WR {
	if r.kind == transport.SyncMR {
		return wrs
	}
	return r.append(wrs, transport.OpLocalInv, keyByte)
}

func (r *registration) append(wrs []transport.WR, op transport.Opcode, keyByte uint8) []transport.WR {
	wrs = append(wrs, transport.WR{})
	wr := &wrs[len(wrs)-1]
	wr.Op, wr.Reg, wr.KeyByte = op, r.id, keyByte
	return wrs
}

func (r *registration) Close() error { return nil }
