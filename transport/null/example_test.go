package null_test

import (
	"context"
	"fmt"

	"rdmarw/transport"
	"rdmarw/transport/null"
)

// A post costs what copying costs, and its completion is there at once.
func Example() {
	dev := null.New(transport.Caps{Device: "null0", MaxSendSGE: 4, MaxSendWR: 16, MaxRecvWR: 1, MaxCQE: 64})
	pd, _ := dev.NewPD()
	cq, _ := dev.NewCQ(32)
	conn, _ := dev.Resolve(context.Background(), "anybody:1")
	qp, _ := conn.CreateQP(transport.QPConfig{PD: pd, SendCQ: cq, RecvCQ: cq, QueueCaps: transport.QueueCaps{MaxSendWR: 16, MaxSendSGE: 4}})
	conn.Connect(transport.ConnParams{})

	sges := []transport.SGE{{Addr: 0x1000, Len: 4096}, {Addr: 0x9000, Len: 4096}}
	n, err := qp.PostSend([]transport.WR{{Op: transport.OpWrite, NumSGE: 2, Cookie: 7, Flags: transport.Signaled}}, sges)
	fmt.Println(n, err)
	var done [4]transport.Completion
	n, err = cq.Poll(done[:])
	fmt.Println(n, err, done[0].Cookie)
	// Output:
	// 1 <nil>
	// 1 <nil> 7
}
