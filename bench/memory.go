package main

import (
	"bytes"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"rdmarw/transport"
)

// area is a list of pieces in a region of its own, with a guard of at least a
// page before, between and behind them.
type area struct {
	region *transport.Region
	pieces []transport.Piece
	spans  []extent // of the pieces
	guards []extent // of everything else
}

type extent struct{ start, end int }

// guardByte fills what no transfer may touch.
const guardByte = 0xa5

// layout finds a place for pieces of the given lengths, each on a page border, and
// returns the size of the region that holds them.
func layout(lengths []int) (a area, size int) {
	at := 0
	for _, n := range lengths {
		start := (at+pageSize-1)/pageSize*pageSize + pageSize
		a.guards = append(a.guards, extent{at, start})
		a.spans = append(a.spans, extent{start, start + n})
		at = start + n
	}
	a.guards = append(a.guards, extent{at, at + pageSize})
	return a, at + pageSize
}

// place puts the pieces into their region.
func (a *area) place(region *transport.Region) {
	a.region = region
	for _, s := range a.spans {
		a.pieces = append(a.pieces, region.Piece(uint64(s.start), uint32(s.end-s.start)))
	}
}

// fill makes the area a source: the data in the pieces.
func (a *area) fill(data []byte) {
	mem := a.region.Bytes()
	for _, s := range a.spans {
		copy(mem[s.start:s.end], data)
		data = data[s.end-s.start:]
	}
}

// poison makes the area a sink: each byte of the pieces is wrong, and the guards
// are in place.
func (a *area) poison(data []byte) {
	mem := a.region.Bytes()
	for _, s := range a.spans {
		n := s.end - s.start
		subtle.XORBytes(mem[s.start:s.end], data[:n], pageOf(0xff, n))
		data = data[n:]
	}
	for _, g := range a.guards {
		copy(mem[g.start:g.end], pageOf(guardByte, g.end-g.start))
	}
}

// check compares the pieces with the data, and the guards with what they were.
func (a *area) check(data []byte) error {
	mem := a.region.Bytes()
	for i, s := range a.spans {
		n := s.end - s.start
		if got := mem[s.start:s.end]; !bytes.Equal(got, data[:n]) {
			at := mismatch(got, data)
			return fmt.Errorf("verification: byte %d of piece %d is %#02x, must be %#02x", at, i, got[at], data[at])
		}
		data = data[n:]
	}
	for _, g := range a.guards {
		want := pageOf(guardByte, g.end-g.start)
		if got := mem[g.start:g.end]; !bytes.Equal(got, want) {
			at := mismatch(got, want)
			return fmt.Errorf("verification: byte %d of the region, outside of all pieces, was changed to %#02x", g.start+at, got[at])
		}
	}
	return nil
}

func mismatch(got, want []byte) int {
	for i := range got {
		if got[i] != want[i] {
			return i
		}
	}
	return -1
}

// pages hold constant bytes, to copy from and compare with.
var pages = map[byte][]byte{}

func pageOf(b byte, n int) []byte {
	if len(pages[b]) < n {
		pages[b] = bytes.Repeat([]byte{b}, n)
	}
	return pages[b][:n]
}

// source is random data to move. Making it takes longer than moving it, so it is
// made once, and each transfer gets another part of it.
type source struct {
	rng  *rand.Rand
	data []byte
}

// sources are those made so far, by seed.
var sources = map[uint64][]byte{}

// slack is how much longer than a transfer a source is.
const slack = 1 << 16

// newSource makes a source of transfers of up to n bytes.
func newSource(seed uint64, n int) source {
	if have := len(sources[seed]); have < n+slack {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], seed)
		data := make([]byte, n+slack)
		_, _ = rand.NewChaCha8(key).Read(data) // never fails
		sources[seed] = data
	}
	return source{rand.New(rand.NewPCG(seed, uint64(n))), sources[seed]}
}

// next returns n bytes from a random place on.
func (s *source) next(n int) []byte {
	at := s.rng.IntN(len(s.data) - n + 1)
	return s.data[at : at+n]
}
