// Package sim is a simulated RDMA fabric: any number of devices in one process,
// of several kinds, that implement package transport.
//
// It exists so that a storage protocol can be developed and tested where there
// is no RDMA hardware, and so that what hardware does once a month can be made
// to happen every time. It is meant to be exact rather than kind: what real
// devices check is checked, with all bits of the key; what they leave undefined
// is decided by the seed; what breaks a real machine is reported by
// [Fabric.Err].
//
// # Modes
//
// A stepped fabric moves only when told to, in virtual time. Its seed
// determines everything that happens, to the byte of its event log. It is for
// one goroutine, and calls that wait move the fabric themselves (transport.ErrDeadlock if in vain). A free-running
// fabric has one goroutine, whatever the number of queue pairs, and takes no
// account of latencies, only of timeouts.
//
// # Stepped
//
// In a stepped test one goroutine has all sides, and whatever it does is repeated exactly by
// the next run with the same seed. It makes the calls that don't wait, polls each side in turn,
// and has the fabric do one thing in between; [Fabric.RunUntil] is that loop, and ends when
// nothing can happen any more. Clocks are virtual: give [Fabric.Clock] to what has deadlines.
// The recipe for users of package rw, whole, is the example "Stepped" of that package.
//
// # Profiles
//
// A [Profile] is a device in a dialect: "rxe" and "siw" are Soft-RoCE and
// Soft-iWARP as libibverbs shows them, and held to the real ones behaviour by behaviour
// (package transporttest/conformance; go run ./bench conformance), "rxe-kernel" and "siw-kernel" are what the
// kernel's own users see, with fast registration. [Profiles] has hardware too,
// from the sources of its drivers. Times are modelled: they serve to compare
// plans, not to predict anything.
//
// # Faults and records
//
// [Faults] has hooks for what shall go wrong at a certain point, and [Chances] for
// what goes wrong by itself, as the seed wants it: lost packets, delays, failing
// requests, peers that die. [Device.Kill], [Device.Remove] and [Conn.Kill] do it at
// once. A run can be recorded as a log ([Config.Log], a line per event) and as a
// timeline ([Config.Timeline]) to be looked at in https://ui.perfetto.dev.
//
// # Numbers
//
// A 64-byte WRITE, 1 in 16 signaled, all checks made, bytes copied, nothing
// recorded, takes about 350 ns of CPU time on rxe and siw, posting and polling
// included: some 4 million a second on one core (BenchmarkWrite, stepped, with
// GOMAXPROCS=1, on a virtual x86-64 server of 2026; the process's own time, by
// getrusage). Ten thousand connections with a SEND in flight each take 43 MiB, 2.3 KB
// for each queue pair of either side, and no goroutine in stepped mode, one in all in
// free-running mode (TestManyQueuePairs; Go heap after a collection).
//
//	GOMAXPROCS=1 go test -run '^$' -bench Write ./transport/sim
//	go test -run ManyQueuePairs -v ./transport/sim
//
// # Addresses and keys
//
// Regions have simulated addresses, which are the same in each run; the data is
// in Region.Bytes. The lkey and the rkey of one object differ in their index, so
// that a mix-up fails. Connections are made to "name:port", where name is the
// name that a device was given.
package sim
