//go:build linux

package transport

import (
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// atTheEdge returns n values of T that end, or begin, where memory does: what is touched
// past them ends the test by a fault.
func atTheEdge[T any](t *testing.T, n int, below bool) []T {
	page := syscall.Getpagesize()
	var one T
	size := int(unsafe.Sizeof(one)) * n
	room := (size + page - 1) / page * page
	mem, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(mem)) })
	require.NoError(t, syscall.Mprotect(mem[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(mem[page+room:], syscall.PROT_NONE))
	at := page + room - size
	if below {
		at = page
	}
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[at])), n)
}

// The loops over lists touch nothing outside of their slices, whatever their lengths.
func TestListsStayInTheirSlices(t *testing.T) { atEachWidth(t, listsStayInTheirSlices) }

func listsStayInTheirSlices(t *testing.T) {
	const page = 4096
	e := &RegionEntry{ID: 0xfedcba98, LKey: 0x89abcdef, Addr: 7 << 40, Len: 1 << 30}
	for _, below := range []bool{false, true} {
		for n := 0; n <= 21; n++ {
			list := atTheEdge[Piece](t, n, below)
			for i := range list {
				list[i] = Piece{Addr: e.Addr + uint64(2*i)*page, Len: page, Region: e.ID}
			}
			for room := 0; room <= n+3; room++ {
				dst := atTheEdge[SGE](t, room, below)
				got, total, even := e.SGEs(dst, list, 0)
				require.Equal(t, min(n, room), got)
				require.Equal(t, uint64(got)*page, total)
				require.Equal(t, fourAtATime && min(n, room) >= fewest, even)
				for i, s := range dst[:got] {
					require.Equal(t, SGE{Addr: list[i].Addr, Len: page, LKey: e.LKey}, s)
				}
			}
			require.True(t, e.holdsPages(list, page))
			pages := atTheEdge[uint64](t, n, below)
			require.True(t, onePageEach(pages, list, page))
			for i := range pages {
				require.Equal(t, list[i].Addr, pages[i])
			}
			// One piece that is different, at each place.
			for i := range list {
				right := list[i]
				for _, wrong := range []Piece{
					{right.Addr, page - 1, e.ID}, {right.Addr, 0, e.ID}, {right.Addr + 1, page, e.ID}, {e.Addr + e.Len, page, e.ID},
					{e.Addr - page, page, e.ID}, {right.Addr, page, e.ID ^ 1}, {right.Addr, page, e.ID ^ 1<<31}, {math.MaxUint64 - page + 1, page, e.ID},
				} {
					list[i] = wrong
					require.False(t, e.holdsPages(list, page), "%d of %d: %v", i, n, wrong)
					one := wrong.Len == page && wrong.Addr%page == 0
					require.Equal(t, one, onePageEach(pages, list, page), "%d of %d: %v", i, n, wrong)
					dst := atTheEdge[SGE](t, n, below)
					got, total, even := e.SGEs(dst, list, 0)
					want := i
					if wrong.Region == e.ID && e.Contains(wrong.Addr, wrong.Len) && wrong.Len > 0 {
						want = n
						if i+1 < n && wrong.End() == list[i+1].Addr {
							want = i + 1
						}
					}
					require.Equal(t, want, got, "%d of %d: %v", i, n, wrong)
					sum := uint64(0)
					for _, p := range list[:got] {
						sum += uint64(p.Len)
					}
					require.Equal(t, sum, total)
					if even {
						for _, p := range list[:got] {
							require.Equal(t, list[0].Len, p.Len)
						}
					}
				}
				list[i] = right
			}
		}
	}
}

// Lengths add up past 2^32 and addresses wrap around nowhere: regions of any place and
// size, pieces as long as they can be.
func TestListsOfTheLargestPieces(t *testing.T) { atEachWidth(t, listsOfTheLargestPieces) }

func listsOfTheLargestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	words := []uint64{0, 1, 2, 4095, 4096, math.MaxUint32 - 1, math.MaxUint32, 1 << 32, 1<<62 - 1, 1 << 62, 1<<63 - 1<<33, 1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - math.MaxUint32, math.MaxUint64 - 4096, math.MaxUint64 - 1, math.MaxUint64}
	word := func() uint64 {
		w := words[rng.IntN(len(words))]
		if rng.IntN(3) == 0 {
			w += uint64(rng.IntN(9)) - 4
		}
		return w
	}
	good := 0
	for range 40_000 {
		e := &RegionEntry{ID: RegionID(rng.Uint32()), LKey: LKey(rng.Uint32()), Addr: word(), Len: word()}
		if e.Addr+e.Len < e.Addr {
			e.Len = -e.Addr // up to the end of all addresses
			if e.Addr == 0 {
				e.Len = math.MaxUint64
			}
		}
		n := rng.IntN(21)
		list := make([]Piece, n)
		end := word()
		for i := range list {
			p := &list[i]
			p.Region, p.Len = e.ID, uint32(word())
			switch rng.IntN(8) {
			case 0:
				p.Addr = word()
			case 1:
				p.Addr = e.Addr + e.Len - uint64(p.Len)
			case 2:
				p.Addr = e.Addr + e.Len - word()
			case 3:
				p.Addr = e.Addr + word()
			default:
				p.Addr, p.Len = e.Addr+uint64(i%2), max(p.Len, 1)
				if uint64(p.Len)+1 > e.Len {
					p.Len = 1
				}
			}
		}
		dst := make([]SGE, n)
		got, total, even := e.SGEs(dst, list, end)
		// By the rule, in arithmetic that can't overflow.
		want, sum, last := 0, uint64(0), end
		for _, p := range list {
			if p.Len == 0 || p.Addr == last || !e.Contains(p.Addr, p.Len) {
				break
			}
			want++
			sum += uint64(p.Len)
			last = p.Addr + uint64(p.Len)
		}
		// Fewer are allowed where the region ends with all addresses.
		if e.Addr+e.Len != 0 {
			require.Equal(t, want, got, "%+v %v end %#x", e, list, end)
			require.Equal(t, sum, total)
		} else {
			require.LessOrEqual(t, got, want, "%+v %v end %#x", e, list, end)
		}
		if even {
			for _, p := range list[:got] {
				require.Equal(t, list[0].Len, p.Len)
			}
		}
		if got == n && n >= fewest {
			good++
		}
		page := uint64(1) << rng.IntN(32)
		for i := range list {
			if rng.IntN(20) > 0 {
				list[i].Len = uint32(page)
				list[i].Addr = list[i].Addr &^ (page - 1)
			}
		}
		all := true
		for _, p := range list {
			all = all && uint64(p.Len) == page && p.Addr%page == 0 && e.Contains(p.Addr, p.Len)
		}
		if e.holdsPages(list, page) {
			require.True(t, all, "%+v %v page %#x", e, list, page)
		} else if n > 0 && e.Len < 1<<63 && e.Addr+e.Len != 0 {
			require.False(t, all, "%+v %v page %#x", e, list, page)
		}
		one := true
		for _, p := range list {
			one = one && uint64(p.Len) == page && p.Addr%page == 0
		}
		pages := make([]uint64, n)
		require.Equal(t, one, onePageEach(pages, list, page))
	}
	require.NotZero(t, good)
}

// A list of one page each is told as [Coverage] tells it, wherever it is cut off.
func TestPageListsAreCutAsCoverageCutsThem(t *testing.T) {
	const shift = 12
	rng := rand.New(rand.NewPCG(2, 2))
	for range 20_000 {
		list := make([]Piece, 1+rng.IntN(20))
		for i := range list {
			list[i] = Piece{Addr: uint64(1+rng.IntN(9)) << shift, Len: 1 << shift, Region: 1}
		}
		for range rng.IntN(3) {
			p := &list[rng.IntN(len(list))]
			*p = [...]Piece{{p.Addr, 0, 1}, {p.Addr, 2 << shift, 1}, {p.Addr + 1, 1 << shift, 1}, {p.Addr, 100, 1}, {p.Addr + 5, 0, 1}}[rng.IntN(5)]
		}
		from := Cursor{Piece: rng.IntN(len(list) + 1)}
		if from.Piece < len(list) && rng.IntN(4) == 0 && list[from.Piece].Len > 0 {
			from.Offset = uint32(rng.IntN(int(list[from.Piece].Len)))
		}
		limit := [...]uint64{0, math.MaxUint64, uint64(rng.IntN(22)) << shift, uint64(rng.IntN(22)<<shift + 1 + rng.IntN(9)), 1}[rng.IntN(5)]
		pages := make([]uint64, 1+rng.IntN(24))
		got := PageList(pages, list, from, limit, shift)
		want := Coverage(list, from, limit, shift, len(pages), false)
		require.Equal(t, want, got, "%v from %v limit %#x, %d pages", list, from, limit, len(pages))
		_, byByte := coverageByBytes(list, from, limit, shift, len(pages), false)
		require.Equal(t, byByte, append([]uint64(nil), pages[:got.Pages]...), "%v from %v limit %#x, %d pages", list, from, limit, len(pages))
	}
}
