package host

import "math/bits"

// slots names commands. The lower bits of a CID are a slot, the upper ones count the
// slot's uses: an answer that comes twice, or to a command that never was, isn't taken
// for the answer to the slot's next command.
type slots struct {
	shift uint8
	cids  []uint16 // of the use under way, or else of the last one
	busy  []bool
}

func newSlots(n int) slots {
	return slots{shift: uint8(bits.Len(uint(n - 1))), cids: make([]uint16, n), busy: make([]bool, n)}
}

// begin begins a use of a slot that is idle, and returns its CID.
func (s *slots) begin(i int) uint16 {
	use := s.cids[i]>>s.shift + 1
	cid := use<<s.shift | uint16(i)
	if cid == 0xFFFF { // error logs mean no command by it
		cid = uint16(i)
	}
	s.cids[i], s.busy[i] = cid, true
	return cid
}

// answer ends the use that a CID names, and reports whether there is one.
func (s *slots) answer(cid uint16) (i int, ok bool) {
	i = int(cid & (1<<s.shift - 1))
	if i >= len(s.cids) || !s.busy[i] || s.cids[i] != cid {
		return 0, false
	}
	s.busy[i] = false
	return i, true
}

// cancel ends a use that nobody will answer, and reports whether there was one.
func (s *slots) cancel(i int) bool {
	was := s.busy[i]
	s.busy[i] = false
	return was
}
