//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"time"

	"rdmarw/transport"

	"golang.org/x/sys/unix"
)

// handle is called by the CM's goroutine.
func (c *conn) handle(ev *cmEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	if c.dev.isRemoved() {
		// What the end of the peer, on the same device, looks like is not the cause.
		c.end(transport.ErrDeviceRemoved)
		return
	}
	switch ev._type {
	case C.RDMA_CM_EVENT_ADDR_RESOLVED, C.RDMA_CM_EVENT_ROUTE_RESOLVED:
		select {
		case c.step <- struct{}{}:
		default:
		}
	case C.RDMA_CM_EVENT_ESTABLISHED:
		c.establish(ev)
	case C.RDMA_CM_EVENT_REJECTED:
		c.end(rejected(c.dev.caps.Protocol, int(ev.status), eventData(ev)))
	case C.RDMA_CM_EVENT_ADDR_ERROR, C.RDMA_CM_EVENT_ROUTE_ERROR:
		c.end(c.eventError(ev, transport.ErrUnreachable))
	case C.RDMA_CM_EVENT_UNREACHABLE, C.RDMA_CM_EVENT_CONNECT_ERROR:
		sentinel := transport.ErrUnreachable
		if syscall.Errno(-ev.status) == syscall.ETIMEDOUT {
			sentinel = transport.ErrTimeout
		}
		c.end(c.eventError(ev, sentinel))
	case C.RDMA_CM_EVENT_DISCONNECTED:
		// Before the CM: on siw, by way of SQD, what is outstanding would never be
		// flushed (siw_qp.c, siw_qp_nextstate_from_close), and there is nobody to tell.
		if c.qp != nil {
			c.qp.Fail()
		}
		c.disconnect()
		c.end(fmt.Errorf("by the peer: %w", transport.ErrDisconnected))
	}
}

func (c *conn) eventError(ev *cmEvent, sentinel error) error {
	e := &transport.Error{Op: "connect", Device: c.dev.name, WR: -1, Err: sentinel,
		Detail: C.GoString(C.rdma_event_str(C.enum_rdma_cm_event_type(ev._type)))}
	if ev.status < 0 {
		e.Errno = syscall.Errno(-ev.status)
	}
	return e
}

// establish notes that the connection is up, and what depths are in force.
func (c *conn) establish(ev *cmEvent) {
	if c.qp == nil || c.ended() {
		return
	}
	info := transport.ConnInfo{
		PrivateData:        eventData(ev),
		InitiatorDepth:     c.initiator,
		ResponderResources: c.responder,
	}
	// The answer carries what the peer agreed to. On iWARP zeros mean that nothing
	// was negotiated (MPA version 1).
	ini, resp := int(ev.initiator_depth), int(ev.responder_resources)
	if c.dev.quirk.depthsSwapped {
		ini, resp = resp, ini
	}
	if !c.passive && (ini != 0 || resp != 0 || c.dev.caps.Protocol != transport.IWARP) {
		info.InitiatorDepth = min(info.InitiatorDepth, ini)
		info.ResponderResources = min(info.ResponderResources, resp)
	}
	if ini, resp, ok := c.qp.depths(); ok {
		info.InitiatorDepth = min(info.InitiatorDepth, ini)
		info.ResponderResources = min(info.ResponderResources, resp)
	}
	c.qp.ready(info.InitiatorDepth)
	c.info = info
	if c.settling = c.dev.quirk.answersEarly && !c.passive; c.settling {
		time.AfterFunc(settleTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.settled()
		})
		return
	}
	close(c.up)
}

// settleTime is how long a peer gets that has answered early: longer than a thread that was
// interrupted in the middle is mostly away for.
const settleTime = 5 * time.Millisecond

// settled says that a connection is up that was about to be. c.mu is held.
func (c *conn) settled() {
	if c.settling {
		c.settling = false
		close(c.up)
	}
}

// rejected makes an error of a REJECTED event. Reason 8 of InfiniBand's CM, and
// ECONNREFUSED on iWARP, mean that nobody listens. iWARP's reasons are errnos;
// ECONNRESET is what siw makes of a peer that says no, and of a port that is taken
// where nobody hears of it (see Listen).
func rejected(protocol transport.Protocol, status int, data []byte) error {
	if status < 0 {
		status = -status
	}
	err := &transport.RejectedError{Reason: status, PrivateData: data}
	if status == 8 || syscall.Errno(status) == syscall.ECONNREFUSED {
		return fmt.Errorf("nobody listens there: %w (%w)", transport.ErrUnreachable, err)
	}
	if protocol != transport.IWARP {
		return err
	}
	switch name := unix.ErrnoName(syscall.Errno(status)); {
	case name == "ECONNRESET" && len(data) == 0:
		return fmt.Errorf("%w: %s: mostly nobody listens there", err, name)
	case name != "":
		return fmt.Errorf("%w: %s", err, name)
	}
	return err
}
