// Package nvmeof is the home of NVMe over Fabrics with RDMA: a storage protocol
// proven against the Linux kernel's own host and target.
//
//   - nvme: what is on the wire, for both sides
//   - backend: what namespaces keep their blocks in
//   - target: subsystems and their controllers
//   - host: the initiator
//
// docs/ulp.md walks through the target's data path: how a storage protocol is
// written on package rw.
package nvmeof
