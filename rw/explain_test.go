package rw

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// profileLimits is what an endpoint of a simulated device has.
func profileLimits(t *testing.T, name string) Limits {
	profile, ok := sim.LookupProfile(name)
	require.True(t, ok)
	caps := profile.Caps
	caps.Device = name
	lim := Limits{Caps: &caps, SendSGE: caps.MaxSendSGE, SendWR: 511, SyncMRs: 256, PageShift: 12}
	if caps.FastReg.MaxPages > 0 {
		lim.FastMRs, lim.FastPages = 16, 256
	}
	if caps.Windows != transport.NoWindows {
		lim.Windows = 256
	}
	return lim
}

func requireGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "explain", name)
	if *updateGolden {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to make it")
	require.Equal(t, string(want), got)
}

func TestExplanationsReadAsBefore(t *testing.T) {
	table, regions := memory(transport.LocalWrite | transport.BindWindow)
	for _, device := range []string{"rxe", "siw", "siw-kernel"} {
		lim := profileLimits(t, device)
		for _, tt := range []struct {
			name   string
			op     Op
			pieces int
		}{
			{"read-1", Read, 1}, {"read-33", Read, 33}, {"read-64", Read, 64}, {"read-256", Read, 256}, {"write-64", Write, 64},
		} {
			t.Run(device+"/"+tt.name, func(t *testing.T) {
				list := scattered(regions[0], tt.pieces, 4096)
				x, err := Explain(Transfer{Op: tt.op, Local: list, Remote: oneRemote(uint64(tt.pieces) * 4096)}, lim, table.View())
				require.NoError(t, err)
				requireGolden(t, device+"-"+tt.name+".golden", x.String())
			})
		}
		t.Run(device+"/expose-3", func(t *testing.T) {
			x, err := ExplainExposure(scattered(regions[0], 3, 4096), mrpool.WriteSink, lim, table.View())
			require.NoError(t, err)
			requireGolden(t, device+"-expose-3.golden", x.String())
		})
	}
}

// The explanation's chain is put together from the plan, as the real one is: they
// must not drift apart.
func TestExplainedChainIsThePostedOne(t *testing.T) {
	for _, withInv := range []bool{true, false} {
		fabric := sim.New(sim.Config{Stepped: true})
		profile, _ := sim.LookupProfile("siw-kernel")
		profile.Caps.ReadWithInv = withInv
		dev, err := fabric.NewDevice(profile, "siw-kernel")
		require.NoError(t, err)
		pd, err := dev.NewPD()
		require.NoError(t, err)
		region, err := dev.NewRegion(transport.RegionConfig{Size: 16 << 20, Access: transport.LocalWrite})
		require.NoError(t, err)
		require.NoError(t, pd.AddRegion(region))
		pool, err := mrpool.New(pd, mrpool.Config{FastMRs: 4})
		require.NoError(t, err)

		lim := profileLimits(t, "siw-kernel")
		lim.Caps = dev.Caps()
		tr := Transfer{Op: Read, Local: scattered(region, 600, 4096), Remote: []transport.Remote{
			{Addr: 0x1000, Len: 5000, Key: 0x100}, {Addr: 0x100000, Len: 4 << 20, Key: 0x200}}}
		x, err := Explain(tr, lim, pd.Regions().View())
		require.NoError(t, err)

		c := Context{op: Read, transfer: tr}
		require.NoError(t, c.plan.make(&tr, &lim, pd.Regions().View()))
		c.mrs = make([]*mrpool.MR, c.plan.Cost.Registrations)
		require.NoError(t, pool.Take(transport.FastMR, c.mrs, "test"))
		var a arena
		require.NoError(t, c.emit(&a))
		c.putBack()

		require.Len(t, x.Phases, 1)
		chain := x.Phases[0].Chain
		require.Len(t, chain, len(a.wrs))
		require.Equal(t, x.Plan.Cost.WRs, len(chain))
		var bytes uint64
		for i, wr := range a.wrs {
			require.Equal(t, wr.Op, chain[i].Op, i)
			require.Equal(t, wr.Flags, chain[i].Flags&^transport.Signaled, i)
			if wr.Op.IsRead() {
				require.Equal(t, int(wr.NumSGE), chain[i].SGEs)
				bytes += chain[i].Bytes
			}
		}
		require.Equal(t, x.Plan.Bytes, bytes)
		require.NoError(t, errors.Join(pool.Close(), pd.RemoveRegion(region), pd.Close(), region.Close(), dev.Close(), fabric.Close()))
	}
}

func TestChainsWithoutReadWithInvalidateAreFencedOnce(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	lim := profileLimits(t, "siw-kernel")
	lim.Caps.ReadWithInv = false
	x, err := Explain(Transfer{Op: Read, Local: scattered(regions[0], 512, 4096), Remote: oneRemote(512 * 4096)}, lim, table.View())
	require.NoError(t, err)
	require.Contains(t, x.String(), "REG0 READ0 REG1 READ1 INV0(fence) INV1\n")
}

func TestRefusedTransfersAreExplained(t *testing.T) {
	table, regions := memory(transport.LocalWrite, 0)
	siw := profileLimits(t, "siw")
	list := scattered(regions[0], 300, 4096)

	x, err := Explain(Transfer{Op: Read, Local: list, Remote: oneRemote(300 * 4096)}, siw, table.View())
	require.ErrorIs(t, err, ErrTooLarge)
	require.Empty(t, x.Phases)
	require.Contains(t, x.String(), "refused: ")
	require.Contains(t, x.String(), "With policy direct it would take 300 requests and no registration")

	_, err = Explain(Transfer{Op: Read, Local: scattered(regions[1], 1, 4096), Remote: oneRemote(4096)}, siw, table.View())
	require.ErrorIs(t, err, transport.ErrAccess)

	x, err = ExplainExposure(list, mrpool.ReadSource, siw, table.View())
	require.ErrorIs(t, err, mrpool.ErrEmpty)
	require.Empty(t, x.Phases)
	_, err = ExplainExposure(list, 0, siw, table.View())
	require.ErrorIs(t, err, transport.ErrInvalid)
	_, err = ExplainExposure(list, mrpool.ReadSource, profileLimits(t, "rxe"), table.View())
	require.ErrorIs(t, err, transport.ErrAccess, "windows need a region that grants them")
}

// What there are too few of is passed over, in Expose as in its explanation.
func TestExposureFallBackIsExplained(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	list := scattered(regions[0], 20, 4095) // gaps: a registration for each
	lim := profileLimits(t, "mlx5-kernel")
	lim.Caps.FastReg.Gaps = false
	lim.FastMRs = 19
	x, err := ExplainExposure(list, mrpool.ReadSource, lim, table.View())
	require.NoError(t, err)
	require.Equal(t, Plan{Strategy: SyncReg, Fallback: true, Bytes: 20 * 4095, Cost: Cost{Registrations: 20}}, x.Plan)
	require.Contains(t, x.String(), "fallback, since what the device does best can't be had (expose by FRWR: takes 20, the pool has 19")
	lim.SyncMRs = 19
	_, err = ExplainExposure(list, mrpool.ReadSource, lim, table.View())
	require.ErrorIs(t, err, mrpool.ErrEmpty)
	require.ErrorContains(t, err, "by FRWR", "the best is what is missed")
}

func TestEveryStrategyIsChosenOrRejectedOnce(t *testing.T) {
	table, regions := memory(transport.LocalWrite | transport.BindWindow)
	for _, device := range []string{"rxe", "siw", "siw-kernel"} {
		lim := profileLimits(t, device)
		list := scattered(regions[0], 20, 4096)
		read, err := Explain(Transfer{Op: Read, Local: list, Remote: oneRemote(20 * 4096)}, lim, table.View())
		require.NoError(t, err)
		write, err := Explain(Transfer{Op: Write, Local: list, Remote: oneRemote(20 * 4096)}, lim, table.View())
		require.NoError(t, err)
		expose, err := ExplainExposure(list, mrpool.ReadSource, lim, table.View())
		require.NoError(t, err)
		for _, x := range []Explanation{read, write, expose} {
			all := []Strategy{x.Plan.Strategy}
			for _, alt := range x.Rejected {
				all = append(all, alt.Strategy)
				require.NotEmpty(t, strings.TrimSpace(alt.Reason))
			}
			want := []Strategy{Direct, FastReg, SyncReg, WindowBind}
			if !strings.HasPrefix(x.Subject, "expos") {
				want = append(want, Staged)
			}
			require.ElementsMatch(t, want, all, x.Subject)
		}
	}
}

func TestNothingToDoIsExplained(t *testing.T) {
	table, regions := memory(transport.LocalWrite)
	x, err := Explain(Transfer{Op: Read, Local: []transport.Piece{regions[0].Piece(0, 0)}}, profileLimits(t, "siw"), table.View())
	require.NoError(t, err)
	require.Equal(t, Nothing, x.Plan.Strategy)
	require.Empty(t, x.Phases)
	require.Empty(t, x.Rejected)
}
