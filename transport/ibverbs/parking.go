//go:build ibverbs && linux && cgo

package ibverbs

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// parking waits for descriptors in the runtime's poller. That knows an epoll descriptor with these
// in it, from which they can be taken out: whatever the runtime watches wakes a thread of it, whether
// a goroutine waits for it or not.
type parking struct {
	fd      int // file's
	file    *os.File
	conn    syscall.RawConn
	fds     []int
	entered bool
}

func (p *parking) open(name string, fds ...int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else the runtime doesn't take it
		unix.Close(fd)
		return err
	}
	p.fd, p.file, p.fds = fd, os.NewFile(uintptr(fd), name), fds
	if err := p.control(unix.EPOLL_CTL_ADD, 0); err != nil {
		p.file.Close()
		return err
	}
	p.conn, err = p.file.SyscallConn()
	return err
}

// wait returns when look says so, which is called at once, and whenever a descriptor may be readable.
func (p *parking) wait(look func(uintptr) bool) error {
	if !p.entered {
		if err := p.control(unix.EPOLL_CTL_MOD, unix.EPOLLIN); err != nil {
			return err
		}
		p.entered = true
	}
	return p.conn.Read(look)
}

// leave keeps the runtime from being woken until the next wait.
func (p *parking) leave() error {
	if !p.entered {
		return nil
	}
	p.entered = false
	return p.control(unix.EPOLL_CTL_MOD, 0)
}

func (p *parking) control(op int, events uint32) error {
	for _, fd := range p.fds {
		if err := unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
			return os.NewSyscallError("epoll_ctl", err)
		}
	}
	return nil
}

func (p *parking) close() error { return p.file.Close() }
