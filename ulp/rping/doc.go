// Package rping is a server and a client of the ping-pong that the program rping
// of rdma-core speaks: the smallest protocol that uses all of RDMA the way storage
// protocols do. It works with the C program at either end, and it is meant to be
// read: each side is less than two hundred lines, and they are what a protocol on
// package rw looks like.
//
// # Protocol
//
// The client has the data and the memory, the server moves it. One ping:
//
//	client                                             server
//	fills source, lets the server READ it
//	SEND {address, key, length} of source  ---------->
//	                                       <---------  READ of source
//	                                       <---------  SEND go-ahead
//	shuts source, lets the server WRITE sink
//	SEND {address, key, length} of sink    ---------->
//	                                       <---------  WRITE of what was read, and
//	                                                   SEND done, in one chain
//	shuts sink, compares it with source
//
// A message is 16 bytes, big endian: address (8), key (4), length (4). In the
// server's messages nothing means anything. The client goes on with the next ping,
// or disconnects, which is the only end there is. Turn the arrows around and it is
// an NVMe-oF write followed by a read.
//
// # What to look at
//
// link.go has what either side needs for one connection: memory in a region, a
// protection domain and a pool of registrations of its own, an [rw.Endpoint], a
// receive that is posted before anything is sent that could be answered. The order
// in which it takes them down is the order of the contract.
//
// server.go READs by [rw.Endpoint.Read], and answers by a chain of a WRITE and a
// SEND: one doorbell, and the message can't overtake the data. The code is the same
// for RoCE, where the data lands straight in the region, and for iWARP, where
// exactly the sink is registered for just that READ.
//
// client.go exposes each buffer by an [rw.Exposure] for one operation: granted in
// the same chain as the message that tells the key, revoked when the answer
// arrives. The C program registers its buffers once, and their keys are good for
// as long as it runs; here, a server that kept a key can't use it.
//
// # Errors
//
// Errors match [ErrMessage], [ErrSize] or [ErrData] where the peer is to blame,
// transport.ErrDisconnected if it left in the middle, a transport.Status if a
// request failed, or ctx's error.
//
// A disconnect between two pings is the end of a session, and no error; so is one
// that comes with the last message of a ping, since a client that got it may leave
// before its acknowledgement is here. Whether that ping arrived only the client can
// say, on iWARP in particular, where a WRITE that the client's device refuses looks
// like this as well. There is no keep-alive: a client that vanishes without a word
// while it owes a message holds its place until Serve's ctx ends.
package rping
