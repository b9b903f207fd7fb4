//go:build ibverbs && linux && cgo

package ibverbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"rdmarw/transport"

	"golang.org/x/sys/unix"
)

// adapter is librdmacm's context of one RDMA device: there is one per process,
// and with it one stream of asynchronous events, so all the devices that were
// opened by one name share it.
type adapter struct {
	name string
	ctx  *C.struct_ibv_context
	list **C.struct_ibv_context // keeps librdmacm from closing ctx when the device is unplugged
	fd   *os.File               // a duplicate of the descriptor of asynchronous events
	word *uevents               // of the device's removal; nil where it can't be had
	done sync.WaitGroup         // of the goroutines that read these
	refs int                    // under adapters.mu

	mu      sync.Mutex
	cover   *C.struct_ibv_cq // see quirk.keyTaken
	devices map[*device]struct{}
	qps     map[uint64]*qp // by number of ours: the device's is reused
	cqs     map[uint64]*cq
	last    uint64 // number given to a queue pair or CQ
	removed bool
}

var adapters struct {
	mu     sync.Mutex
	byName map[string]*adapter
}

// openAdapter returns the adapter of a device; put gives it back.
func openAdapter(name string) (*adapter, error) {
	adapters.mu.Lock()
	defer adapters.mu.Unlock()
	if a := adapters.byName[name]; a != nil && !a.isRemoved() {
		a.refs++
		return a, nil
	}
	var n C.int
	list, err := C.rdma_get_devices(&n)
	if list == nil {
		errno, _ := err.(syscall.Errno)
		return nil, &transport.Error{Op: "open", Device: name, WR: -1, Errno: errno, Err: transport.ErrNoDevice,
			Detail: "librdmacm finds no device it may use: are /dev/infiniband/rdma_cm and uverbs* there, and open to this user?"}
	}
	var ctx *C.struct_ibv_context
	for _, c := range unsafe.Slice(list, int(n)) {
		if C.GoString(C.ibv_get_device_name(c.device)) == name {
			ctx = c
		}
	}
	if ctx == nil {
		C.rdma_free_devices(list)
		return nil, &transport.Error{Op: "open", Device: name, WR: -1, Err: transport.ErrNoDevice,
			Detail: "the kernel has the device, libibverbs has no provider for it: is ibverbs-providers installed?"}
	}
	a := &adapter{
		name:    name,
		ctx:     ctx,
		list:    list,
		refs:    1,
		devices: make(map[*device]struct{}),
		qps:     make(map[uint64]*qp),
		cqs:     make(map[uint64]*cq),
	}
	if a.fd, err = pollable(int(ctx.async_fd), name+" asynchronous events"); err != nil {
		C.rdma_free_devices(list)
		return nil, &transport.Error{Op: "open", Device: name, WR: -1, Err: err}
	}
	a.done.Go(a.run)
	if a.word, err = openUevents(); err == nil {
		a.done.Go(a.awaitRemoval)
	}
	if adapters.byName == nil {
		adapters.byName = make(map[string]*adapter)
	}
	adapters.byName[name] = a
	return a, nil
}

func (a *adapter) put() {
	adapters.mu.Lock()
	defer adapters.mu.Unlock()
	if a.refs--; a.refs > 0 {
		return
	}
	if adapters.byName[a.name] == a { // not a successor, of a device that was plugged in again
		delete(adapters.byName, a.name)
	}
	a.fd.Close()
	if a.word != nil {
		a.word.close()
	}
	a.done.Wait()
	if a.cover != nil {
		C.ibv_destroy_cq(a.cover) // of a removed device, too: its mapping keeps the file open
	}
	if !a.isRemoved() {
		C.rdma_free_devices(a.list)
		return
	}
	// librdmacm closes a context that is dead once nobody uses it any more, which is
	// what the kernel waits for; and that it is dead it finds out when it is asked
	// for what there is (rdma-core 44, sync_devices_list: not if that is nothing).
	if list := C.rdma_get_devices(nil); list != nil {
		C.rdma_free_devices(list)
	}
	C.rdma_free_devices(a.list)
}

// coverKey does what the quirk keyTaken asks for, once.
func (a *adapter) coverKey() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cover == nil {
		a.cover = C.rd_cover_key(a.ctx)
	}
}

// awaitRemoval ends everything when the kernel says that the device goes.
func (a *adapter) awaitRemoval() {
	if a.word.gone(C.GoString(&a.ctx.device.dev_name[0])) == nil {
		a.remove("the kernel is removing the device")
	}
}

// pollable makes a descriptor that belongs to a C library known to the runtime's
// poller. It is a duplicate, so that closing it leaves the library's own alone.
func pollable(fd int, name string) (*os.File, error) {
	if rc := C.rd_nonblock(C.int(fd)); rc != 0 {
		return nil, syscall.Errno(rc)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(dup), name), nil
}

// run reads asynchronous events until the descriptor is closed.
func (a *adapter) run() {
	conn, err := a.fd.SyscallConn()
	if err != nil {
		return
	}
	for {
		var ev C.struct_rd_async
		var rc C.int
		err := conn.Read(func(uintptr) bool {
			rc = C.rd_next_async(a.ctx, &ev)
			return rc != C.EAGAIN
		})
		if err != nil {
			return
		}
		if rc != 0 {
			// EIO: the device was unplugged and its file is dead.
			a.remove(fmt.Sprintf("reading asynchronous events: %v", syscall.Errno(rc)))
			return
		}
		a.dispatch(&ev)
	}
}

func (a *adapter) dispatch(ev *C.struct_rd_async) {
	e := transport.Event{
		Kind:   transport.EventOther,
		QPN:    uint32(ev.qpn),
		Detail: C.GoString(C.ibv_event_type_str(C.enum_ibv_event_type(ev._type))),
	}
	switch ev._type {
	case C.IBV_EVENT_DEVICE_FATAL:
		a.remove(e.Detail)
		return
	case C.IBV_EVENT_CQ_ERR:
		e.Kind = transport.EventCQError
		a.mu.Lock()
		cq := a.cqs[uint64(ev.owner)]
		a.mu.Unlock()
		if cq != nil {
			cq.overrun.Store(true)
			cq.Wake()
			cq.dev.event(e)
		}
		return
	case C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR:
		e.Kind = transport.EventQPFatal
	case C.IBV_EVENT_QP_ACCESS_ERR:
		e.Kind = transport.EventQPAccess
	case C.IBV_EVENT_PORT_ACTIVE, C.IBV_EVENT_PORT_ERR:
		e.Kind = transport.EventPort
	}
	if e.QPN == 0 {
		if ev.port != 0 {
			e.Detail = fmt.Sprintf("port %d: %s", ev.port, e.Detail)
		}
		a.broadcast(e)
		return
	}
	a.mu.Lock()
	q := a.qps[uint64(ev.owner)]
	a.mu.Unlock()
	if q == nil {
		return
	}
	switch ev._type {
	case C.IBV_EVENT_COMM_EST:
		// Data came before the peer's last CM message did: the CM wants to know.
		q.conn.notify(ev._type)
		return
	case C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
		q.state.Store(int32(transport.QPError))
	}
	q.dev.event(e)
}

func (a *adapter) broadcast(e transport.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for d := range a.devices {
		d.event(e)
	}
}

// number returns one that no object had before.
func (a *adapter) number() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	return a.last
}

func (a *adapter) isRemoved() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.removed
}

// remove ends all that uses the device.
func (a *adapter) remove(detail string) {
	a.mu.Lock()
	if a.removed {
		a.mu.Unlock()
		return
	}
	a.removed = true
	devices := make([]*device, 0, len(a.devices))
	for d := range a.devices {
		devices = append(devices, d)
	}
	a.mu.Unlock()
	forgetProbe(a.name) // the next device of this name may be another one
	for _, d := range devices {
		d.event(transport.Event{Kind: transport.EventDeviceRemoved, Detail: detail})
		d.cm.removed()
	}
}
