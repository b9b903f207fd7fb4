// Package host is an NVMe over Fabrics host on RDMA, in user space: it connects to a
// subsystem's controller, such as one of Linux's nvmet-rdma or of package target, and
// reads and writes its namespaces.
//
//	c, err := host.Connect(ctx, "192.0.2.1:4420", "nqn.2014-08.org.example:disk", host.Config{Device: dev})
//	ns, err := c.Namespace(ctx, 1)
//	buf, err := c.NewRegion(1 << 20)
//	err = ns.Write(ctx, lba, buf.Piece(0, 64<<10)) // straight from there
//	n, err := ns.ReadAt(p, off)                    // an io.ReaderAt: copies
//
// Two ways to use a namespace: calls that wait ([Namespace.Read], [Namespace.ReadAt],
// ...), of as many goroutines as one likes; or [Request]s, which are prepared,
// submitted without waiting, and given back to a function. Neither allocates in steady
// state where the device registers by work requests.
//
// # How data moves
//
// The host never READs or WRITEs: it exposes memory, and the controller does. A command's
// data is exposed by one [rdmarw/rw.Exposure], whose Grant is in one chain with the
// command, for READ or WRITE by the controller, and its key is in the command. When the
// answer is there the key is dead before the caller hears of it: invalidated by the
// controller, which is asked to (SEND_WITH_INV) where the device takes that well, or
// else revoked here. Small writes need none of it: they go out with the command, gathered
// from where they are, if the controller takes in-capsule data.
//
// What the device can do decides what a key covers: a fast registration a list, a window
// (rxe) or a registration by calls (siw) one contiguous run. On siw a controller can READ
// memory that it was asked to WRITE to: what the memory held before is shown to it. Each
// controller has a protection domain of its own, so that keys of one mean nothing to
// another.
//
// # What a controller can do wrong
//
// An answer to no command, a second one, one of the wrong length, an invalidation of any
// key but that of the command that is answered, silence: each ends the connection
// ([ErrProtocol], [ErrTimeout]), and every command with [ErrLost]. Memory is the
// caller's again only when no key to it is alive.
//
// # Lost connections
//
// All queues of a controller live and die together. A connection that is lost is made
// anew, again and again until Config.LossTimeout is over. Calls that wait go on with
// the new one, unless they have lost one after the other for as long as that; Requests end
// with ErrLost, and it is their owner who decides. NVMe leaves open when an old controller
// stops working on what it had got: a write that is sent again may be overtaken by its
// first self, as with Linux's host.
//
// Before anything else goes out on a new connection, the namespaces that were asked for are
// compared with what is there now. A [Namespace] that has become another one, or has other
// blocks or fewer, ends with [ErrChanged]; the others go on.
//
// # How it is built
//
// A [Controller] has an association at a time: admin queue, I/O queues, and a poller for
// all of them. A queue is a connection with a fixed number of exchanges, each a command,
// its capsule, its exposure and its answer. slots.go and segment.go are plain
// computation: which answer belongs to which command, and what one command can move.
package host
