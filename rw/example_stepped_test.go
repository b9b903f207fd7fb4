package rw_test

import (
	"context"
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// A test of a protocol in one goroutine: nothing moves but by a step of the fabric, in virtual
// time, and each run with the same seed is the same.
func Example_stepped() {
	ctx := context.Background()
	fabric := sim.New(sim.Config{Stepped: true, Seed: 1})
	defer fabric.Close()
	// Calls that block are made inside Poll, and deadlines are of the fabric's time.
	cfg := rw.PollerConfig{Workers: -1, Now: fabric.Clock()}
	client, server := newExampleSide(fabric, "siw", "client", cfg), newExampleSide(fabric, "siw", "server", cfg)

	// Connect: none of these calls waits for what this goroutine has yet to do. Next and
	// Established move the fabric themselves.
	listener := must(server.dev.Listen("server:4420"))
	conn := must(client.dev.Resolve(ctx, "server:4420"))
	clientEP := client.endpoint(conn)
	check(conn.Connect(transport.ConnParams{})) // the endpoint's Connect would wait for Accept
	serverEP := server.endpoint(must(listener.Next(ctx)))
	must(serverEP.Accept(ctx, transport.ConnParams{}))
	must(clientEP.Established(ctx))

	// Both sides are polled between steps; contexts are handled by their OnDone, or here.
	poll := func(p *rw.Poller) func() error {
		return func() error {
			var done [8]*rw.Context
			_, err := p.Poll(done[:])
			return err
		}
	}
	sides := []func() error{poll(client.poller), poll(server.poller)}
	run := func(c *rw.Context, ep *rw.Endpoint) error {
		over := false
		c.OnDone = func(*rw.Context) { over = true }
		check(ep.Submit(c))
		check(fabric.RunUntil(func() bool { return over }, sides...))
		return c.Err()
	}

	copy(client.region.Bytes(), "hello, RDMA")
	var x rw.Exposure
	check(clientEP.Expose(&x, []transport.Piece{client.region.Piece(0, 11)}, mrpool.ReadSource))
	check(run(&x.Grant, clientEP))
	var c rw.Context
	check(serverEP.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{server.region.Piece(0, 11)}, Remote: x.Remotes()}))
	check(run(&c, serverEP))
	fmt.Printf("%s\n", server.region.Bytes()[:11])
	check(run(&x.Revoke, clientEP))

	// The end.
	check(listener.Close())
	for _, ep := range []*rw.Endpoint{clientEP, serverEP} {
		ep.StartClose()
		check(fabric.RunUntil(func() bool {
			select {
			case <-ep.Closed():
				return true
			default:
				return false
			}
		}, sides...))
		check(ep.Close()) // how that went
	}
	fmt.Println("misuse:", fabric.Err())
	// Output:
	// hello, RDMA
	// misuse: <nil>
}
