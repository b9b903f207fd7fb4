package transport

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// coverageByBytes is the rule of Coverage written a second time, a byte at a
// time: slow, and without any arithmetic on runs. The pages mean nothing with gaps.
func coverageByBytes(list []Piece, from Cursor, limit uint64, shift uint8, maxPages int, gaps bool) (ext Extent, pages []uint64) {
	page := uint64(1) << shift
	ext.Next = from
	var last uint64
	for i := from.Piece; i < len(list); i++ {
		first := uint32(0)
		if i == from.Piece {
			first = from.Offset
		}
		for off := first; off < list[i].Len; off++ {
			if limit != 0 && ext.Len == limit {
				return ext, pages
			}
			addr := list[i].Addr + uint64(off)
			switch {
			case ext.Len == 0:
				if maxPages == 0 {
					return ext, pages
				}
				ext.IOVA = addr
				ext.Pages = 1
				pages = append(pages, addr-addr%page)
			case addr == last+1 && (gaps || addr%page != 0):
			case gaps, addr == last+1, addr%page == 0 && (last+1)%page == 0:
				if ext.Pages == maxPages {
					return ext, pages
				}
				ext.Pages++
				pages = append(pages, addr-addr%page)
			default:
				return ext, pages
			}
			last = addr
			ext.Len++
			ext.Next = Cursor{Piece: i, Offset: off + 1}
			if off+1 == list[i].Len {
				ext.Next = Cursor{Piece: i + 1}
			}
		}
	}
	return ext, pages
}

func TestCoverageAgreesWithTheRuleByteByByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const shift = 3 // pages of 8 bytes keep byte-wise counting cheap
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Piece {
			addr := rapid.Uint64Range(0, 24).Draw(t, "page") * 8
			if rapid.Bool().Draw(t, "unaligned") {
				addr += rapid.Uint64Range(0, 7).Draw(t, "offset")
			}
			n := rapid.Uint32Range(0, 4).Draw(t, "pages") * 8
			if rapid.Bool().Draw(t, "ragged") {
				n += rapid.Uint32Range(0, 7).Draw(t, "tail")
			}
			return Piece{Addr: addr, Len: n}
		}), 1, 5).Draw(t, "list")
		for i := 1; i < len(list); i++ { // make runs likely
			if rapid.Bool().Draw(t, "contiguous") {
				list[i].Addr = list[i-1].End()
			}
		}
		var from Cursor
		if list[0].Len > 0 {
			from.Offset = rapid.Uint32Range(0, list[0].Len-1).Draw(t, "from")
		}
		limit := rapid.Uint64Range(0, 40).Draw(t, "limit")
		maxPages := rapid.IntRange(0, 8).Draw(t, "max pages")
		gaps := rapid.Bool().Draw(t, "gaps")

		got := Coverage(list, from, limit, shift, maxPages, gaps)
		want, wantPages := coverageByBytes(list, from, limit, shift, maxPages, gaps)
		require.Equal(t, want.Len, got.Len)
		require.Equal(t, want.IOVA, got.IOVA)
		if want.Len > 0 {
			require.Equal(t, want.Pages, got.Pages)
			// Where the coverage stops, both name the same next byte; they may
			// differ in how they write the end of a piece or an empty one.
			require.Equal(t, normal(list, want.Next), normal(list, got.Next))
		}
		if !gaps {
			pages := make([]uint64, maxPages)
			require.Equal(t, got, PageList(pages, list, from, limit, shift))
			require.True(t, slices.Equal(wantPages, pages[:got.Pages]), "%#x, must be %#x", pages[:got.Pages], wantPages)
		}
	})
}

// normal skips exhausted and empty pieces.
func normal(list []Piece, c Cursor) Cursor {
	for c.Piece < len(list) && c.Offset >= list[c.Piece].Len {
		c = Cursor{Piece: c.Piece + 1}
	}
	return c
}

func TestCoverage(t *testing.T) {
	const k = 4096
	pages := func(addrs ...uint64) (list []Piece) {
		for _, a := range addrs {
			list = append(list, Piece{Addr: a * k, Len: k})
		}
		return list
	}
	tests := []struct {
		name     string
		list     []Piece
		from     Cursor
		limit    uint64
		shift    uint8
		maxPages int
		gaps     bool
		want     Extent
	}{
		{"scattered pages", pages(1, 5, 3), Cursor{}, 0, 12, 256, false, Extent{k, 3 * k, 3, Cursor{Piece: 3}}},
		{"exactly the page list", pages(1, 5), Cursor{}, 0, 12, 2, false, Extent{k, 2 * k, 2, Cursor{Piece: 2}}},
		{"one page too many", pages(1, 5, 3), Cursor{}, 0, 12, 2, false, Extent{k, 2 * k, 2, Cursor{Piece: 2}}},
		{"first starts inside a page", []Piece{{Addr: k + 100, Len: k - 100}, {Addr: 9 * k, Len: 10}}, Cursor{}, 0, 12, 9, false,
			Extent{k + 100, k - 90, 2, Cursor{Piece: 2}}},
		{"gap in the middle", []Piece{{Addr: k, Len: k - 1}, {Addr: 9 * k, Len: k}}, Cursor{}, 0, 12, 9, false, Extent{k, k - 1, 1, Cursor{Piece: 1}}},
		{"gap on a device with gaps", []Piece{{Addr: k, Len: k - 1}, {Addr: 9 * k, Len: k}}, Cursor{}, 0, 12, 9, true,
			Extent{k, 2*k - 1, 2, Cursor{Piece: 2}}},
		{"a piece larger than the page list", []Piece{{Addr: k + 10, Len: 8 * k}}, Cursor{}, 0, 12, 3, false,
			Extent{k + 10, 3*k - 10, 3, Cursor{Piece: 0, Offset: 3*k - 10}}},
		{"resumed inside a piece", []Piece{{Addr: k, Len: 8 * k}}, Cursor{Offset: 3 * k}, 0, 12, 9, false, Extent{4 * k, 5 * k, 5, Cursor{Piece: 1}}},
		{"blocks of 512 bytes", []Piece{{Addr: 512, Len: 512}, {Addr: 4096, Len: 1024}}, Cursor{}, 0, 9, 9, false, Extent{512, 1536, 3, Cursor{Piece: 2}}},
		{"limit inside a page", pages(1, 5), Cursor{}, k + 1, 12, 9, false, Extent{k, k + 1, 2, Cursor{Piece: 1, Offset: 1}}},
		{"byte-contiguous across a page", []Piece{{Addr: k, Len: 10}, {Addr: k + 10, Len: k}}, Cursor{}, 0, 12, 9, false, Extent{k, k + 10, 2, Cursor{Piece: 2}}},
		{"no pages", pages(1), Cursor{}, 0, 12, 0, false, Extent{}},
		{"empty list", nil, Cursor{}, 0, 12, 9, false, Extent{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Coverage(tt.list, tt.from, tt.limit, tt.shift, tt.maxPages, tt.gaps))
		})
	}
}

func TestContiguous(t *testing.T) {
	list := []Piece{{Addr: 100, Len: 10, Region: 1}, {Addr: 110, Len: 0, Region: 9}, {Addr: 110, Len: 5, Region: 1}, {Addr: 115, Len: 5, Region: 2}, {Addr: 50, Len: 1, Region: 2}}
	require.Equal(t, Extent{100, 15, 1, Cursor{Piece: 3}}, Contiguous(list, Cursor{}, 0), "ends at the border of a region")
	require.Equal(t, Extent{103, 9, 1, Cursor{Piece: 2, Offset: 2}}, Contiguous(list, Cursor{Offset: 3}, 9), "ends at the limit")
	require.Equal(t, Extent{115, 5, 1, Cursor{Piece: 4}}, Contiguous(list, Cursor{Piece: 3}, 0), "ends where the next piece is elsewhere")
	require.Equal(t, Extent{Next: Cursor{Piece: 5}}, Contiguous(list, Cursor{Piece: 5}, 0))
}
