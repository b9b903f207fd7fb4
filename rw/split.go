package rw

import (
	"fmt"
	"math"

	"rdmarw/transport"
)

// begin finds where a transfer starts in its list.
func begin(list []transport.Piece, offset uint64) (from transport.Cursor, err error) {
	for from.Piece < len(list) && offset >= uint64(list[from.Piece].Len) {
		offset -= uint64(list[from.Piece].Len)
		from.Piece++
	}
	if from.Piece == len(list) && offset > 0 {
		return from, fmt.Errorf("the offset is %d bytes past the end of the local list: %w", offset, transport.ErrRange)
	}
	from.Offset = uint32(offset)
	return from, nil
}

func tooShort(bytes uint64) error {
	return fmt.Errorf("the local list is %d bytes short: %w", bytes, transport.ErrRange)
}

// span finds where a transfer starts in its list and how long it is.
func span(list []transport.Piece, offset, length uint64) (transport.Cursor, uint64, error) {
	from, err := begin(list, offset)
	if err != nil {
		return from, 0, err
	}
	if length == 0 {
		for _, p := range list[from.Piece:] {
			length += uint64(p.Len) // 2^32 pieces of 2^32 bytes: can't overflow
		}
		return from, length - uint64(from.Offset), nil
	}
	left := length
	for i, p := range list[from.Piece:] {
		n := uint64(p.Len)
		if i == 0 {
			n -= uint64(from.Offset)
		}
		if n >= left {
			return from, length, nil
		}
		left -= n
	}
	return from, 0, tooShort(left)
}

// splitter gives out the remote memory of a transfer a request at a time: each ends
// where a remote segment ends, or is as long as a message can be. Since segments are
// shorter than 4 GiB, so are requests.
type splitter struct {
	op     transport.Opcode
	maxMsg uint64

	remote []transport.Remote // not yet begun
	addr   uint64             // the rest of the one begun
	left   uint64
	key    transport.RKey
}

func (s *splitter) begin(t *Transfer, lim *Limits) {
	s.op, s.maxMsg, s.remote = transport.OpWrite, lim.Caps.MaxMsg, t.Remote
	if t.Op == Read {
		s.op = transport.OpRead
	}
	if s.maxMsg == 0 {
		s.maxMsg = math.MaxUint64
	}
}

// next returns how many bytes the next request can have at most. At least need are to
// come.
func (s *splitter) next(need uint64) (uint64, error) {
	if s.left == 0 {
		if err := s.segment(need); err != nil {
			return 0, err
		}
	}
	return min(s.left, s.maxMsg), nil
}

// segment goes on to the next remote segment that isn't empty.
func (s *splitter) segment(need uint64) error {
	for s.left == 0 {
		if len(s.remote) == 0 {
			return fmt.Errorf("the remote ranges end before the local list does (at least %d bytes short): %w", need, transport.ErrRange)
		}
		r := s.remote[0]
		s.remote = s.remote[1:]
		if r.Addr+uint64(r.Len) < r.Addr {
			return fmt.Errorf("remote range %v wraps around: %w", r, transport.ErrRange)
		}
		s.addr, s.left, s.key = r.Addr, uint64(r.Len), r.Key
	}
	return nil
}

// append appends the next request, with so many bytes of what next gave, in
// sges[first:end].
func (s *splitter) append(wrs []transport.WR, bytes uint64, first, end int) []transport.WR {
	wrs = append(wrs, transport.WR{})
	wr := &wrs[len(wrs)-1] // written in place, which is much quicker than copied there
	wr.Op = s.op
	wr.RemoteAddr, wr.RKey = s.addr, s.key
	wr.FirstSGE, wr.NumSGE = uint32(first), uint16(end-first)
	s.addr += bytes
	s.left -= bytes
	return wrs
}
