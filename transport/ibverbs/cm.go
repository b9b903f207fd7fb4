//go:build ibverbs && linux && cgo

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"

	"rdmarw/transport"
)

// cm is the connection manager of one device: a channel of librdmacm, and the
// goroutine that takes events off it.
//
// Events name what they are for by a number of ours (the id's context) and not by
// the id: an id's memory may be reused between the moment its event is taken and
// acknowledged, and the moment the event is handled.
type cm struct {
	dev     *device
	channel *C.struct_rdma_event_channel
	fd      *os.File
	done    chan struct{}

	// taking is held while an event is taken: librdmacm moves the id's queue pair
	// through its states then, so a queue pair is taken away from its id under it.
	taking sync.Mutex

	mu        sync.Mutex
	owners    map[uint64]owner
	lastOwner uint64
}

// owner receives the events of one id.
type owner interface {
	handle(ev *cmEvent)
	// removed: the device is gone.
	removed()
}

type cmEvent = C.struct_rd_cm_event

func newCM(d *device) (*cm, error) {
	channel, err := C.rdma_create_event_channel()
	if channel == nil {
		errno, _ := err.(syscall.Errno)
		return nil, &transport.Error{Op: "open", Device: d.name, WR: -1, Errno: errno, Err: transport.ErrNoDevice,
			Detail: "opening /dev/infiniband/rdma_cm: is module rdma_ucm loaded, and the file open to this user?"}
	}
	m := &cm{dev: d, channel: channel, done: make(chan struct{}), owners: make(map[uint64]owner)}
	if m.fd, err = pollable(int(channel.fd), d.name+" connection events"); err != nil {
		C.rdma_destroy_event_channel(channel)
		return nil, &transport.Error{Op: "open", Device: d.name, WR: -1, Err: err}
	}
	go m.run()
	return m, nil
}

func (m *cm) close() {
	m.fd.Close()
	<-m.done
	C.rdma_destroy_event_channel(m.channel)
}

// add gives an owner its number.
func (m *cm) add(o owner) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastOwner++
	m.owners[m.lastOwner] = o
	return m.lastOwner
}

// adopt gives a number that run has set aside to an owner.
func (m *cm) adopt(n uint64, o owner) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owners[n] = o
}

func (m *cm) forget(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.owners, n)
}

func (m *cm) removed() {
	m.mu.Lock()
	all := make([]owner, 0, len(m.owners))
	for _, o := range m.owners {
		all = append(all, o)
	}
	m.mu.Unlock()
	for _, o := range all {
		o.removed()
	}
}

// run takes and dispatches events until the descriptor is closed.
func (m *cm) run() {
	defer close(m.done)
	conn, err := m.fd.SyscallConn()
	if err != nil {
		return
	}
	ev := new(cmEvent)
	for {
		// A number that no owner has, for the id of a request.
		m.mu.Lock()
		m.lastOwner++
		fresh := m.lastOwner
		m.mu.Unlock()
		var rc C.int
		err := conn.Read(func(uintptr) bool {
			m.taking.Lock()
			rc = C.rd_next_cm(m.channel, C.uint64_t(fresh), ev)
			m.taking.Unlock()
			return rc != C.EAGAIN
		})
		if err != nil {
			return
		}
		switch syscall.Errno(rc) {
		case 0:
			m.dispatch(ev, fresh)
		case syscall.ENOMEM, syscall.ENODATA:
			// The event is still there, or was dropped by librdmacm.
		default:
			m.removed() // the channel is dead, and nothing would ever end otherwise
			return
		}
	}
}

func (m *cm) dispatch(ev *cmEvent, fresh uint64) {
	m.mu.Lock()
	o := m.owners[uint64(ev.owner)]
	m.mu.Unlock()
	if ev._type == C.RDMA_CM_EVENT_CONNECT_REQUEST {
		l, _ := o.(*listener)
		if l == nil || !l.request(ev, fresh) {
			C.rd_reject(ev.id, nil, 0)
			C.rd_destroy_id(ev.id)
		}
		return
	}
	if ev._type == C.RDMA_CM_EVENT_DEVICE_REMOVAL {
		// Ids are told one by one; on drivers that can't be taken from their users
		// (rxe) there is no asynchronous event, and this is the only word of it.
		m.dev.adapter.remove(C.GoString(C.rdma_event_str(C.enum_rdma_cm_event_type(ev._type))))
		return
	}
	if o != nil {
		o.handle(ev)
	}
}

// data copies an event's private data.
func eventData(ev *cmEvent) []byte {
	if ev.data_len == 0 {
		return nil
	}
	b := make([]byte, ev.data_len)
	for i := range b {
		b[i] = byte(ev.data[i])
	}
	return b
}

func toC(a netip.AddrPort) C.struct_rd_addr {
	var c C.struct_rd_addr
	ip := a.Addr().Unmap()
	c.port = C.uint16_t(a.Port())
	b := ip.AsSlice()
	for i := range b {
		c.ip[i] = C.uint8_t(b[i])
	}
	if ip.Is6() {
		c.v6 = 1
		if zone := ip.Zone(); zone != "" {
			if ifc, err := net.InterfaceByName(zone); err == nil {
				c.scope = C.uint32_t(ifc.Index)
			} else if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
				c.scope = C.uint32_t(n)
			}
		}
	}
	return c
}

func fromC(c *C.struct_rd_addr) netip.AddrPort {
	var b [16]byte
	for i := range b {
		b[i] = byte(c.ip[i])
	}
	if c.v6 == 0 {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), uint16(c.port))
	}
	ip := netip.AddrFrom16(b).Unmap()
	if c.scope != 0 && ip.Is6() {
		zone := strconv.Itoa(int(c.scope))
		if ifc, err := net.InterfaceByIndex(int(c.scope)); err == nil {
			zone = ifc.Name
		}
		ip = ip.WithZone(zone)
	}
	return netip.AddrPortFrom(ip, uint16(c.port))
}

// lookup finds the addresses of "host:port". An empty host is no address.
func lookup(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return []netip.AddrPort{netip.AddrPortFrom(netip.Addr{}, uint16(port))}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	list := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		list[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return list, nil
}

// source picks the device's own address to connect from, so that the route leads
// through this device and no other: one of the same subnet, else of the same
// family. Without any, the kernel picks.
func (d *device) source(dst netip.Addr) (netip.Addr, bool) {
	var found netip.Addr
	for _, n := range d.info.NetDevs {
		ifc, err := net.InterfaceByName(n)
		if err != nil {
			continue
		}
		nets, _ := ifc.Addrs()
		for _, a := range nets {
			ipn, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			ip, ok := netip.AddrFromSlice(ipn.IP)
			if ip = ip.Unmap(); !ok || ip.Is4() != dst.Is4() || ip.IsLinkLocalUnicast() != dst.IsLinkLocalUnicast() {
				continue
			}
			if ip.Is6() && ip.IsLinkLocalUnicast() {
				ip = ip.WithZone(n)
			}
			if ipn.Contains(dst.AsSlice()) {
				return ip, true
			}
			if !found.IsValid() {
				found = ip
			}
		}
	}
	return found, found.IsValid()
}
