//go:build ibverbs && linux && cgo

package ibverbs

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// alarm is a descriptor that becomes readable when it is rung. That it was is kept until it is
// heard.
type alarm struct {
	rung atomic.Bool // changed under mu
	mu   sync.Mutex
	fd   int // negative: closed
}

func (a *alarm) open() (err error) {
	a.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return err
}

func (a *alarm) ring() {
	if a.rung.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd < 0 || a.rung.Swap(true) {
		return
	}
	n := uint64(1) // raw: it doesn't block, so the runtime needn't know
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(a.fd), uintptr(unsafe.Pointer(&n)), 8)
}

// hush makes it ready to be rung again.
func (a *alarm) hush() {
	if !a.rung.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var n uint64
	syscall.RawSyscall(syscall.SYS_READ, uintptr(a.fd), uintptr(unsafe.Pointer(&n)), 8)
	a.rung.Store(false)
}

func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	unix.Close(a.fd)
	a.fd = -1
}
