// Package postcost measures what posting a chain through package ibverbs costs
// beside a C program that builds and posts the same chain.
//
// [Stub] posts to a provider that does nothing but walk the chain and copy it, as a
// device's provider does, so that what is left is the way there. [Device] posts to
// a real device. Both sides take their turns in one thread, batch by batch, and the
// results are medians over batches, ratios those of neighbours.
package postcost

// Chain is how many requests are posted at a time.
const Chain = 16

// Result is what posting a chain took, in nanoseconds. Its JSON is an interface: names
// don't change.
type Result struct {
	// Device is where it was posted to.
	Device string `json:"device"`
	// OursNS is building a chain of package transport's requests and SGEs, and
	// QP.PostSend; CNS is building the same chain of libibverbs' and ibv_post_send.
	OursNS float64 `json:"ours_ns"`
	CNS    float64 `json:"c_ns"`
	// CrossingNS is a call of an empty C function with the arguments of a post.
	CrossingNS float64 `json:"crossing_ns"`
	// FillNS is the other way to do it: C's chain, in C memory, is filled by Go, and one
	// call of C posts it. Zero if not measured.
	FillNS float64 `json:"fill_ns"`
	// Ratio is ours to C's: of the stub without the crossing, of a device with it.
	Ratio float64 `json:"ratio"`
}
