package rw_test

import (
	"context"
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// exampleSide is what either end of the example has.
type exampleSide struct {
	dev    *sim.Device
	region *transport.Region
	pool   *mrpool.Pool
	poller *rw.Poller
}

func newExampleSide(f *sim.Fabric, profile sim.Profile, name string) *exampleSide {
	s := new(exampleSide)
	s.dev, _ = f.NewDevice(profile, name)
	pd, _ := s.dev.NewPD()
	// Memory that READs may land in, and that may be exposed.
	s.region, _ = s.dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite | transport.BindWindow})
	pd.AddRegion(s.region)
	s.pool, _ = mrpool.New(pd, mrpool.Config{SyncMRs: 16})
	s.poller, _ = rw.NewPoller(s.dev, 1024, rw.PollerConfig{})
	go s.poller.Run(context.Background(), nil)
	return s
}

// A server READs what a client exposed for it. On this device, siw, exactly the
// sink is registered for just that READ; on InfiniBand the same lines scatter
// straight into the memory.
func Example() {
	ctx := context.Background()
	fabric := sim.New(sim.Config{})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("siw")
	client, server := newExampleSide(fabric, profile, "client"), newExampleSide(fabric, profile, "server")

	// Connect. Queue pairs come first, so that receives could be posted.
	listener, _ := server.dev.Listen("server:4420")
	accepted := make(chan *rw.Endpoint)
	go func() {
		conn, _ := listener.Next(ctx)
		ep, _ := server.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: server.pool})
		ep.Accept(ctx, transport.ConnParams{})
		accepted <- ep
	}()
	conn, _ := client.dev.Resolve(ctx, "server:4420")
	clientEP, _ := client.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: client.pool})
	clientEP.Connect(ctx, transport.ConnParams{})
	serverEP := <-accepted

	// The client exposes eleven bytes. A real one sends x.Remotes() in a message,
	// chained behind the grant.
	copy(client.region.Bytes()[100:], "hello, RDMA")
	var x rw.Exposure
	clientEP.Expose(&x, []transport.Piece{client.region.Piece(100, 11)}, mrpool.ReadSource)
	clientEP.Do(ctx, &x.Grant)

	// The server fetches them into two pieces of its own memory.
	var c rw.Context
	err := serverEP.Prepare(&c, rw.Transfer{
		Op:     rw.Read,
		Local:  []transport.Piece{server.region.Piece(0, 5), server.region.Piece(4096, 6)},
		Remote: x.Remotes(),
	})
	if err == nil {
		err = serverEP.Do(ctx, &c)
	}
	fmt.Println(err, c.Plan().Strategy, c.Plan().Cost.Registrations, "registrations")
	fmt.Printf("%s|%s\n", server.region.Bytes()[:5], server.region.Bytes()[4096:4102])

	// When this returns the server can't READ them any more.
	fmt.Println(clientEP.Do(ctx, &x.Revoke))
	clientEP.Close()
	serverEP.Close()
	// Output:
	// <nil> sync-reg 2 registrations
	// hello|, RDMA
	// <nil>
}

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
