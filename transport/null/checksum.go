package null

import (
	"encoding/binary"
	"hash/crc64"

	"rdmarw/transport"
)

var polynomial = crc64.MakeTable(crc64.ECMA)

// Checksum is over everything in the requests from the start of the ring to its head:
// of the last lap, or of all since Reset if there was but one. Two who post the same
// have the same checksum. Only names are left out, which are anybody's choice:
// cookies, and which of several registrations was used under which key byte.
//
// It is computed when it is asked for, so that it takes nothing from what is measured.
func (r *Ring) Checksum() uint64 {
	var sum uint64
	var buf [64]byte
	add := func(words ...uint64) {
		b := buf[:0]
		for _, w := range words {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		sum = crc64.Update(sum, polynomial, b)
	}
	for at := 0; at < r.head; {
		h := r.header(at)
		wr := &h.wr
		add(uint64(wr.Op)|uint64(wr.Flags)<<8|uint64(wr.NumSGE)<<16|uint64(wr.Imm)<<32,
			wr.RemoteAddr, wr.CompareAdd, wr.Swap, uint64(wr.RKey)|uint64(wr.FirstSGE)<<32,
			uint64(h.sges)|uint64(h.pages)<<32)
		for _, sge := range r.sges(at, int(h.sges)) {
			add(sge.Addr, uint64(sge.Len)|uint64(anonymous(sge.LKey))<<32)
		}
		for _, page := range r.pages(at, int(h.pages)) {
			add(page)
		}
		at += 1 + (int(h.sges)+sgesPerSlot-1)/sgesPerSlot + (int(h.pages)+pagesPerSlot-1)/pagesPerSlot
	}
	return sum
}

// anonymous is the key of a region itself, and one for all registrations.
func anonymous(key transport.LKey) transport.LKey {
	if key&registrationKey != 0 {
		return registrationKey
	}
	return key
}
