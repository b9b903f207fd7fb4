package mrpool_test

import (
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// One use of a memory window: the peer may READ one piece, under a key that is
// not valid before the requests ran, and dead after the revocation.
func Example() {
	profile, _ := sim.LookupProfile("rxe")
	fabric := sim.New(sim.Config{Stepped: true})
	defer fabric.Close()
	dev, _ := fabric.NewDevice(profile, "storage-0")
	pd, _ := dev.NewPD()
	region, _ := dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite | transport.BindWindow})
	pd.AddRegion(region)

	pool, err := mrpool.New(pd, mrpool.Config{Windows: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	var mr [1]*mrpool.MR
	if err := pool.Take(transport.Window, mr[:], "request 1"); err != nil {
		fmt.Println(err)
		return
	}
	list := []transport.Piece{region.Piece(4096, 8192)}
	remote, _ := mr[0].MapRemote(list, transport.Cursor{}, 0, mrpool.ReadSource)
	for _, wr := range mr[0].AppendValid(nil) {
		fmt.Println(wr.Op, "gives the peer", remote.Len, "bytes")
	}
	mr[0].Posted() // when the queue pair took them
	fmt.Println("put back as it is:", !mr[0].Put())
	fmt.Println("after repair:", pool.Repair(), pool.Stats(transport.Window).Free, "free")
	fmt.Println(pool.Close())
	// Output:
	// BIND_MW gives the peer 8192 bytes
	// put back as it is: false
	// after repair: <nil> 8 free
	// <nil>
}
