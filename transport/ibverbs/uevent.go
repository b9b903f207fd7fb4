//go:build ibverbs && linux && cgo

package ibverbs

import (
	"bytes"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// uevents is the kernel's own word of devices that come and go.
//
// It is the only one that always arrives. When a device is deleted, the kernel asks
// its users in the order in which they were loaded, last first, and ib_uverbs waits for
// user space unless the driver can be taken away under it: rxe and siw can't
// (ib_uverbs_remove_one, 6.12: no disassociate_ucontext). Then no asynchronous
// event is made; and if ib_uverbs was loaded after rdma_cm, the CM is not asked
// before, so that no id gets a DEVICE_REMOVAL. But the character device is taken
// out of sysfs first, and that is told here. Network namespaces of other user
// namespaces don't hear it.
type uevents struct {
	fd   *os.File
	conn syscall.RawConn
}

func openUevents() (*uevents, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		unix.Close(s)
		return nil, err
	}
	u := &uevents{fd: os.NewFile(uintptr(s), "kernel events")}
	if u.conn, err = u.fd.SyscallConn(); err != nil {
		u.fd.Close()
		return nil, err
	}
	return u, nil
}

// gone waits until the character device of a name ("uverbs0") is removed, also if it
// was before the socket was opened. It fails when the socket is closed.
func (u *uevents) gone(name string) error {
	buf := make([]byte, 8<<10) // the kernel's own limit is 2 KiB (UEVENT_BUFFER_SIZE)
	for missed := true; ; {
		if missed {
			if _, err := os.Stat("/sys/class/infiniband_verbs/" + name); errors.Is(err, os.ErrNotExist) {
				return nil
			}
			missed = false
		}
		var n int
		var from unix.Sockaddr
		var rerr error
		err := u.conn.Read(func(fd uintptr) bool {
			n, from, rerr = unix.Recvfrom(int(fd), buf, 0)
			return rerr != unix.EAGAIN
		})
		switch {
		case err != nil:
			return err
		case errors.Is(rerr, unix.ENOBUFS):
			missed = true
		case rerr != nil:
			if !errors.Is(rerr, unix.EINTR) {
				return rerr
			}
		default:
			// From the kernel, not from somebody who says so.
			if a, ok := from.(*unix.SockaddrNetlink); ok && a.Pid == 0 && removalOf(buf[:n], name) {
				return nil
			}
		}
	}
}

// removalOf tells whether a kernel event, "action@path" and lines of "KEY=value"
// each ended by a zero, is the removal of a verbs device.
func removalOf(event []byte, name string) bool {
	var action, subsystem, node bool
	for line := range bytes.SplitSeq(event, []byte{0}) {
		switch string(line) {
		case "ACTION=remove":
			action = true
		case "SUBSYSTEM=infiniband_verbs":
			subsystem = true
		case "DEVNAME=infiniband/" + name:
			node = true
		}
	}
	return action && subsystem && node
}

func (u *uevents) close() { u.fd.Close() }
