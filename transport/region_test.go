package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRegionTableFindsAndRefuses(t *testing.T) {
	var ids RegionIDs
	id, err := ids.Take()
	require.NoError(t, err)
	r := NewRegion(id, 0x1000, 100, LocalWrite, make([]byte, 100), nil, nil)
	var table RegionTable
	require.NoError(t, table.Add(r, 7))
	require.ErrorIs(t, table.Add(r, 8), ErrBusy)

	e, err := table.View().Check(r.Piece(10, 90), LocalWrite)
	require.NoError(t, err)
	require.Equal(t, LKey(7), e.LKey)

	for _, bad := range []Piece{r.Piece(10, 91), r.Piece(101, 0), {Addr: 0xfff, Len: 1, Region: id}, {Addr: ^uint64(0), Len: 2, Region: id}} {
		_, err = table.View().Check(bad, 0)
		require.ErrorIs(t, err, ErrRange, "%v", bad)
	}
	_, err = table.View().Check(r.Piece(0, 1), BindWindow)
	require.ErrorIs(t, err, ErrAccess)
	_, err = table.View().Check(Piece{Addr: 0x1000, Len: 1}, 0)
	require.ErrorIs(t, err, ErrRegion, "the zero id names nothing")

	require.True(t, table.Remove(id))
	require.False(t, table.Remove(id))
	_, err = table.View().Check(r.Piece(0, 1), 0)
	require.ErrorIs(t, err, ErrRegion)
}

func TestRegionIDOfAClosedRegionIsNotItsSuccessors(t *testing.T) {
	var ids RegionIDs
	first, _ := ids.Take()
	seen := map[RegionID]bool{first: true}
	for range 100 {
		ids.Give(first)
		next, err := ids.Take()
		require.NoError(t, err)
		require.False(t, seen[next])
		require.Equal(t, first.slot(), next.slot())
		seen[next] = true
		first = next
	}
}

func TestRegionCloseWaitsForItsUsers(t *testing.T) {
	frees := 0
	r := NewRegion(1, 0x1000, 10, 0, make([]byte, 10), nil, func() error { frees++; return nil })
	require.NoError(t, r.Retain())
	require.ErrorIs(t, r.Close(), ErrBusy)
	require.NotNil(t, r.Bytes())
	r.Release()
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	require.Equal(t, 1, frees)
	require.ErrorIs(t, r.Retain(), ErrClosed)
}

func TestCurrentTellsWhetherRegionsChanged(t *testing.T) {
	var table RegionTable
	require.True(t, table.Current(table.View()))
	r := NewRegion(1<<20, 0x1000, 100, 0, nil, nil, nil)
	empty := table.View()
	require.NoError(t, table.Add(r, 1))
	require.False(t, table.Current(empty))
	one := table.View()
	require.True(t, table.Current(one))
	require.True(t, table.Remove(r.ID()))
	require.False(t, table.Current(one))
	require.NoError(t, table.Add(r, 1))
	require.False(t, table.Current(one), "another, even if it looks the same")
}

// CheckList says what Check says of each piece that the bytes lie in.
func TestCheckListAgreesWithCheck(t *testing.T) {
	var table RegionTable
	var ids RegionIDs
	for i, access := range []Access{LocalWrite, 0, LocalWrite} {
		id, err := ids.Take()
		require.NoError(t, err)
		require.NoError(t, table.Add(NewRegion(id, uint64(100*(i+1)), 50, access, nil, nil, nil), LKey(i)))
	}
	view := table.View()
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Piece {
			region := rapid.IntRange(0, 2).Draw(t, "region")
			p := Piece{Addr: uint64(100 * (region + 1)), Region: view[region].ID}
			switch rapid.IntRange(0, 12).Draw(t, "kind") {
			case 0:
				p.Addr += rapid.Uint64Range(0, 60).Draw(t, "anywhere")
				p.Len = rapid.Uint32Range(0, 60).Draw(t, "any length")
			case 1:
				p.Addr--
				p.Len = 2
			case 2:
				p.Region = 77
				p.Len = rapid.Uint32Range(0, 1).Draw(t, "unknown")
			default:
				p.Addr += rapid.Uint64Range(0, 25).Draw(t, "inside")
				p.Len = rapid.Uint32Range(0, 25).Draw(t, "length")
			}
			return p
		}), 1, 8).Draw(t, "list")
		from := Cursor{Piece: rapid.IntRange(0, len(list)).Draw(t, "from")}
		if from.Piece < len(list) && list[from.Piece].Len > 0 {
			from.Offset = rapid.Uint32Range(0, list[from.Piece].Len-1).Draw(t, "offset")
		}
		n := rapid.Uint64Range(0, 100).Draw(t, "bytes")
		need := []Access{0, LocalWrite}[rapid.IntRange(0, 1).Draw(t, "need")]

		var want error
		var bytes uint64
		left := n + uint64(from.Offset)
		for _, p := range list[from.Piece:] {
			if p.Len > 0 && want == nil {
				_, want = view.Check(p, need)
			}
			if n > 0 && left <= uint64(p.Len) {
				bytes += left
				break
			}
			left -= uint64(p.Len)
			bytes += uint64(p.Len)
		}
		got, err := view.CheckList(list, from, n, need)
		require.Equal(t, want, err)
		if err == nil {
			require.Equal(t, bytes-uint64(from.Offset), got)
		}
	})
}

// CheckPages is true of exactly the lists of whole pages, one each, in one region, which
// CheckList finds nothing wrong with.
func TestCheckPagesAgreesWithCheckList(t *testing.T) {
	const shift, page = 4, 16
	var table RegionTable
	var ids RegionIDs
	for i, access := range []Access{LocalWrite, 0} {
		id, err := ids.Take()
		require.NoError(t, err)
		require.NoError(t, table.Add(NewRegion(id, uint64(1000*(i+1)), 100, access, nil, nil, nil), LKey(i)))
	}
	view := table.View()
	yes := 0
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.IntRange(0, 1).Draw(t, "region")
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Piece {
			region := one
			if rapid.IntRange(0, 20).Draw(t, "other") == 0 {
				region = 1 - one
			}
			p := Piece{Addr: (uint64(1000*(region+1)) + page) &^ (page - 1), Region: view[region].ID, Len: page}
			p.Addr += page * rapid.Uint64Range(0, 4).Draw(t, "page")
			switch rapid.IntRange(0, 30).Draw(t, "kind") {
			case 0:
				p.Addr = rapid.SampledFrom([]uint64{0, 992, 1096, 2096, ^uint64(0) - 15, ^uint64(0) - 7}).Draw(t, "outside")
			case 1:
				p.Addr += rapid.Uint64Range(1, page-1).Draw(t, "off")
			case 2:
				p.Len = rapid.Uint32Range(0, 3*page).Draw(t, "length")
			case 3:
				p.Region = 77
			}
			return p
		}), 0, 6).Draw(t, "list")
		need := []Access{0, LocalWrite}[rapid.IntRange(0, 1).Draw(t, "need")]
		_, err := view.CheckList(list, Cursor{}, 0, need)
		want := err == nil && len(list) > 0
		for _, p := range list {
			want = want && p.Addr%page == 0 && p.Len == page && p.Region == list[0].Region
		}
		require.Equal(t, want, view.CheckPages(list, shift, need))
		if want {
			yes++
		}
	})
	require.NotZero(t, yes)
	require.False(t, view.CheckPages([]Piece{{Addr: 1000, Len: 1, Region: view[0].ID}}, 64, 0))
}
