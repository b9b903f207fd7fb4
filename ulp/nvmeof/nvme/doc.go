// Package nvme is what NVMe over Fabrics with RDMA puts on the wire: the private
// data of connections, command and response capsules with their SGL descriptors,
// controller properties, and the data structures that commands transfer. Plain Go
// types, for hosts and targets alike; nothing here moves a byte.
//
// Every structure has two methods. Encode writes it to the start of a buffer that
// has room for it, reserved fields as zeros. Decode reads it; it takes what comes
// from a peer, so it fails (with [ErrShort]) rather than panic, and it judges
// nothing else: values may be anything. Neither allocates, unless a string or list is
// part of the structure. All integers on the wire are little-endian.
//
// Counts that the specification writes zero-based ("0's based") are so here as well
// where a field has the specification's name: [Connect.SQSize] 31 is a queue of 32
// entries. Methods that are named otherwise, such as [Command.Blocks], count from one.
//
// Sources: NVM Express Base Specification 1.3 and 2.0, NVM Express over Fabrics 1.1,
// NVMe RDMA Transport Specification 1.0. Byte offsets are held against Linux's
// include/linux/nvme.h and nvme-rdma.h by the tests.
package nvme
