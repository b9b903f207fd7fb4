package rw_test

import (
	"context"
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// must ends the example at the first error.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// exampleSide is what either end of the example has.
type exampleSide struct {
	dev    *sim.Device
	region *transport.Region
	sizes  rw.Sizes
	pool   *mrpool.Pool
	poller *rw.Poller
}

// newExampleSide makes it, for one connection with one transfer and one exposure at a time.
func newExampleSide(f *sim.Fabric, profile, name string, cfg rw.PollerConfig) *exampleSide {
	s := new(exampleSide)
	p, _ := sim.LookupProfile(profile)
	s.dev = must(f.NewDevice(p, name))
	pd := must(s.dev.NewPD())
	// Memory that READs may land in, and that may be exposed.
	s.region = must(s.dev.NewRegion(transport.RegionConfig{Size: 1 << 20, Access: transport.LocalWrite | transport.BindWindow}))
	check(pd.AddRegion(s.region))
	// What that takes depends on the device.
	s.sizes = must(rw.Size(rw.Workload{Reads: 1, Bytes: 4096, Pieces: 2, Exposures: 1}, s.dev.Caps(), rw.Policy{}, 0))
	s.pool = must(mrpool.New(pd, s.sizes.Pool()))
	s.poller = must(rw.NewPoller(s.dev, s.sizes.CQEntries, cfg))
	return s
}

// endpoint makes the queue pair of a connection, so that receives could be posted.
func (s *exampleSide) endpoint(conn transport.Conn) *rw.Endpoint {
	return must(s.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: s.pool, QueueCaps: s.sizes.Queues()}))
}

// A server READs what a client exposed for it. On this device, siw, exactly the
// sink is registered for just that READ; on InfiniBand the same lines scatter
// straight into the memory.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	fabric := sim.New(sim.Config{})
	defer fabric.Close()
	client := newExampleSide(fabric, "siw", "client", rw.PollerConfig{})
	server := newExampleSide(fabric, "siw", "server", rw.PollerConfig{})
	go client.poller.Run(ctx, nil)
	go server.poller.Run(ctx, nil)

	// Connect.
	listener := must(server.dev.Listen("server:4420"))
	accepted := make(chan *rw.Endpoint)
	go func() {
		ep := server.endpoint(must(listener.Next(ctx)))
		must(ep.Accept(ctx, transport.ConnParams{}))
		accepted <- ep
	}()
	clientEP := client.endpoint(must(client.dev.Resolve(ctx, "server:4420")))
	must(clientEP.Connect(ctx, transport.ConnParams{}))
	serverEP := <-accepted

	// The client exposes eleven bytes. A real one sends x.Remotes() in a message,
	// chained behind the grant.
	copy(client.region.Bytes()[100:], "hello, RDMA")
	var x rw.Exposure
	check(clientEP.Expose(&x, []transport.Piece{client.region.Piece(100, 11)}, mrpool.ReadSource))
	check(clientEP.Do(ctx, &x.Grant))

	// The server fetches them into two pieces of its own memory.
	var c rw.Context
	check(serverEP.Prepare(&c, rw.Transfer{
		Op:     rw.Read,
		Local:  []transport.Piece{server.region.Piece(0, 5), server.region.Piece(4096, 6)},
		Remote: x.Remotes(),
	}))
	check(serverEP.Do(ctx, &c))
	fmt.Println(c.Plan().Strategy, c.Plan().Cost.Registrations, "registrations")
	fmt.Printf("%s|%s\n", server.region.Bytes()[:5], server.region.Bytes()[4096:4102])

	// When this returns the server can't READ them any more.
	check(clientEP.Do(ctx, &x.Revoke))
	check(listener.Close())
	check(clientEP.Close())
	check(serverEP.Close())
	// Output:
	// sync-reg 2 registrations
	// hello|, RDMA
}
