package rw

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

var capsMLX5Kernel = transport.Caps{Device: "mlx5-kernel", Protocol: transport.RoCE, MaxSendSGE: 30, MaxSGERead: 30, MaxSGLRead: 3, MaxMsg: 1 << 30,
	FastReg: transport.FastRegCaps{MaxPages: 1 << 16, PageSizes: 1 << 12, Gaps: true}}

// The hint is about what the hardware sees, merged pieces, and not about pages: rw.c
// compared the raw page count, registered everything, and drained the pool
// (f28599f3969d).
func TestHintCountsMergedPieces(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	r := regions[0]
	var pages []transport.Piece
	for i := range uint64(256) {
		pages = append(pages, r.Piece(i*4096, 4096))
	}
	var p plan
	lim := limits(capsMLX5Kernel)
	lim.FastPages = 256
	require.NoError(t, p.make(&Transfer{Op: Read, Local: pages, Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, Plan{Strategy: Direct, Bytes: 1 << 20, Cost: Cost{WRs: 1, Reads: 1}}, p.Plan)
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(r, 4, 4096), Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, FastReg, p.Strategy)
	require.True(t, p.optional)
}

// A registration has to be worth it: for each more SGEs than the hint. Gaps make one
// for each piece, which helps nobody.
func TestRegistrationThatMergesNothingIsNotPreferred(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	caps := capsMLX5Kernel
	caps.FastReg.Gaps = false
	lim := limits(caps)
	lim.FastPages = 256
	unaligned := scattered(regions[0], 40, 1000)
	for i := range unaligned {
		unaligned[i].Addr += 100
	}
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Read, Local: unaligned, Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, Plan{Strategy: Direct, Bytes: 40000, Cost: Cost{WRs: 2, Reads: 2}}, p.Plan)
	lim.FastPages = 4 // 40 pages in 10 registrations, 4 SGEs each
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 40, 4096), Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, FastReg, p.Strategy, "needs no gaps")
	lim.FastPages = 3 // 3 SGEs each: what the device does as well directly
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 40, 4096), Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, Direct, p.Strategy)
}

// Where the chain with registrations, and the invalidations before them, exceeds the
// send queue, direct will do; where direct doesn't fit, an empty pool is waited for.
func TestHintYieldsToTheSendQueue(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	lim := limits(capsMLX5Kernel)
	lim.FastPages = 256
	list := scattered(regions[0], 30, 4096)
	var p plan
	lim.SendWR = 3
	require.NoError(t, p.make(&Transfer{Op: Read, Local: list, Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, FastReg, p.Strategy)
	lim.SendWR = 2 // INV, REG, READ
	require.NoError(t, p.make(&Transfer{Op: Read, Local: list, Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, Direct, p.Strategy)
	lim.SendWR, lim.SendSGE = 3, 5
	require.NoError(t, p.make(&Transfer{Op: Read, Local: list, Remote: oneRemote(1 << 20)}, lim, table.View()))
	require.Equal(t, FastReg, p.Strategy)
	require.False(t, p.optional, "6 READs don't fit")
}

// What can't be copied by the CPU isn't staged: it is registered.
func TestMemoryThatTheCPUCantSeeIsNotStaged(t *testing.T) {
	table, regions := memory(transport.LocalWrite) // regions without bytes
	lim := limits(capsSIW)
	lim.Policy.Sink, lim.StagingSlots, lim.StagingSlot = SinkStaging, 4, 4096
	var p plan
	require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 2, 4096), Remote: oneRemote(8192)}, lim, table.View()))
	require.Equal(t, SyncReg, p.Strategy)

	var ids transport.RegionIDs
	ids.Take()
	id, err := ids.Take()
	require.NoError(t, err)
	visible := transport.NewRegion(id, 9<<40, 1<<16, transport.LocalWrite, make([]byte, 1<<16), nil, nil)
	require.NoError(t, table.Add(visible, 0x900))
	tr := Transfer{Op: Read, Local: []transport.Piece{visible.Piece(0, 100), regions[0].Piece(0, 100)}, Remote: oneRemote(8192)}
	require.NoError(t, p.make(&tr, lim, table.View()))
	require.Equal(t, SyncReg, p.Strategy)
	tr.Length = 100 // only what can be seen
	require.NoError(t, p.make(&tr, lim, table.View()))
	require.Equal(t, Staged, p.Strategy)
	tr.Offset, tr.Length = 50, 51
	require.NoError(t, p.make(&tr, lim, table.View()))
	require.Equal(t, SyncReg, p.Strategy)
}

// A pool whose fast registrations don't suffice has others.
func TestSynchronousRegistrationsStandInForFastOnes(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	lim := limits(capsSIWKernel)
	lim.FastMRs, lim.FastPages, lim.SyncMRs = 2, 1, 3
	var p plan
	for n, want := range map[int]Strategy{2: FastReg, 3: SyncReg} {
		require.NoError(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], n, 4096), Remote: oneRemote(1 << 20)}, lim, table.View()))
		require.Equal(t, want, p.Strategy)
	}
	require.ErrorIs(t, p.make(&Transfer{Op: Read, Local: scattered(regions[0], 4, 4096), Remote: oneRemote(1 << 20)}, lim, table.View()), ErrTooLarge)
	// A registration is no larger than the device's largest.
	caps := capsSIW
	caps.MaxMRSize = 4096
	require.NoError(t, p.make(&Transfer{Op: Read, Local: []transport.Piece{regions[0].Piece(0, 3*4096+1)}, Remote: oneRemote(1 << 20)}, limits(caps), table.View()))
	require.Equal(t, 4, p.Cost.Registrations)
}
