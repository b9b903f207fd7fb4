// Package cpu measures the CPU time that one transfer takes in package rw, beside
// what it takes to write the same requests by hand.
//
// Ours is all of a transfer's life: Prepare, Submit, Poll. It plans, takes credits
// (and registrations), builds the requests, posts them, takes the completion, and
// gives back what it took. The device is a null device: it copies requests, SGEs and
// page lists into a ring of 64-byte slots.
//
// Ours is measured twice: with a poller that belongs to one goroutine, and with one that
// any goroutine may use, which takes locks.
//
// The floor is a loop over the same list of pieces that writes the same requests into
// the same ring, and takes the completion. It is written for exactly one case: it knows
// the region's key and the limits of the device, checks nothing, and has no credits.
// That both left the same in the ring is checked by a checksum after each batch.
//
// Floor and ours take turns in batches, in one process, on one thread, warm. Times are
// the thread's CPU time, so that other programs on the machine disturb less. Of 9
// batches each, the medians are given; the ratio is the median of the 9 ratios of
// neighbours.
package cpu
