// Package backend is where the namespaces of an NVMe-oF target keep their blocks.
// [Backend] is the interface; [Memory] and [File] (files and block devices, by direct
// I/O) implement it.
//
// A [File] reads, writes and syncs by io_uring where the kernel has it: what is over when it was
// submitted is reported there and then, in the goroutine that submitted it. Requests that come
// together are submitted together, by [SubmitAll]: that is one system call. What is larger than the
// disk takes at once goes to it in parts, by the same call: the kernel would rather split it on a thread
// of its own. Everything else is done by a few goroutines that may block.
//
// A backend is asynchronous: [Backend.Submit] starts a [Request] and returns, and the
// request's Done is called when it is over, from whatever goroutine that happens in.
// A request's Data is memory of the target's that RDMA reads from or writes to: data
// that a host wrote has landed right there, and what is read into it goes out from
// there. It belongs to the backend until Done.
package backend
