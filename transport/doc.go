// Package transport is the verbs vocabulary of rdmarw and the contract between
// it and RDMA devices: capabilities, memory, keys, work requests, completions,
// registrations, queues and connection management. It holds types and the few
// rules that both sides must agree on to the letter ([Coverage], the region
// tables, the errors), and no other behaviour.
//
// Two transports implement it: package sim, a simulated fabric, and package
// ibverbs, libibverbs and librdmacm on real devices.
//
// # Memory
//
// A [Region] is memory known to a device. Adding it to a protection domain gives
// it an lkey there. Operations name memory by [Piece]: address, length, region.
// No function takes a []byte of the Go heap: a device writes to memory at times
// that the garbage collector knows nothing of.
//
// # Keys
//
// [LKey] and [RKey] are distinct types. Regions have local rights only, so what a
// peer can reach is exactly what a [Registration] was mapped to with remote
// rights, for as long as it is valid.
//
// # Work requests
//
// [WR] and [SGE] are plain records without pointers. A chain is a slice of WRs
// and the arena of their SGEs, posted by one call that tells how many were
// accepted. [Completion]s carry the cookie of the request, never its opcode.
//
// Only reliable connected (RC) queue pairs are covered.
package transport
