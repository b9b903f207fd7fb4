// Package core is what an NVMe-oF target decides: who may connect, what a command
// means, whether its SGL is any good, what properties, features, log pages and
// identify data say. It is plain deterministic code: no goroutine, no clock, no RDMA,
// no memory but its own. Time and commands come in, a [Plan] comes out, and package
// target does what it says.
//
// Nothing here is safe for concurrent use, but for [PlanIO], which changes nothing: it
// is the data path, and is called for many queues at a time.
package core
