//go:build !nosync

package backend

// durable: Flush and FUA do what they say. The build tag nosync makes a backend that
// forgets to, which a test of durability has to find out.
const durable = true
