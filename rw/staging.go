package rw

import (
	"fmt"
	"sync"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// Staging is memory that READs land in before they are copied to where they
// belong: slots of one size, under one key that lives as long as the Staging. It
// may be shared by endpoints of one protection domain; they wait in order for free
// slots. A READ of n bytes takes n/slot slots, rounded up.
type Staging struct {
	mr     *mrpool.MR
	region *transport.Region
	local  mrpool.Local
	slot   int
	slots  int

	mu      sync.Mutex
	free    []int32
	waiting []func()
	closed  bool
}

// NewStaging registers a whole region as the sink of READs and cuts it into slots
// of the given size in bytes. It takes a synchronous registration of the pool,
// and may block. The region stays the caller's, and must not be used for anything
// else before Close.
func NewStaging(pool *mrpool.Pool, region *transport.Region, slot int) (*Staging, error) {
	if slot <= 0 || uint64(slot) > region.Len() || region.Len() > 1<<32-1 {
		return nil, fmt.Errorf("staging: slots of %d bytes in a region of %d: %w", slot, region.Len(), transport.ErrInvalid)
	}
	if region.Bytes() == nil {
		return nil, fmt.Errorf("staging: memory that the CPU can't see: %w", transport.ErrUnsupported)
	}
	var one [1]*mrpool.MR
	if err := pool.Take(transport.SyncMR, one[:], "staging"); err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	one[0].Keep()
	list := [1]transport.Piece{region.Piece(0, uint32(region.Len()))}
	local, err := one[0].MapLocal(list[:], transport.Cursor{}, 0, mrpool.ReadSink)
	if err != nil {
		one[0].Put()
		return nil, fmt.Errorf("staging: %w", err)
	}
	s := &Staging{mr: one[0], region: region, local: local, slot: slot, slots: int(region.Len()) / slot}
	for i := range s.slots {
		s.free = append(s.free, int32(s.slots-1-i))
	}
	return s, nil
}

// Close deregisters the memory. It fails with transport.ErrBusy while slots are in
// use. It may block. Closing twice is harmless.
func (s *Staging) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if out := s.slots - len(s.free); out > 0 {
		return fmt.Errorf("close staging: %d slots in use: %w", out, transport.ErrBusy)
	}
	s.closed = true
	s.free = nil
	err := s.mr.Revoke()
	s.mr.Put()
	return err
}

// take takes as many slots as dst has room for, or none: mrpool.ErrEmpty, or
// ErrClosed.
func (s *Staging) take(dst []int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.free) - len(dst)
	switch {
	case s.closed:
		return fmt.Errorf("staging memory: %w", transport.ErrClosed)
	case n < 0:
		return mrpool.ErrEmpty
	}
	copy(dst, s.free[n:])
	s.free = s.free[:n]
	return nil
}

// afterPut calls f once, when slots come back.
func (s *Staging) afterPut(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, f)
}

func (s *Staging) put(slots []int32) {
	s.mu.Lock()
	s.free = append(s.free, slots...)
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// at is where a slot is for the device.
func (s *Staging) at(slot int32) mrpool.Local {
	l := s.local
	l.IOVA += uint64(slot) * uint64(s.slot)
	return l
}

// bytes is where a slot is for the CPU.
func (s *Staging) bytes(slot int32) []byte {
	return s.region.Bytes()[int(slot)*s.slot:][:s.slot]
}

// copyOut copies what landed in slots to a transfer's pieces.
func (s *Staging) copyOut(slots []int32, t *Transfer, from transport.Cursor, n uint64, regions transport.RegionView) error {
	src := s.bytes(slots[0])
	slots = slots[1:]
	for n > 0 {
		piece := t.Local[from.Piece]
		if from.Offset == piece.Len {
			from = transport.Cursor{Piece: from.Piece + 1}
			continue
		}
		if len(src) == 0 {
			src = s.bytes(slots[0])
			slots = slots[1:]
		}
		e, err := regions.Check(piece, transport.LocalWrite)
		if err != nil {
			return err // taken out of the domain meanwhile
		}
		dst := e.Region.Bytes()[piece.Addr-e.Addr:][:piece.Len][from.Offset:]
		k := copy(dst[:min(uint64(len(dst)), n)], src)
		src = src[k:]
		from.Offset += uint32(k)
		n -= uint64(k)
	}
	return nil
}
