// Package ibverbs is the transport on real RDMA devices: libibverbs and
// librdmacm through cgo.
//
// It is built with the tag ibverbs, and then needs a C compiler, libibverbs-dev
// and librdmacm-dev. Without the tag the package is pure Go: [Devices] works,
// and [Open] says what is missing.
//
// # Devices
//
// [Open] takes the name of an RDMA device ("mlx5_0"), of a network device
// ("eth0"), or a local IP address. [Devices] lists what there is. Capabilities
// are what the device reports, corrected by a table of quirks (quirks.go) that
// gives the evidence for each, and completed by a probe where verbs has no
// attribute to ask for. For a driver that isn't in the table nothing is claimed
// that verbs doesn't guarantee: no windows, no invalidation.
//
// librdmacm opens every device once per process and keeps it open, and a queue
// pair can only be connected on that very context, so everything here uses it:
// Close of a device leaves its file descriptors to librdmacm.
//
// [Probe] finds out what a device really does, and is asked for; what it found is
// believed from then on. "bench devices" shows all of this.
//
// # Listening
//
// Listen on ":7174" takes what comes in through the device by any of its addresses. On
// siw that leaves out clients of the same machine, whatever address they use: they are
// rejected with ECONNRESET. Listen on one of the device's addresses and they are heard.
//
// # Removal
//
// When a device is deleted or unplugged, its connections and listeners end with
// transport.ErrDeviceRemoved, what is outstanding flushes, and Device.Events tells.
// The user then closes everything. Three words of the kernel are heeded, whichever
// comes first: the asynchronous event DEVICE_FATAL, which drivers that can be taken from
// their users make (mlx5 and other hardware); the CM's DEVICE_REMOVAL; and the
// kernel event that the device file goes (uevent.go), which is the only one of rxe and
// siw where ib_uverbs was loaded after rdma_cm. Their deletion ("rdma link delete")
// waits until nobody has the device open: until the last Device on it was closed, if
// the machine has another RDMA device, else until the process exits.
//
// # Goroutines and threads
//
// No thread is ever blocked in C waiting for something to happen. Completion,
// connection and asynchronous events are read from non-blocking descriptors
// that are parked on Go's own poller. An open device has one goroutine for
// connection events, and shares two per RDMA device, for asynchronous events and for
// its removal; queue pairs and CQs have none.
//
// PostSend, PostRecv and Poll are one C call each, whatever the length of the
// chain, and allocate nothing. (Of siw completions are put back into the order of
// posting first, see order.go; where more than 128 wait, Poll asks again.) Chains are posted by
// ibv_wr_start and its kin where the provider has them and they are right: then
// nothing is posted of a chain with an error (Caps.AtomicPost); else by
// ibv_post_send.
//
// Wait sleeps in a system call of its own for up to a millisecond, and in the runtime's poller
// after that. The first keeps one of GOMAXPROCS processors from other goroutines, so one at
// least is always left to them: with GOMAXPROCS=1 all waits are the runtime's. It answers
// later, by some 20 us in an emulated guest.
//
// With a busy loop around Poll, consider GODEBUG=asyncpreemptoff=1: the runtime
// interrupts loops that run for more than 10 ms by a signal, and the loop has natural
// preemption points.
//
// # Memory
//
// Regions are mmap'd, never Go heap. ibv_fork_init is not called, on purpose: it
// marks registered pages MADV_DONTFORK, so a child that touches one faults;
// os/exec shares memory with the parent until exec and writes to none of it, and
// since Linux 5.12 fork copies pinned pages for the child, so the parent's stay
// where the device knows them. A process that forks without exec from C must
// call ibv_fork_init before it opens a device.
//
// Locked memory is limited by RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK.
// Registrations that hit the limit fail with transport.ErrMemlock, and the error
// tells limit, use and wish.
//
// # Privileges
//
// Opening needs read and write access to /dev/infiniband/rdma_cm and uverbs*, no
// capability. A process must not change its user or group id by package syscall:
// that gives each thread credentials of its own, and the kernel refuses a write
// to these files from a thread whose credentials are not the very ones that they
// were opened with (ib_safe_file_access). Change them before exec.
//
// # The end of a connection
//
// Close destroys the queue pair, which stops all access to memory, also when the
// peer is gone and when requests never completed: siw never flushes what was
// posted after the queue pair went to the error state, so PostSend refuses that
// with ErrBadState as soon as the state is known here. Completions of a destroyed
// queue pair may still be in its CQ, and its number may be given to the next
// one: drain first, or tell completions apart by cookie.
//
// A Close that fails leaves the object closed for use, and can be called again: it
// goes on from where it stopped.
//
// On iWARP Close blocks while a connection request is unanswered: up to 10 s on
// siw, until its own timeout.
//
// A READ that siw's peer refuses has no status of its own: it is flushed with
// everything else, and the connection ends. What the peer refuses of a WRITE has
// completed successfully before.
package ibverbs
