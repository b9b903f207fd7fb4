// Package target is an NVMe over Fabrics target on RDMA: it serves namespaces, kept by
// backends, to hosts such as Linux's nvme-rdma.
//
//	t, err := target.New(target.Config{Subsystems: []target.Subsystem{{
//		NQN:        "nqn.2014-08.org.example:disk",
//		Namespaces: []target.Namespace{{ID: 1, Backend: disk}},
//	}}})
//	err = t.Serve(ctx, dev, listener) // for as many devices as there are
//	err = t.Shutdown(ctx)             // completes what is under way
//
// # How it is built
//
// What is to be done about a command is decided in internal/core, without RDMA. Here is
// the rest:
//
//   - A port is a device and a listener; it has pollers, and a goroutine for each.
//   - A queue is one connection, and has everything to itself: protection domain,
//     registrations, queue pair, memory. No key that one host sees is of use to another, and
//     no host can use up what another needs. When it has ended, the next queue may have them.
//   - A slot is a receive, and all that its command can need: contexts for READ, WRITE and
//     response, the response's memory, a backend request. It is reserved before the receive
//     is posted, so that answering can't fail for lack of anything. A queue of n entries has
//     2n slots: a host may send the next command as soon as it has seen a response, which is
//     before the target knows that it has.
//   - Data lands by READ in a buffer of the queue's memory, and that is the buffer the
//     backend gets; what a backend reads goes out by WRITE from there, in one chain with the
//     response: one doorbell. A command that finds no buffer waits its turn, holding nothing.
//   - Commands come in groups. A sweep gathers what those of one Poll give rise to, so that
//     each backend is called once for all, and each queue has one doorbell for its responses.
//
// docs/ulp.md walks through it.
//
// # What is offered
//
// Admin: Identify, Get Log Page (error, health, firmware, effects; discovery), Get and Set
// Features, Abort, Asynchronous Event Request, Keep Alive. I/O: Read, Write, Flush, Compare,
// Write Zeroes, Dataset Management (deallocate). One SGL descriptor for each command, keyed
// or in the capsule; keys are invalidated by the response where the host asks for it and the
// device can. No metadata, no reservations, no authentication, no changes of namespaces
// while the target runs.
package target
