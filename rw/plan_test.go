package rw

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/transport"
)

// The devices that plans differ for.
var (
	capsRXE = transport.Caps{Device: "rxe", Protocol: transport.RoCE, MaxSendSGE: 32, MaxSGERead: 32, MaxMsg: 8 << 20, Windows: transport.Windows2B}
	capsSIW = transport.Caps{Device: "siw", Protocol: transport.IWARP, MaxSendSGE: 6, MaxSGERead: 1, MaxMsg: 1 << 31}
	// In the kernel dialect siw has fast registration, and READ_WITH_INV.
	capsSIWKernel = transport.Caps{Device: "siw-kernel", Protocol: transport.IWARP, MaxSendSGE: 6, MaxSGERead: 1, MaxMsg: 1 << 31,
		FastReg: transport.FastRegCaps{MaxPages: 256, PageSizes: 1 << 12}, ReadWithInv: true}
)

func limits(caps transport.Caps) *Limits {
	return &Limits{Caps: &caps, SendSGE: caps.MaxSendSGE, FastMRs: 16, FastPages: min(256, caps.FastReg.MaxPages), PageShift: 12, SyncMRs: 1024}
}

// memory makes a protection domain's table with regions of 1 GiB each; region i
// has lkey 0x100*(i+1) and starts at (i+1) << 40.
func memory(access ...transport.Access) (*transport.RegionTable, []*transport.Region) {
	var ids transport.RegionIDs
	var table transport.RegionTable
	var regions []*transport.Region
	for i, a := range access {
		id, _ := ids.Take()
		r := transport.NewRegion(id, uint64(i+1)<<40, 1<<30, a, nil, nil, nil)
		if err := table.Add(r, transport.LKey(0x100*(i+1))); err != nil {
			panic(err)
		}
		regions = append(regions, r)
	}
	return &table, regions
}

// scattered makes n pieces that don't touch each other.
func scattered(r *transport.Region, n int, size uint32) (list []transport.Piece) {
	for i := range n {
		list = append(list, r.Piece(uint64(i)*(uint64(size)+4095)/4096*4096*2, size))
	}
	return list
}

func oneRemote(n uint64) []transport.Remote {
	var list []transport.Remote
	for at := uint64(0); at < n; at += 1 << 31 {
		list = append(list, transport.Remote{Addr: 0x7000_0000 + at, Len: uint32(min(n-at, 1<<31)), Key: 0xabc01})
	}
	return list
}

func TestPlans(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	r := regions[0]
	tests := []struct {
		name string
		caps transport.Caps
		op   Op
		list []transport.Piece
		want Plan
	}{
		{"READ 1 on rxe", capsRXE, Read, scattered(r, 1, 4096), Plan{Strategy: Direct, Bytes: 4096, Cost: Cost{WRs: 1, Reads: 1}}},
		{"READ at the SGE limit", capsRXE, Read, scattered(r, 32, 4096), Plan{Strategy: Direct, Bytes: 32 * 4096, Cost: Cost{WRs: 1, Reads: 1}}},
		{"READ one over the SGE limit", capsRXE, Read, scattered(r, 33, 4096), Plan{Strategy: Direct, Bytes: 33 * 4096, Cost: Cost{WRs: 2, Reads: 2}}},
		{"READ 256 on rxe", capsRXE, Read, scattered(r, 256, 4096), Plan{Strategy: Direct, Bytes: 1 << 20, Cost: Cost{WRs: 8, Reads: 8}}},
		{"READ over the message limit", capsRXE, Read, []transport.Piece{r.Piece(0, 8<<20+1)}, Plan{Strategy: Direct, Bytes: 8<<20 + 1, Cost: Cost{WRs: 2, Reads: 2}}},
		{"WRITE 256 on siw", capsSIW, Write, scattered(r, 256, 4096), Plan{Strategy: Direct, Bytes: 1 << 20, Cost: Cost{WRs: 43}}},
		{"READ 1 on siw", capsSIW, Read, scattered(r, 1, 4095), Plan{Strategy: SyncReg, Bytes: 4095, Cost: Cost{WRs: 1, Reads: 1, Registrations: 1}}},
		{"READ 64 on siw", capsSIW, Read, scattered(r, 64, 4096), Plan{Strategy: SyncReg, Bytes: 64 * 4096, Cost: Cost{WRs: 64, Reads: 64, Registrations: 64}}},
		{"READ 64 on siw-kernel", capsSIWKernel, Read, scattered(r, 64, 4096), Plan{Strategy: FastReg, Bytes: 64 * 4096, Cost: Cost{WRs: 2, Reads: 1, Registrations: 1}}},
		{"READ 256 on siw-kernel", capsSIWKernel, Read, scattered(r, 256, 4096), Plan{Strategy: FastReg, Bytes: 1 << 20, Cost: Cost{WRs: 2, Reads: 1, Registrations: 1}}},
		{"READ 257 on siw-kernel", capsSIWKernel, Read, scattered(r, 257, 4096), Plan{Strategy: FastReg, Bytes: 257 * 4096, Cost: Cost{WRs: 4, Reads: 2, Registrations: 2}}},
		{"WRITE 64 on siw-kernel", capsSIWKernel, Write, scattered(r, 64, 4096), Plan{Strategy: Direct, Bytes: 64 * 4096, Cost: Cost{WRs: 11}}},
		{"READ of nothing", capsSIW, Read, scattered(r, 3, 0), Plan{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p plan
			require.NoError(t, p.make(&Transfer{Op: tt.op, Local: tt.list, Remote: oneRemote(1 << 33)}, limits(tt.caps), table.View()))
			require.Equal(t, tt.want, p.Plan)
		})
	}
}

func TestReadOnIWARPWithoutReadWithInvInvalidatesAtTheEnd(t *testing.T) {
	caps := capsSIWKernel
	caps.ReadWithInv = false
	table, regions := memory(transport.LocalWrite)
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 600, 4096), Remote: oneRemote(1 << 30)}, limits(caps), table.View()))
	require.Equal(t, Cost{WRs: 9, Reads: 3, Registrations: 3, Invalidations: 3}, p.Cost)
	for _, wr := range p.wrs {
		require.Equal(t, transport.OpRead, wr.Op)
	}
}

func TestOnlyTheLastReadOfARegistrationInvalidatesIt(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	var p plan
	remote := []transport.Remote{{Addr: 1, Len: 1000, Key: 1}, {Addr: 5000, Len: 100_000, Key: 2}}
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 2, 4096), Remote: remote}, limits(capsSIWKernel), table.View()))
	require.Equal(t, Cost{WRs: 3, Reads: 2, Registrations: 1}, p.Cost)
	require.Equal(t, transport.OpRead, p.wrs[0].Op)
	require.Equal(t, transport.OpReadWithInv, p.wrs[1].Op)
}

func TestNeighbouringPiecesOfOneRegionMerge(t *testing.T) {
	table, regions := memory(transport.LocalWrite, transport.LocalWrite)
	r, q := regions[0], regions[1]
	list := []transport.Piece{r.Piece(0, 100), r.Piece(100, 50), r.Piece(150, 0), r.Piece(150, 1), q.Piece(0, 10), q.Piece(20, 10)}
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Write, Local: list, Remote: oneRemote(1000)}, limits(capsRXE), table.View()))
	require.Equal(t, []transport.SGE{{Addr: r.Addr(), Len: 151, LKey: 0x100}, {Addr: q.Addr(), Len: 10, LKey: 0x200}, {Addr: q.Addr() + 20, Len: 10, LKey: 0x200}}, p.sges)

	require.NoError(t, p.make(&Transfer{Op: Read, Local: list, Remote: oneRemote(1000)}, limits(capsSIW), table.View()))
	require.Equal(t, 3, p.Cost.Registrations, "a run is registered once, and ends at its region's border")
}

func TestPlanRefusals(t *testing.T) {
	table, regions := memory(transport.LocalWrite, 0)
	r, readOnly := regions[0], regions[1]
	small := limits(capsSIW)
	small.SendWR = 10
	few := limits(capsSIW)
	few.SyncMRs = 3
	noPool := limits(capsSIWKernel)
	noPool.FastMRs, noPool.SyncMRs = 0, 0
	hardware := capsSIW
	hardware.ReadSinkNeedsRemoteWrite = true
	direct := limits(hardware)
	direct.Policy.Sink = SinkDirect
	noPages := limits(capsSIWKernel)
	noPages.FastPages = 0
	tests := []struct {
		name string
		lim  *Limits
		t    Transfer
		want error
	}{
		{"empty list", limits(capsRXE), Transfer{Op: Read}, transport.ErrInvalid},
		{"not a transfer", limits(capsRXE), Transfer{Op: Send, Local: scattered(r, 1, 1)}, transport.ErrInvalid},
		{"offset past the end", limits(capsRXE), Transfer{Op: Write, Local: scattered(r, 2, 100), Offset: 201}, transport.ErrRange},
		{"length past the end", limits(capsRXE), Transfer{Op: Write, Local: scattered(r, 2, 100), Offset: 50, Length: 151}, transport.ErrRange},
		{"length after the end", limits(capsRXE), Transfer{Op: Write, Local: scattered(r, 2, 100), Offset: 200, Length: 1}, transport.ErrRange},
		{"no remote", limits(capsRXE), Transfer{Op: Write, Local: scattered(r, 1, 1)}, transport.ErrRange},
		{"remote too short", limits(capsRXE), Transfer{Op: Write, Local: scattered(r, 2, 100), Remote: oneRemote(199)}, transport.ErrRange},
		{"remote too short, registered by requests", limits(capsSIWKernel), Transfer{Op: Read, Local: scattered(r, 2, 100), Remote: oneRemote(199)}, transport.ErrRange},
		{"remote too short, registered by calls", limits(capsSIW), Transfer{Op: Read, Local: scattered(r, 2, 100), Remote: oneRemote(199)}, transport.ErrRange},
		{"remote wraps around", limits(capsRXE), Transfer{Op: Write, Local: scattered(r, 1, 100), Remote: []transport.Remote{{Addr: math.MaxUint64 - 10, Len: 100}}}, transport.ErrRange},
		{"outside the region", limits(capsRXE), Transfer{Op: Write, Local: []transport.Piece{r.Piece(1<<30-1, 2)}, Remote: oneRemote(2)}, transport.ErrRange},
		{"address wraps around", limits(capsRXE), Transfer{Op: Write, Local: []transport.Piece{{Addr: math.MaxUint64, Len: 2, Region: r.ID()}}, Remote: oneRemote(2)}, transport.ErrRange},
		{"unknown region", limits(capsRXE), Transfer{Op: Write, Local: []transport.Piece{{Addr: r.Addr(), Len: 2, Region: r.ID() + 1<<20}}, Remote: oneRemote(2)}, transport.ErrRegion},
		{"sink not writable, direct", limits(capsRXE), Transfer{Op: Read, Local: scattered(readOnly, 1, 2), Remote: oneRemote(2)}, transport.ErrAccess},
		{"sink not writable, registered", limits(capsSIW), Transfer{Op: Read, Local: scattered(readOnly, 1, 2), Remote: oneRemote(2)}, transport.ErrAccess},
		{"more than the send queue", small, Transfer{Op: Read, Local: scattered(r, 11, 2), Remote: oneRemote(22)}, ErrTooLarge},
		{"more than the pool", few, Transfer{Op: Read, Local: scattered(r, 4, 2), Remote: oneRemote(8)}, ErrTooLarge},
		{"pool without fast registrations", noPool, Transfer{Op: Read, Local: scattered(r, 4, 2), Remote: oneRemote(8)}, ErrTooLarge},
		{"page lists that hold nothing, for which calls don't stand in", noPages, Transfer{Op: Read, Local: scattered(r, 1, 2), Remote: oneRemote(2)}, transport.ErrUnsupported},
		{"direct sink on hardware that needs remote write", direct, Transfer{Op: Read, Local: scattered(r, 1, 2), Remote: oneRemote(2)}, transport.ErrUnsupported},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p plan
			require.ErrorIs(t, p.make(&tt.t, tt.lim, table.View()), tt.want)
		})
	}
}

func TestOffsetAtTheVeryEndTransfersNothing(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 2, 100), Offset: 200}, limits(capsRXE), table.View()))
	require.Equal(t, Plan{}, p.Plan)
}

// Lists of whole pages are planned without a look at each piece; but they are planned as
// any list is, whatever part of them is transferred. A piece of nothing at the end has
// each looked at.
func TestWholePagesArePlannedLikeAnyList(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	const page, n = 4096, 7
	list := scattered(regions[0], n, page)
	byPiece := append(list[:n:n], transport.Piece{})
	lim := limits(capsSIWKernel)
	lim.FastPages = 3
	var fast, slow plan
	paged := 0
	for offset := uint64(0); offset < n*page; offset += page / 2 {
		rest := n*page - offset
		for _, length := range []uint64{0, 1, page / 2, page, page + 1, rest - page, rest - page/2, rest - 1, rest, rest + 1, rest + offset, rest + page} {
			tr := Transfer{Op: Read, Local: list, Offset: offset, Length: length, Remote: oneRemote(1 << 20)}
			err := fast.make(&tr, lim, table.View())
			tr.Local = byPiece
			if slow.make(&tr, lim, table.View()) != nil {
				require.ErrorIs(t, err, transport.ErrRange, "%d bytes from %d on", length, offset)
				continue
			}
			require.NoError(t, err)
			if fast.paged {
				paged++
			}
			require.False(t, slow.paged)
			fast.paged = false
			require.Equal(t, slow, fast, "%d bytes from %d on", length, offset)
		}
	}
	require.NotZero(t, paged)
}

// What the CPU can't write to isn't staged, wherever it stands in the list, unless no byte
// of it is transferred: it is registered then.
func TestOnlyWhatTheCPUSeesIsStaged(t *testing.T) {
	var ids transport.RegionIDs
	var table transport.RegionTable
	var regions [2]*transport.Region
	for i, mem := range [][]byte{make([]byte, 1<<20), nil} {
		id, err := ids.Take()
		require.NoError(t, err)
		regions[i] = transport.NewRegion(id, uint64(i+1)<<40, 1<<20, transport.LocalWrite, mem, nil, nil)
		require.NoError(t, table.Add(regions[i], transport.LKey(i+1)))
	}
	seen, unseen := regions[0].Piece(0, 1000), regions[1].Piece(0, 1000)
	lim := limits(capsSIW)
	lim.StagingSlots, lim.StagingSlot = 4, 1000
	lim.Policy.Sink = SinkStaging
	for _, tt := range []struct {
		list           []transport.Piece
		offset, length uint64
		want           Strategy
	}{
		{[]transport.Piece{seen}, 0, 0, Staged},
		{[]transport.Piece{unseen}, 0, 0, SyncReg},
		{[]transport.Piece{seen, unseen}, 0, 0, SyncReg},
		{[]transport.Piece{seen, unseen}, 0, 1000, Staged},
		{[]transport.Piece{seen, unseen}, 0, 1001, SyncReg},
		{[]transport.Piece{seen, unseen}, 1, 999, Staged},
		{[]transport.Piece{seen, unseen}, 1, 1000, SyncReg},
		{[]transport.Piece{unseen, seen}, 999, 0, SyncReg},
		{[]transport.Piece{unseen, seen}, 1000, 0, Staged},
		{[]transport.Piece{seen, seen, unseen}, 0, 2001, SyncReg},
		{[]transport.Piece{seen, seen, unseen}, 0, 2000, Staged},
		{[]transport.Piece{seen, {}, seen}, 0, 0, Staged},
	} {
		var p plan
		tr := Transfer{Op: Read, Local: tt.list, Offset: tt.offset, Length: tt.length, Remote: oneRemote(1 << 20)}
		require.NoError(t, p.make(&tr, lim, table.View()))
		require.Equal(t, tt.want, p.Strategy, "%d bytes from %d on of %v", tt.length, tt.offset, tt.list)
	}
}

// A device that reports no limit for READs at all is taken at its least.
func TestZeroMaxSGEReadMeansOne(t *testing.T) {
	caps := capsRXE
	caps.MaxSGERead = 0
	table, regions := memory(transport.LocalWrite)
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 3, 100), Remote: oneRemote(300)}, limits(caps), table.View()))
	require.Equal(t, 3, p.Cost.Reads)
}

// What must hold of any plan: every byte is moved exactly once, from and to where
// it should, and within the limits.
func TestAnyPlanMovesEveryByteOnce(t *testing.T) {
	table, regions := memory(transport.LocalWrite, transport.LocalWrite)
	rapid.Check(t, func(t *rapid.T) {
		caps := rapid.SampledFrom([]transport.Caps{capsRXE, capsSIW, capsSIWKernel}).Draw(t, "caps")
		caps.MaxMsg = rapid.SampledFrom([]uint64{0, 1, 7, 4096, 1 << 20}).Draw(t, "max message")
		caps.MaxSendSGE = rapid.IntRange(1, 5).Draw(t, "SGEs")
		lim := limits(caps)
		lim.FastPages = rapid.IntRange(1, 4).Draw(t, "pages")
		lim.FastMRs, lim.SyncMRs = 1<<20, 1<<20
		op := rapid.SampledFrom([]Op{Read, Write}).Draw(t, "op")

		var list []transport.Piece
		var local []uint64 // the address of each byte of the list
		at := []uint64{0, 0}
		for range rapid.IntRange(1, 6).Draw(t, "pieces") {
			r := rapid.IntRange(0, 1).Draw(t, "region")
			if rapid.Bool().Draw(t, "apart") {
				at[r] += rapid.Uint64Range(0, 5000).Draw(t, "gap")
			}
			if rapid.Bool().Draw(t, "aligned") {
				at[r] = (at[r] + 4095) &^ 4095
			}
			n := rapid.Uint32Range(0, 9000).Draw(t, "length")
			p := regions[r].Piece(at[r], n)
			list = append(list, p)
			for i := range uint64(n) {
				local = append(local, p.Addr+i)
			}
			at[r] += uint64(n)
		}
		offset := rapid.Uint64Range(0, uint64(len(local))).Draw(t, "offset")
		local = local[offset:]
		var length uint64
		if len(local) > 0 && rapid.Bool().Draw(t, "partial") {
			length = rapid.Uint64Range(1, uint64(len(local))).Draw(t, "length")
			local = local[:length]
		}
		var remotes []transport.Remote
		type far struct {
			addr uint64
			key  transport.RKey
		}
		var remote []far
		for i := 0; len(remote) < len(local); i++ {
			r := transport.Remote{Addr: uint64(i) << 32, Len: rapid.Uint32Range(0, 20000).Draw(t, "remote"), Key: transport.RKey(i)}
			if i > 5 {
				r.Len = 1 << 20
			}
			remotes = append(remotes, r)
			for j := range uint64(r.Len) {
				remote = append(remote, far{r.Addr + j, r.Key})
			}
		}

		var p plan
		err := p.make(&Transfer{Op: op, Local: list, Offset: offset, Length: length, Remote: remotes}, lim, table.View())
		require.NoError(t, err)
		require.Equal(t, uint64(len(local)), p.Bytes)

		// Walk the requests, and take the bytes off both lists.
		next := 0
		segment, used := -1, 0
		var iova transport.Extent
		for _, wr := range p.wrs {
			if p.Strategy == FastReg || p.Strategy == SyncReg {
				if segment < 0 || used == p.segs[segment].wrs {
					segment, used = segment+1, 0
					seg := p.segs[segment]
					if p.Strategy == FastReg {
						iova = transport.Coverage(list, seg.from, seg.len, lim.PageShift, lim.FastPages, false)
					} else {
						iova = transport.Contiguous(list, seg.from, seg.len)
					}
					require.Equal(t, seg.len, iova.Len, "a segment fits one registration")
				}
				used++
				require.LessOrEqual(t, wr.NumSGE, uint16(1))
			}
			limit := caps.MaxSendSGE
			if op == Read {
				limit = min(limit, caps.MaxSGERead)
			}
			require.LessOrEqual(t, int(wr.NumSGE), limit)
			require.NotZero(t, wr.NumSGE)
			var bytes uint64
			for _, sge := range p.sges[wr.FirstSGE:][:wr.NumSGE] {
				require.NotZero(t, sge.Len)
				for i := range uint64(sge.Len) {
					addr := sge.Addr + i
					right := remote[next] == far{wr.RemoteAddr + bytes, wr.RKey}
					switch p.Strategy {
					case Direct:
						right = right && sge.LKey == transport.LKey(0x100*(local[next]>>40)) && addr == local[next]
					case SyncReg:
						right = right && iova.IOVA+addr == local[next]
					case FastReg:
						right = right && addr < iova.Len
					}
					if !right {
						t.Fatalf("byte %d of the transfer: request %+v, SGE %+v", next, wr, sge)
					}
					next++
					bytes++
				}
			}
			if caps.MaxMsg > 0 {
				require.LessOrEqual(t, bytes, caps.MaxMsg)
			}
		}
		require.Equal(t, len(local), next, "all bytes")
		want := len(p.wrs)
		if p.Strategy == FastReg {
			want += len(p.segs)
		}
		require.Equal(t, want, p.Cost.WRs, "the cost is exact")
	})
}
