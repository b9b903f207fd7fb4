// Package null is a transport on which nothing moves: the /dev/null of RDMA. It is
// for measuring what the software above a device costs, and does what no driver can
// leave out and nothing else: a request and its SGEs, or its page list, are copied
// into the [Ring] of 64-byte slots that a send queue is, and signaled requests
// complete at once.
//
// What it leaves out: the data (regions have addresses but no memory), the peer (each
// connection that is asked for exists, and receives stay empty), the checks of keys
// and ranges, and locks. Everything of a [Device] must be used by one goroutine at a
// time, which is less than package transport promises for other devices.
package null
