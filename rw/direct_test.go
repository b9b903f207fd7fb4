package rw

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/transport"
)

// directByRule is what a direct plan should be, written down a second time without any
// haste: requests as long as they can be, SGEs merged where one goes on where the other
// ends.
func directByRule(t *Transfer, lim *Limits, keys map[transport.RegionID]transport.LKey) (wrs []transport.WR, sges []transport.SGE, short bool) {
	op, limit := transport.OpWrite, max(1, lim.SendSGE)
	if t.Op == Read {
		op, limit = transport.OpRead, max(1, min(lim.SendSGE, lim.Caps.MaxSGERead))
	}
	skip, left := t.Offset, t.Length
	all := t.Length == 0
	remote := append([]transport.Remote(nil), t.Remote...)
	var room uint64 // of the last request
	for _, p := range t.Local {
		addr, n := p.Addr, uint64(p.Len)
		k := min(skip, n)
		addr, n, skip = addr+k, n-k, skip-k
		if !all {
			n = min(n, left)
			left -= n
		}
		for n > 0 {
			if room > 0 {
				wr := &wrs[len(wrs)-1]
				last := &sges[len(sges)-1]
				take := min(n, room)
				switch {
				case last.LKey == keys[p.Region] && last.Addr+uint64(last.Len) == addr:
					last.Len += uint32(take)
				case int(wr.NumSGE) < limit:
					sges = append(sges, transport.SGE{Addr: addr, Len: uint32(take), LKey: keys[p.Region]})
					wr.NumSGE++
				default:
					room = 0
					continue
				}
				addr, n, room = addr+take, n-take, room-take
				remote[0].Addr, remote[0].Len = remote[0].Addr+take, remote[0].Len-uint32(take)
				continue
			}
			for len(remote) > 0 && remote[0].Len == 0 {
				remote = remote[1:]
			}
			if len(remote) == 0 {
				return nil, nil, true
			}
			room = uint64(remote[0].Len)
			if m := lim.Caps.MaxMsg; m > 0 {
				room = min(room, m)
			}
			take := min(n, room)
			wrs = append(wrs, transport.WR{Op: op, RemoteAddr: remote[0].Addr, RKey: remote[0].Key, FirstSGE: uint32(len(sges)), NumSGE: 1})
			sges = append(sges, transport.SGE{Addr: addr, Len: uint32(take), LKey: keys[p.Region]})
			addr, n, room = addr+take, n-take, room-take
			remote[0].Addr, remote[0].Len = remote[0].Addr+take, remote[0].Len-uint32(take)
		}
	}
	return wrs, sges, false
}

// However a list comes, plain or not: the plan is the rule's, to the last SGE; and planned
// again, over what was planned before, it is the same.
func TestDirectPlansAreTheRules(t *testing.T) {
	table, regions := memory(transport.LocalWrite, transport.LocalWrite)
	keys := map[transport.RegionID]transport.LKey{regions[0].ID(): 0x100, regions[1].ID(): 0x200}
	var p plan
	ways := make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		caps := capsRXE
		caps.MaxSGERead = rapid.IntRange(1, 12).Draw(t, "READ SGEs")
		caps.MaxMsg = rapid.SampledFrom([]uint64{0, 0, 1 << 20, 5000, 4096, 1000, 7}).Draw(t, "max message")
		lim := limits(caps)
		lim.SendSGE = rapid.IntRange(1, 20).Draw(t, "SGEs")
		size := rapid.SampledFrom([]uint32{0, 1, 512, 4096}).Draw(t, "size")
		odd := rapid.IntRange(0, 3).Draw(t, "oddness")
		var list []transport.Piece
		var total uint64
		at := []uint64{0, 0}
		r := 0
		for range rapid.IntRange(1, 40).Draw(t, "pieces") {
			n := size
			if size == 0 || odd > 0 && rapid.IntRange(0, 9).Draw(t, "odd one") < odd {
				n = rapid.Uint32Range(0, 9000).Draw(t, "length")
			}
			if odd > 1 && rapid.IntRange(0, 9).Draw(t, "other region") == 0 {
				r = 1 - r
			}
			if odd == 0 || rapid.IntRange(0, 9).Draw(t, "adjacent") >= odd {
				at[r] += uint64(4096)
			}
			list = append(list, regions[r].Piece(at[r], n))
			at[r] += uint64(n)
			total += uint64(n)
		}
		tr := Transfer{Op: rapid.SampledFrom([]Op{Read, Write}).Draw(t, "op"), Local: list}
		if total > 0 && rapid.IntRange(0, 3).Draw(t, "part") == 0 {
			tr.Offset = rapid.Uint64Range(0, total).Draw(t, "offset")
			if tr.Offset < total {
				tr.Length = rapid.Uint64Range(0, total-tr.Offset).Draw(t, "length")
			}
		}
		bytes := total - tr.Offset
		if tr.Length > 0 {
			bytes = tr.Length
		}
		switch rapid.IntRange(0, 4).Draw(t, "remote") {
		case 0:
			tr.Remote = []transport.Remote{{Addr: 9, Len: uint32(bytes), Key: 1}}
		case 1: // requests' ends are segments' ends
			for left := bytes; left > 0; {
				n := min(left, uint64(size+1)*uint64(rapid.IntRange(1, 30).Draw(t, "SGEs of a segment")))
				tr.Remote = append(tr.Remote, transport.Remote{Addr: left << 32, Len: uint32(n), Key: transport.RKey(left)})
				left -= n
			}
		default:
			for left := bytes; left > 0; {
				n := min(left, rapid.Uint64Range(0, 60000).Draw(t, "segment"))
				tr.Remote = append(tr.Remote, transport.Remote{Addr: left << 32, Len: uint32(n), Key: transport.RKey(left)})
				left -= n
			}
		}
		if len(tr.Remote) > 0 && rapid.IntRange(0, 9).Draw(t, "short") == 0 {
			tr.Remote[len(tr.Remote)-1].Len--
		} else if rapid.Bool().Draw(t, "more") {
			tr.Remote = append(tr.Remote, transport.Remote{Addr: 77, Len: 1000, Key: 77})
		}
		wrs, sges, short := directByRule(&tr, lim, keys)
		for range 2 {
			err := p.make(&tr, lim, table.View())
			if short {
				require.ErrorIs(t, err, transport.ErrRange)
				ways["short"]++
				continue
			}
			require.NoError(t, err)
			require.Equal(t, wrs, append([]transport.WR(nil), p.wrs...))
			require.Equal(t, sges, append([]transport.SGE(nil), p.sges...))
			require.Equal(t, bytes, p.Bytes)
			require.Equal(t, len(wrs), p.Cost.WRs)
			ways[p.Strategy.String()]++
		}
	})
	require.NotZero(t, ways["short"])
	require.NotZero(t, ways["direct"])
}

// A transfer that takes more requests by one way of registering than the send queue holds
// may fit by another.
func TestRegistrationsThatDontFitTheSendQueueYield(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	list := scattered(regions[0], 40, 1000)
	for i := range list {
		list[i].Addr += 100
	}
	lim := limits(capsSIWKernel)
	lim.FastMRs, lim.SendWR = 64, 64
	tr := Transfer{Op: Read, Local: list, Remote: oneRemote(1 << 20)}
	var p plan
	require.NoError(t, p.make(&tr, lim, table.View()))
	require.Equal(t, SyncReg, p.Strategy, "40 READs fit, with 40 registrations before them they don't")
	lim.SyncMRs = 0
	require.ErrorIs(t, p.make(&tr, lim, table.View()), ErrTooLarge)

	var ids transport.RegionIDs
	ids.Take()
	id, err := ids.Take()
	require.NoError(t, err)
	visible := transport.NewRegion(id, 9<<40, 1<<20, transport.LocalWrite, make([]byte, 1<<20), nil, nil)
	require.NoError(t, table.Add(visible, 0x900))
	tr.Local = scattered(visible, 40, 1000)
	lim = limits(capsSIW)
	lim.SendWR, lim.StagingSlots, lim.StagingSlot = 10, 4, 16<<10
	require.NoError(t, p.make(&tr, lim, table.View()))
	require.Equal(t, Staged, p.Strategy, "what takes too many requests may still be copied")
	require.Equal(t, 3, p.Cost.WRs)
}

// A piece of nothing is skipped wherever it lies: its neighbours are neighbours of each
// other, in a request that has all its SGEs too.
func TestPieceOfNothingBetweenNeighbours(t *testing.T) {
	table, regions := memory(0, 0)
	lim := limits(capsRXE)
	lim.SendSGE = 1
	list := []transport.Piece{regions[0].Piece(0, 10), regions[1].Piece(0, 0), regions[0].Piece(10, 10), regions[0].Piece(20, 0), regions[0].Piece(20, 10)}
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Write, Local: list, Remote: oneRemote(30)}, lim, table.View()))
	require.Equal(t, []transport.SGE{{Addr: regions[0].Addr(), Len: 30, LKey: 0x100}}, p.sges)
	require.Equal(t, 1, p.Cost.WRs)
}
