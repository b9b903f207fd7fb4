package sim_test

import (
	"context"
	"fmt"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// Two devices, a connection, and a READ, on a fabric that moves by itself when
// somebody waits.
func Example() {
	ctx := context.Background()
	fabric := sim.New(sim.Config{Seed: 1, Stepped: true})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("rxe")
	server, _ := fabric.NewDevice(profile, "server")
	client, _ := fabric.NewDevice(profile, "client")

	// Each side needs a protection domain, a CQ and memory.
	setup := func(d *sim.Device, text string) (transport.QPConfig, *transport.Region) {
		pd, _ := d.NewPD()
		cq, _ := d.NewCQ(16)
		region, _ := d.NewRegion(transport.RegionConfig{Size: 4096, Access: transport.LocalWrite})
		_ = pd.AddRegion(region)
		copy(region.Bytes(), text)
		return transport.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, QueueCaps: transport.QueueCaps{MaxSendWR: 8, MaxRecvWR: 8}}, region
	}
	serverQP, sink := setup(server, "")
	clientQP, source := setup(client, "pulled from the client's memory")

	// The client lets the server read one range, and says so when it connects.
	window, _ := clientQP.PD.NewRegistration(transport.SyncMR, 0)
	_, _ = window.Map(transport.Mapping{List: []transport.Piece{source.Piece(0, 31)}, Access: transport.RemoteRead})
	listener, _ := server.Listen("server:7471")
	conn, _ := client.Resolve(ctx, "server:7471")
	_, _ = conn.CreateQP(clientQP)
	_ = conn.Connect(transport.ConnParams{PrivateData: fmt.Appendf(nil, "%016x %08x", source.Addr(), uint32(window.RKey(0)))})

	incoming, _ := listener.Next(ctx)
	qp, _ := incoming.CreateQP(serverQP)
	_ = incoming.Accept(transport.ConnParams{})
	_, _ = incoming.Established(ctx)
	var addr uint64
	var key transport.RKey
	_, _ = fmt.Sscanf(string(incoming.Request().PrivateData), "%x %x", &addr, &key)

	entry := serverQP.PD.Regions().View().Lookup(sink.ID())
	_, _ = qp.PostSend(
		[]transport.WR{{Op: transport.OpRead, RemoteAddr: addr, RKey: key, NumSGE: 1, Flags: transport.Signaled}},
		[]transport.SGE{{Addr: sink.Addr(), Len: 31, LKey: entry.LKey}},
	)
	var done [1]transport.Completion
	for {
		_ = serverQP.SendCQ.Arm()
		if n, _ := serverQP.SendCQ.Poll(done[:]); n > 0 {
			break
		}
		_ = serverQP.SendCQ.Wait(ctx)
	}
	fmt.Println(done[0].Status)
	fmt.Println(string(sink.Bytes()[:31]))
	fmt.Println(server.Stats().BytesIn, "bytes, misuse:", fabric.Err())
	// Output:
	// success
	// pulled from the client's memory
	// 31 bytes, misuse: <nil>
}
