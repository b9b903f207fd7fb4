// Package mrpool keeps recycled registrations and maps lists of local memory
// with them: for the local device ([MR.MapLocal], which yields an lkey) or for
// the peer ([MR.MapRemote], which yields an rkey). The two calls take different
// types of operation sets, and rights follow from those alone: an lkey that a
// peer can use, or one key for both purposes, can't be written down.
//
// A registration goes through
//
//	free -> mapped -> valid -> invalidating -> free
//
// Mapping is software only (but for a SyncMR, which is registered by it). What
// makes a mapping valid, and invalid again, are work requests that the MR hands
// out and the caller posts. The pool believes nothing before it is told:
// [MR.Posted] when a chain was accepted, [MR.Invalidated] when the key is known
// to be dead. What had remote rights returns to free on no other grounds. After a
// flush or a failed post nobody knows what the hardware did; the MR is then
// [MR.Lost], and taken away from the device before its place is used again.
//
// A registration with local rights only may go back to the pool while it is still
// valid: the invalidation then heads its next use (lazy invalidation, as in the
// kernel's rdma_rw). Until then it covers the memory, which [Pool.Forget] ends: call it
// before a region is taken out of a domain whose pool lives on. Otherwise the pool is
// closed first, then regions are removed, then the domain is closed.
//
// The key byte advances with each accepted use, so that a late request with the
// key of the use before is refused; when it has gone round, see [Peer]. Building work requests changes nothing and
// may be repeated.
//
// A Pool belongs to one protection domain and is shared by all endpoints in it,
// so that memory follows transfers in flight rather than connections. Its
// methods may be called from any goroutine; an MR is used by one at a time.
package mrpool
