package main

import (
	"fmt"

	"rdmarw/bench/internal/cpu"
)

const usage = `usage: bench [flags]
       bench explain -h
       bench cpu -h
       bench devices -h
       bench postcost -h
       bench perftest -h
       bench conformance -h

Moves data by READ, WRITE and exposure, checks every byte, and prints one table of what each transfer took, and what other
ways to do it would have taken on the same device.
Exit status: 0, 1 if a row failed or was not verified, 2 for bad flags.

  -transport sim|ibverbs  sim (the default): the simulator's profiles, no hardware needed. ibverbs: a real device,
                          connected to itself over its own IP address; needs a build with -tags ibverbs
  -device NAMES           profiles of the simulator (default: all; a name that there isn't lists them), or the RDMA device,
                          such as rxe0
  -op NAMES               read, write, expose (default: all three)
  -pieces NUMBERS         lists of so many pieces. Default: 1, 16, 64 and 256 pieces of 4 KiB, and 1 piece of 1 MiB
  -bytes N                bytes of each whole list. Default: 4096 a piece
  -n N                    repetitions of each row (default 20), after 3 to warm up
  -seed N                 of the data, and of the simulator's schedule (default 1)
  -alternatives=false     leave the other ways out. Real devices are measured without them
  -json                   one JSON object a line instead of the table

NAMES and NUMBERS are separated by commas. Pieces lie apart in memory, so that none can be merged with the next.

What is done:
  read    READ from one range of the peer's memory, which the peer exposes for it, into the pieces
  write   WRITE the pieces into one such range
  expose  expose the pieces to the peer, which WRITEs to them, and revoke

What the columns say, and how the numbers are obtained:
  strategy       what the planner chose: direct, fast-reg, sync-reg or window. "bench explain" tells why
  WRs            work requests posted by this side
  registrations  made for this transfer
  invalidations  keys that a work request killed: a LOCAL_INV, or a READ_WITH_INV, which is a READ at the same time. Other
                 keys die by deregistration. All three are counted by the simulated device; those of a real device
                 are the plan's
  CPU ns         of this side, the median of the repetitions. For expose it is Expose, Grant and Revoke, without the
                 peer's WRITE. sim: time on the clock inside of Prepare, Submit and Poll, all in one goroutine; the
                 fabric moves in between and isn't counted, but the simulator's share of those calls is (its
                 post, poll and registering). ibverbs: CPU time of the thread that does everything, with the waiting;
                 what the kernel does for the device on other threads isn't seen
  allocations    of memory on the Go heap, over the same calls, in repetitions of their own: the median
  modelled µs    virtual time until the transfer's completion (on iWARP a WRITE is complete when it was handed to TCP) by the
                 simulator's cost model, median; for expose with the peer's WRITE. A model, not a measurement; – on real
                 devices
  register per I/O, register always, one SGE
                 WRs/registrations/modelled µs of the same transfer done otherwise, really run, and verified with the row:
                 by a registration by call for each contiguous run of each transfer; by a fast registration for each
                 (Linux: force_mr); by an operation for each piece, and, for expose, a window for each. Medians of 3 after
                 3 to warm up. –: the device can't, or the operation has no such way. =: that is what the row does.
                 *: READs on iWARP that show the peer a key which lives on: what is saved is paid in safety
  verified       source filled with another part of seeded random data each time; every byte of the sink set to the wrong value;
                 afterwards every byte compared, and that nothing around the pieces changed. In all repetitions

With -json there are also
  protocol         of the device
  reads_in_flight  how many of a transfer's READs can be under way at once: limited by the connection's depth
  floor_ns         null: floors are measured by "bench cpu"
  modelled_us      modelled µs; null on real devices
  alternatives     register_per_io, register_always and one_sge: each null, or strategy, wrs, registrations, invalidations,
                   cpu_ns, modelled_us and key_lasts (the * of the table). Null on real devices
`

const explainUsage = `usage: bench explain -device D -op read|write|expose [flags]

Prints how a transfer is planned for a device, and why: the strategy with its reason, its exact cost, the work requests in
order, and each other strategy with what forbids it or what it would cost.
Exit status: 0, 1 if the transfer is refused, 2 for bad flags.

  -transport sim|ibverbs  as for bench
  -device D               a profile of the simulator (a name that there isn't lists them), or the RDMA device
  -op OP                  read (the default), write or expose
  -pieces N               pieces in the list, lying apart (default 64)
  -bytes N                bytes of the whole list (default 4096 a piece)
  -pool-empty             as if no fast registration was free

Requests are named REG (fast registration), BIND (window), READ, WRITE, READ+INV (READ_WITH_INV) and INV (LOCAL_INV), and
numbered. The last of a chain is signaled.
`

const cpuUsage = `usage: bench cpu [-json]

Measures the CPU time of transfers in package rw itself, beside a floor: the same requests written by hand.

  -json  one JSON object a line instead of the table: case, wrs, floor_ns, ours_ns, ratio, shared_ns, allocs, linux_ns, checksum

` + measuredHow + `
Exit status: 0, 1 if something went wrong or a checksum differed, 2 for bad flags.
`

// measuredHow stands under the table, too.
const measuredHow = `The device is a null device (transport/null): a post copies each request with its SGEs, or its page list, into a ring of 64-byte
slots; what is signaled completes at once. Pieces are pages that lie apart; the device has 30 SGEs, and registrations of 256 pages.
  ours   Prepare, Submit and Poll of one transfer: plan, take credits (and registrations), build, post, complete, give back; on
         a poller that belongs to one goroutine (PollerConfig.Exclusive), as a server has that gives one to each core
  shared the same on a poller that any goroutine may use, which takes a lock in Submit and in Poll
  floor  a loop over the same list that writes the same requests into the same ring and takes the completion; it knows the key of
         the region and the limits, checks nothing, and has no credits. For the pool: a slice under a mutex
`

var cpuNotes = fmt.Sprintf(`
%s  times  CPU time of the thread for one transfer. Floor and ours take turns in one process, warm, in batches of about %d ms;
         medians of %d batches each, and the median of the %d ratios of neighbours
  checksum of what the batch left in the ring, the same of floor and ours in each round; cookies and the names of registrations are not in it
* For orientation, not measured here: %s.
`, measuredHow, cpu.BatchMS, cpu.Rounds, cpu.Rounds, cpu.Linux)
