package rw_test

import (
	"fmt"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// Why a plan is what it is: the decision is taken once more, with its reasons.
func ExampleExplain() {
	fabric := sim.New(sim.Config{Stepped: true})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("rxe")
	dev, _ := fabric.NewDevice(profile, "rxe0")
	pd, _ := dev.NewPD()
	region, _ := dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite})
	pd.AddRegion(region)
	x, err := rw.Explain(
		rw.Transfer{Op: rw.Read, Local: []transport.Piece{region.Piece(0, 4096)}, Remote: []transport.Remote{{Len: 4096}}},
		rw.Limits{Caps: dev.Caps(), SendSGE: 16},
		pd.Regions().View())
	fmt.Println(x.Plan.Strategy, x.Plan.Cost.WRs, err)
	fmt.Println(x.Reason)
	// Output:
	// direct 1 <nil>
	// on RoCE the key of a READ's sink stays with the local device, so the regions' own lkeys serve; up to 16 SGEs per READ
}
