// Package rw moves data for storage protocols over RDMA: what Linux's rdma_rw
// does for kernel ones. A target answers its clients by READ from, or WRITE to,
// their memory, and how to do that right depends on the device. A [Context] is one
// such transfer; it is planned for the device at hand:
//
//   - WRITE, and READ on InfiniBand and RoCE: SGEs straight over the local pieces,
//     in as many chained requests as the limits ask for.
//   - READ on iWARP: the request shows the sink's key to the peer, so exactly the
//     sink is registered for just this READ, and the context is not done before the
//     key is dead. By work requests where the device has fast registration, by
//     calls elsewhere.
//
// An [Exposure] is the other direction: it lets the peer READ or WRITE one local
// list for as long as one operation takes.
//
// # Objects
//
// A [Poller] owns a completion queue; many endpoints attach to it. An [Endpoint]
// owns one queue pair and its credits. An [SRQ] is a receive queue that endpoints of one
// poller share. Contexts are the caller's: embedded in
// requests, prepared, submitted, and returned by [Poller.Poll].
//
//	Prepare -> Submit -> Poll returns it -> Err
//
// Prepare plans and checks; nothing is posted or taken. Submit queues: a context
// that waits for credits holds nothing, and is posted whole as soon as there are
// enough. Poll makes progress. None of the three blocks. [Endpoint.Read],
// [Endpoint.Write] and [Endpoint.Do] block, on top of them.
//
// They are closed in this order: endpoints; SRQs and staging memory; the poller, when its
// Run has ended; the pool; then regions are removed from the protection domain. A region
// that goes while its pool lives on is first forgotten by that, when nothing uses it any
// more: [mrpool.Pool.Forget].
//
// # Stepped
//
// Whoever writes a protocol tests it best in one goroutine, on a simulated fabric that moves by
// steps: each run with the same seed is the same, deadlines included, and a failure comes
// again. It takes sim.Config{Stepped: true}, a PollerConfig with Workers: -1 and Now:
// fabric.Clock(), and Fabric.RunUntil to poll all sides and step in turn; the calls that wait
// for somebody else to poll (Read, Write, Do, Close) are refused there, with
// transport.ErrDeadlock: it is Submit and StartClose. See the example "Stepped".
//
// # Failures
//
// The first request that fails takes its queue pair along (that is how RC works).
// Its context gets a *transport.Error with status and position; everything else
// under way comes back with that as the cause. A context comes back exactly
// once, and when it does the device can't touch its memory any more and no key
// to it is alive. If a device doesn't account for what it was given within
// DrainTimeout, the queue pair is destroyed first.
//
// What the peer's device refuses (a key, a range) fails with
// transport.StatusRemoteAccess on InfiniBand and RoCE. On iWARP it ends the connection,
// and few devices say why (siw and cxgb4 don't): a READ is flushed
// (transport.StatusFlushed), and a WRITE may have been completed before. On the side whose
// memory the peer was refused, InfiniBand and RoCE devices fail the queue pair while the
// connection stays up: what was under way there ends with [ErrQPFailed], and why is told by
// transport.Device's Events only.
//
// Calls on an endpoint that has failed are refused with an error that says so and wraps the
// cause; once it is being closed, they match [ErrClosed], too.
//
// # Concurrency
//
// All methods may be called from any goroutine, unless the poller is exclusive: then
// one goroutine has it, its endpoints and their contexts, and no lock is taken
// (PollerConfig.Exclusive). A context, and what it was prepared with, belongs to the
// endpoint from Submit until it is returned.
package rw
