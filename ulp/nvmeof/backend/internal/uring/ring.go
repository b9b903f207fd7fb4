//go:build linux

// Package uring is as much of io_uring as a file backend takes: reads, writes and syncs,
// any number of which one system call submits, and that are found out about without any
// where they are over by then.
//
// Sources: include/uapi/linux/io_uring.h, io_uring_setup(2), io_uring_enter(2).
package uring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// params is struct io_uring_params.
type params struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// sqe is struct io_uring_sqe.
type sqe struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, opFlags  uint32
	userData      uint64
	_             [3]uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	userData uint64
	res      int32
	flags    uint32
}

// The part of the interface that is used.
const (
	offsetSQEs         = 0x10000000
	featureSingleMmap  = 1 << 0
	featureNoDrop      = 1 << 1
	registerEventFD    = 4
	opFsync            = 3
	opRead             = 22
	opWrite            = 23
	fsyncDataSync      = 1
	eventFDDisabled    = 1 << 0
	sizeofSQE, sizeofC = 64, 16
)

// MaxTransfer is how many bytes a read or a write may be about.
const MaxTransfer = 1 << 30

// ErrUnavailable: the kernel has no io_uring, or doesn't let us use it.
var ErrUnavailable = errors.New("no io_uring")

// Ring is a pair of queues shared with the kernel. Its methods are to be called by one
// goroutine at a time, but for Event's.
type Ring struct {
	// Call is io_uring_enter(2): it submits the first n operations of the queue. How many
	// it took, it says in the queue. A test may put itself in between.
	Call func(fd, n int) syscall.Errno

	fd    int
	event *os.File

	queues, entries []byte // mapped
	sqHead, sqTail  *uint32
	sqMask          uint32
	sqes            []sqe
	added           uint32 // sqTail to be
	cqHead, cqTail  *uint32
	cqMask          uint32
	cqFlags         *uint32
	cqes            []cqe
}

// New makes a ring for up to n operations at a time. Errors match [ErrUnavailable].
func New(n int) (_ *Ring, err error) {
	var p params
	fd, _, errno := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(n), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errno)
	}
	r := &Ring{Call: enter, fd: int(fd)}
	unix.CloseOnExec(r.fd)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
			r.Close()
		}
	}()
	if p.features&featureSingleMmap == 0 || p.features&featureNoDrop == 0 {
		return nil, errors.New("kernel older than 5.5")
	}
	size := max(int(p.sq.array+p.sqEntries*4), int(p.cq.cqes+p.cqEntries*sizeofC))
	r.queues, err = unix.Mmap(r.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	r.entries, err = unix.Mmap(r.fd, offsetSQEs, int(p.sqEntries)*sizeofSQE, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, err
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[off])) }
	r.sqHead, r.sqTail, r.sqMask = at(p.sq.head), at(p.sq.tail), *at(p.sq.mask)
	for i := range p.sqEntries { // the order of the queue is that of the entries
		*at(p.sq.array + 4*i) = i
	}
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqHead, r.cqTail, r.cqMask, r.cqFlags = at(p.cq.head), at(p.cq.tail), *at(p.cq.mask), at(p.cq.flags)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.queues[p.cq.cqes])), p.cqEntries)

	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	r.event = os.NewFile(uintptr(efd), "io_uring event")
	fd32 := int32(efd)
	_, _, errno = syscall.Syscall6(unix.SYS_IO_URING_REGISTER, fd, registerEventFD, uintptr(unsafe.Pointer(&fd32)), 1, 0, 0)
	runtime.KeepAlive(&fd32)
	if errno != 0 {
		return nil, errno
	}
	r.Quiet(true)
	return r, nil
}

// Capacity is how many operations may be under way, so that no completion is kept back.
func (r *Ring) Capacity() int { return min(len(r.sqes), len(r.cqes)) }

// Read adds a read of data, at most [MaxTransfer] bytes, at an offset of a file. It is for
// Enter to start, and for Poll to return with its tag. The memory must stay where it is
// until then.
func (r *Ring) Read(fd int, data []byte, at int64, tag uint64) {
	r.add(sqe{opcode: opRead, fd: int32(fd), off: uint64(at), addr: address(data), len: uint32(len(data)), userData: tag})
}

// Write adds a write, durable when it is over if sync is set. See [Ring.Read].
func (r *Ring) Write(fd int, data []byte, at int64, sync bool, tag uint64) {
	e := sqe{opcode: opWrite, fd: int32(fd), off: uint64(at), addr: address(data), len: uint32(len(data)), userData: tag}
	if sync {
		e.opFlags = unix.RWF_DSYNC
	}
	r.add(e)
}

// Sync adds an fdatasync.
func (r *Ring) Sync(fd int, tag uint64) {
	r.add(sqe{opcode: opFsync, fd: int32(fd), opFlags: fsyncDataSync, userData: tag})
}

func address(data []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data)))) }

// add puts one into the queue, which has room: no more than its capacity is under way.
func (r *Ring) add(e sqe) {
	r.sqes[r.added&r.sqMask] = e
	r.added++
}

// Enter starts what was added. It returns how many the kernel didn't take: the last ones,
// which are forgotten.
//
// One system call does, unless there is an operation that the kernel can't make sense of.
// It takes that, to return the error by Poll, and stops behind it.
func (r *Ring) Enter() (left int) {
	atomic.StoreUint32(r.sqTail, r.added)
	for head := atomic.LoadUint32(r.sqHead); head != r.added; {
		errno := r.Call(r.fd, int(r.added-head))
		was := head
		head = atomic.LoadUint32(r.sqHead)
		if head == was && errno != unix.EINTR {
			left = int(r.added - head)
			r.added = head
			atomic.StoreUint32(r.sqTail, head)
		}
	}
	return left
}

// enter doesn't wait for anything, so the runtime isn't told of it: what that costs,
// another thread taking over and giving back, would be most of the time.
func enter(fd, n int) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(n), 0, 0, 0, 0)
	return errno
}

// Poll returns one operation that is over: its tag, and its result as the system call
// has it, a count or a negative errno. ok is false if there is none.
func (r *Ring) Poll() (tag uint64, res int32, ok bool) {
	head := *r.cqHead // nobody else writes it
	if head == atomic.LoadUint32(r.cqTail) {
		return 0, 0, false
	}
	e := &r.cqes[head&r.cqMask]
	tag, res = e.userData, e.res
	atomic.StoreUint32(r.cqHead, head+1)
	return tag, res, true
}

// Quiet says whether completions are without an event. After Quiet(false), poll once more:
// what was over before makes none.
func (r *Ring) Quiet(quiet bool) {
	flags := atomic.LoadUint32(r.cqFlags) &^ eventFDDisabled
	if quiet {
		flags |= eventFDDisabled
	}
	atomic.StoreUint32(r.cqFlags, flags)
}

// Event waits for an event. It returns an error after Close, or after Wake for the last
// time.
func (r *Ring) Event() error {
	var b [8]byte
	_, err := r.event.Read(b[:])
	return err
}

// Wake makes an event.
func (r *Ring) Wake() error {
	_, err := r.event.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0})
	return err
}

// Close frees the ring. No operation may be under way, and nobody in Event.
func (r *Ring) Close() error {
	var errs []error
	for _, m := range [][]byte{r.queues, r.entries} {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	r.queues, r.entries = nil, nil
	if r.event != nil {
		errs = append(errs, r.event.Close())
	}
	return errors.Join(append(errs, unix.Close(r.fd))...)
}
