package host_test

import (
	"context"
	"fmt"

	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"
)

// Example connects to a target on a simulated device, and writes and reads: straight
// from and to memory of its own, and as an io.ReaderAt.
func Example() {
	fabric := sim.New(sim.Config{})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("mlx5-kernel")
	targetDev, _ := fabric.NewDevice(profile, "target")
	dev, _ := fabric.NewDevice(profile, "host")
	defer targetDev.Close()
	defer dev.Close()
	disk, _ := backend.NewMemory(1<<20, 512)
	defer disk.Close()
	t, _ := target.New(target.Config{Subsystems: []target.Subsystem{{
		NQN: "nqn.2014-08.org.example:disk", Namespaces: []target.Namespace{{ID: 1, Backend: disk}},
	}}})
	l, _ := targetDev.Listen("target:4420")
	defer l.Close()
	go t.Serve(context.Background(), targetDev, l)

	ctx := context.Background()
	defer t.Shutdown(ctx)
	c, err := host.Connect(ctx, l.Addr(), "nqn.2014-08.org.example:disk", host.Config{Device: dev, Queues: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ns, err := c.Namespace(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	buf, err := c.NewRegion(64 << 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buf.Close()
	defer c.RemoveRegion(buf)
	copy(buf.Bytes(), "hello, disk")
	if err := ns.Write(ctx, 100, buf.Piece(0, 64<<10)); err != nil {
		fmt.Println(err)
		return
	}
	p := make([]byte, 11)
	if _, err := ns.ReadAt(p, 100*512); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s, from %d bytes of storage\n", p, ns.Size())
	// Output: hello, disk, from 1048576 bytes of storage
}
