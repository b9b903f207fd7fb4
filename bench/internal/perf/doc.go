// Package perf compares transfers by package rw with perftest, the benchmark programs
// of the RDMA world (ib_read_bw and its kin), on the same device in the same boot.
//
// Runs of the two alternate. What is compared are pairs of neighbours: the median
// of their ratios, with an interval that is resampled from them, because what a
// machine can do drifts while one looks.
//
// Both move messages of one piece, to and from an ordinary registration of the peer's
// memory, with so many under way at a time (bandwidth) or one after the other
// (latency), and sleep until a completion's event (perftest -e) rather than spin;
// but ib_write_bw has no such mode, and spins. perftest has a process for each end,
// and leaves its other choices at their defaults: it has only the last message of each
// -t signaled, where package rw has each, as each is an operation of its own.
package perf
