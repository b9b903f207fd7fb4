package transport

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// mostly draws a list of pages of a region, apart from each other, with something
// different here and there.
func mostly(t *rapid.T, e *RegionEntry, page uint64) []Piece {
	n := rapid.IntRange(0, 40).Draw(t, "pieces")
	list := make([]Piece, n)
	first := (e.Addr + page - 1) / page
	for i := range list {
		list[i] = Piece{Addr: (first + 2*rapid.Uint64Range(0, (e.Len/page-2)/2).Draw(t, "page")) * page, Len: uint32(page), Region: e.ID}
	}
	for range rapid.SampledFrom([]int{0, 0, 1, 1, 2}).Draw(t, "odd ones") {
		if n == 0 {
			break
		}
		i := rapid.IntRange(0, n-1).Draw(t, "which")
		p := &list[i]
		switch rapid.IntRange(0, 7).Draw(t, "how") {
		case 0:
			p.Len = 0
		case 1:
			p.Region ^= 1 << rapid.IntRange(0, 31).Draw(t, "bit of the region")
		case 2:
			p.Addr ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit of the address")
		case 3:
			p.Len = rapid.Uint32().Draw(t, "length")
		case 4:
			p.Addr = e.Addr - rapid.Uint64Range(1, page).Draw(t, "below")
		case 5:
			p.Addr = e.Addr + e.Len - rapid.Uint64Range(0, 2*page).Draw(t, "near the end")
		case 6:
			if i > 0 {
				p.Addr = list[i-1].End()
			}
		case 7:
			*p = Piece{Addr: ^uint64(0) - rapid.Uint64Range(0, page).Draw(t, "near the end of all"), Len: uint32(page), Region: e.ID}
		}
	}
	return list
}

func anyRegion(t *rapid.T) *RegionEntry {
	return &RegionEntry{
		ID: RegionID(rapid.Uint32().Draw(t, "id")), LKey: LKey(rapid.Uint32().Draw(t, "lkey")),
		Addr: rapid.SampledFrom([]uint64{0, 64, 1 << 20, 1<<63 - 1<<14, 1 << 63, ^uint64(0) - 1<<16}).Draw(t, "start"),
		Len:  rapid.SampledFrom([]uint64{1 << 10, 1 << 12, 1<<14 + 17}).Draw(t, "size"),
	}
}

// Four at a time gives what one by one does, and writes nowhere else.
func TestListsFourAtATime(t *testing.T) {
	t.Logf("four at a time: %v; eight: %v", fourAtATime, eightAtATime)
	defer func(v bool) { eightAtATime = v }(eightAtATime)
	eights := []bool{false, eightAtATime}
	whole, pages, evens := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		const page = 64
		eightAtATime = rapid.SampledFrom(eights).Draw(t, "eight at a time")
		e := anyRegion(t)
		list := mostly(t, e, page)

		room := rapid.IntRange(0, len(list)+3).Draw(t, "room")
		end := rapid.SampledFrom([]uint64{0, e.Addr, 1}).Draw(t, "end")
		if len(list) > 0 && rapid.Bool().Draw(t, "the first goes on") {
			end = list[0].Addr
		}
		mark := SGE{Addr: 1, Len: 2, LKey: 3}
		dst := slices.Repeat([]SGE{mark}, room+4)
		n, total, even := e.SGEs(dst[:room], list, end)
		want := make([]SGE, len(list))
		wantN, wantTotal := e.sges(want[:min(room, len(list))], list[:min(room, len(list))], end)
		require.Equal(t, wantN, n)
		require.Equal(t, wantTotal, total)
		require.Equal(t, want[:n], dst[:n])
		require.Equal(t, slices.Repeat([]SGE{mark}, 4), dst[room:])
		if n >= fewest {
			whole++
		}
		if even {
			evens++
			require.False(t, slices.ContainsFunc(list[:n], func(p Piece) bool { return p.Len != list[0].Len }))
		}

		one := func(p Piece) bool {
			return p.Region == e.ID && p.Addr%page == 0 && p.Len == page && e.Contains(p.Addr, p.Len)
		}
		all := !slices.ContainsFunc(list, func(p Piece) bool { return !one(p) })
		require.Equal(t, all, e.holdsPages(list, page))
		if all && len(list) >= fewest {
			pages++
		}

		at := slices.Repeat([]uint64{7}, len(list)+4)
		whole := !slices.ContainsFunc(list, func(p Piece) bool { return p.Addr%page != 0 || p.Len != page })
		require.Equal(t, whole, onePageEach(at[:len(list)], list, page))
		if whole {
			for i, p := range list {
				require.Equal(t, p.Addr, at[i])
			}
		}
		require.Equal(t, []uint64{7, 7, 7, 7}, at[len(list):])
	})
	require.NotZero(t, whole)
	require.NotZero(t, pages)
	if fourAtATime {
		require.NotZero(t, evens)
	}
}

// A piece that goes on where the one before ended is seen wherever it is, and nothing is
// taken for one.
func TestListsGoOnAnywhere(t *testing.T) {
	const page = 4096
	e := &RegionEntry{ID: 0x80000001, LKey: 7, Addr: 1 << 40, Len: 1 << 30}
	atEachWidth(t, func(t *testing.T) {
		for n := 1; n <= 44; n++ {
			list := make([]Piece, n)
			for i := range list {
				list[i] = Piece{Addr: e.Addr + uint64(100-2*i)*page, Len: page, Region: e.ID}
			}
			dst := make([]SGE, n)
			got, _, _ := e.SGEs(dst, list, 0)
			require.Equal(t, n, got)
			for i := range list {
				right, end := list[i], uint64(0)
				if i > 0 {
					list[i].Addr = list[i-1].End()
				} else {
					end = right.Addr
				}
				got, total, _ := e.SGEs(dst, list, end)
				require.Equal(t, i, got, "of %d", n)
				require.Equal(t, uint64(i)*page, total)
				list[i] = right
			}
		}
	})
}

// atEachWidth runs a test with the longest registers that there are, and without.
func atEachWidth(t *testing.T, test func(*testing.T)) {
	test(t)
	if eightAtATime {
		defer func() { eightAtATime = true }()
		eightAtATime = false
		test(t)
	}
}

// benchmarkList is what planning meets: pages apart from each other.
func benchmarkList() (*RegionEntry, []Piece) {
	e := &RegionEntry{ID: 5, LKey: 7, Addr: 1 << 30, Len: 1 << 30}
	list := make([]Piece, 256)
	for i := range list {
		list[i] = Piece{Addr: e.Addr + uint64(i)*8192, Len: 4096, Region: e.ID}
	}
	return e, list
}

func BenchmarkLists(b *testing.B) {
	e, list := benchmarkList()
	dst, pages := make([]SGE, len(list)), make([]uint64, len(list))
	for name, f := range map[string]func(){
		"SGEs":             func() { e.SGEs(dst, list, 0) },
		"SGEs one by one":  func() { e.sges(dst, list, 0) },
		"check pages":      func() { e.holdsPages(list, 4096) },
		"write down pages": func() { onePageEach(pages, list, 4096) },
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				f()
			}
		})
	}
}
