package ibverbs

import (
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestContiguous(t *testing.T) {
	const id, other = 1<<20 | 1, 1<<20 | 2
	var table transport.RegionTable
	region := func(id transport.RegionID, addr uint64, access transport.Access) {
		require.NoError(t, table.Add(transport.NewRegion(id, addr, 0x1000, access, nil, nil, nil), 7))
	}
	region(id, 0x10000, transport.LocalWrite)
	region(other, 0x11000, 0) // right behind it
	view := table.View()
	p := func(addr uint64, n uint32, id transport.RegionID) transport.Piece {
		return transport.Piece{Addr: addr, Len: n, Region: id}
	}

	ext, e, err := contiguous(view, transport.Mapping{List: []transport.Piece{
		p(0, 0, 99), p(0x10100, 0x100, id), p(0, 0, 99), p(0x10200, 0x100, id), p(0x10400, 0x100, id)}}, transport.LocalWrite, 1<<40)
	require.NoError(t, err)
	require.EqualValues(t, 0x10100, ext.IOVA)
	require.EqualValues(t, 0x200, ext.Len)
	require.EqualValues(t, id, e.ID)
	require.Equal(t, 4, ext.Next.Piece)

	// Not across regions, even where they touch, and what isn't covered isn't checked.
	ext, e, err = contiguous(view, transport.Mapping{List: []transport.Piece{
		p(0x10f00, 0x100, id), p(0x11000, 0x100, other), p(0, 1, 99)}}, transport.LocalWrite, 1<<40)
	require.NoError(t, err)
	require.EqualValues(t, 0x100, ext.Len)
	require.EqualValues(t, id, e.ID)

	// From the middle of a piece, cut by the wish and by the largest registration.
	m := transport.Mapping{List: []transport.Piece{p(0x10000, 0x100, id)}, From: transport.Cursor{Offset: 0x10}, Len: 0x20}
	ext, _, err = contiguous(view, m, 0, 1<<40)
	require.NoError(t, err)
	require.EqualValues(t, 0x10010, ext.IOVA)
	require.EqualValues(t, 0x20, ext.Len)
	m.Len = 0
	ext, _, err = contiguous(view, m, 0, 0x30)
	require.NoError(t, err)
	require.EqualValues(t, 0x30, ext.Len)

	for _, c := range []struct {
		piece transport.Piece
		want  error
	}{
		{p(0x10000, 1, 99), transport.ErrRegion},
		{p(0x10fff, 2, id), transport.ErrRange},
		{p(0xffff, 2, id), transport.ErrRange},
		{p(^uint64(0), 2, id), transport.ErrRange},
		{p(0x11000, 1, other), transport.ErrAccess},
		{p(0x10000, 0, id), transport.ErrRange},
	} {
		_, _, err = contiguous(view, transport.Mapping{List: []transport.Piece{c.piece}}, transport.LocalWrite, 1<<40)
		require.ErrorIs(t, err, c.want, "%v", c.piece)
	}
}
