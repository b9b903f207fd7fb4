//go:build ibverbs && linux && cgo

package ibverbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"rdmarw/transport"

	"golang.org/x/sys/unix"
)

var _ transport.PD = (*pd)(nil)

type pd struct {
	dev      *device
	c        *C.struct_ibv_pd
	table    transport.RegionTable
	windows  *C.struct_rd_windows
	children children

	mu      sync.Mutex
	regions map[transport.RegionID]*regionMR
	slots   windowSlots
}

// regionMR is a region's registration in a protection domain.
type regionMR struct {
	mr    *C.struct_ibv_mr
	users int // registrations that cover part of the region
}

func (d *device) NewPD() (transport.PD, error) {
	if err := d.children.add(kindPD); err != nil {
		return nil, err
	}
	p := &pd{dev: d, regions: make(map[transport.RegionID]*regionMR)}
	rc := C.int(C.ENOMEM)
	if p.windows = zeroed[C.struct_rd_windows](1); p.windows != nil {
		rc = C.rd_alloc_pd(d.ctx, &p.c)
	}
	if rc != 0 {
		C.free(ptr(p.windows))
		d.children.drop(kindPD)
		return nil, d.fail("new protection domain", rc, transport.ErrNoMemory)
	}
	inUse.pds.Add(1)
	return p, nil
}

func (p *pd) Device() transport.Device        { return p.dev }
func (p *pd) Regions() *transport.RegionTable { return &p.table }

// verbsAccess maps rights. BindWindow means nothing on a device without windows
// and is left out there.
func (p *pd) verbsAccess(a transport.Access) C.int {
	var v C.int
	if a.Has(transport.LocalWrite) {
		v |= C.IBV_ACCESS_LOCAL_WRITE
	}
	if a.Has(transport.RemoteRead) {
		v |= C.IBV_ACCESS_REMOTE_READ
	}
	if a.Has(transport.RemoteWrite) {
		v |= C.IBV_ACCESS_REMOTE_WRITE
	}
	if a.Has(transport.RemoteAtomic) {
		v |= C.IBV_ACCESS_REMOTE_ATOMIC
	}
	if a.Has(transport.BindWindow) && p.dev.caps.Windows != transport.NoWindows {
		v |= C.IBV_ACCESS_MW_BIND
	}
	if p.dev.onDemand {
		v |= C.IBV_ACCESS_ON_DEMAND
	}
	return v
}

// register registers memory.
func (p *pd) register(op string, addr, size uint64, access transport.Access) (*C.struct_ibv_mr, error) {
	var mr *C.struct_ibv_mr
	rc := C.rd_reg_mr(p.c, C.uint64_t(addr), C.uint64_t(size), p.verbsAccess(access), &mr)
	if rc == 0 {
		inUse.mrs.Add(1)
		return mr, nil
	}
	e := &transport.Error{Op: op, Device: p.dev.name, WR: -1, Errno: syscall.Errno(rc),
		Err: errnoSentinel(syscall.Errno(rc), transport.ErrNoMemory), Detail: fmt.Sprintf("%d bytes at %#x, rights %v", size, addr, access)}
	switch syscall.Errno(rc) {
	case syscall.ENOMEM:
		if limit, pinned, hit := memlock(size); hit {
			e.Err = transport.ErrMemlock
			e.Detail += fmt.Sprintf("; the limit is %d bytes, of which %d are taken", limit, pinned)
		}
	case syscall.EFAULT:
		e.Err = transport.ErrRange
		e.Detail += ": not all of it is mapped, or not writable"
	}
	return nil, e
}

// memlock tells whether locking size more bytes hits RLIMIT_MEMLOCK. The kernel
// answers ENOMEM for that as for everything (ib_umem_get), so its sum is done
// again: VmPin is what it compares with the limit, and CAP_IPC_LOCK lifts it.
func memlock(size uint64) (limit, pinned uint64, hit bool) {
	var rl unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &rl) != nil || rl.Cur == unix.RLIM_INFINITY {
		return 0, 0, false
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, false
	}
	pinned, capable := parseLocked(string(status))
	page := uint64(unix.Getpagesize())
	return rl.Cur, pinned, !capable && pinned+(size+page-1)/page*page > rl.Cur
}

// parseLocked reads the pinned bytes and the presence of CAP_IPC_LOCK from
// /proc/self/status.
func parseLocked(status string) (pinned uint64, capable bool) {
	for line := range strings.Lines(status) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "VmPin:":
			kb, _ := strconv.ParseUint(f[1], 10, 64)
			pinned = kb << 10
		case "CapEff:":
			set, _ := strconv.ParseUint(f[1], 16, 64)
			capable = set>>unix.CAP_IPC_LOCK&1 != 0
		}
	}
	return pinned, capable
}

func (p *pd) AddRegion(r *transport.Region) error {
	if !p.dev.owns(r) {
		return &transport.Error{Op: "add region", Device: p.dev.name, WR: -1, Err: transport.ErrRegion}
	}
	if err := p.children.add(kindRegion); err != nil {
		return err
	}
	err := p.addRegion(r)
	if err != nil {
		p.children.drop(kindRegion)
	}
	return err
}

func (p *pd) addRegion(r *transport.Region) error {
	if err := r.Retain(); err != nil {
		return err
	}
	mr, err := p.register("add region", r.Addr(), r.Len(), r.Access())
	if err != nil {
		r.Release()
		return err
	}
	p.mu.Lock()
	err = p.table.Add(r, transport.LKey(mr.lkey))
	if err == nil {
		p.regions[r.ID()] = &regionMR{mr: mr}
	}
	p.mu.Unlock()
	if err != nil {
		p.deregister("add region", mr)
		r.Release()
		return &transport.Error{Op: "add region", Device: p.dev.name, WR: -1, Err: err, Detail: "it was added already"}
	}
	return nil
}

func (p *pd) RemoveRegion(r *transport.Region) error {
	if !p.dev.owns(r) {
		return nil
	}
	p.mu.Lock()
	m := p.regions[r.ID()]
	if m == nil {
		p.mu.Unlock()
		return nil
	}
	if m.users > 0 {
		p.mu.Unlock()
		return &transport.Error{Op: "remove region", Device: p.dev.name, WR: -1, Err: transport.ErrBusy,
			Detail: fmt.Sprintf("%d registration(s) cover part of it", m.users)}
	}
	// Whoever is in here alone: nobody may cover part of it any more.
	p.table.Remove(r.ID())
	m.users++
	p.mu.Unlock()
	if err := p.deregister("remove region", m.mr); err != nil {
		p.mu.Lock()
		m.users-- // the next call tries again
		p.mu.Unlock()
		return err
	}
	p.mu.Lock()
	delete(p.regions, r.ID())
	p.mu.Unlock()
	r.Release()
	p.children.drop(kindRegion)
	return nil
}

// deregister ends a registration. Where it fails, the registration is there still.
func (p *pd) deregister(op string, mr *C.struct_ibv_mr) error {
	err := p.dev.destroyed(op, C.ibv_dereg_mr(mr))
	if err == nil {
		inUse.mrs.Add(-1)
	}
	return err
}

// cover finds out what a mapping of one contiguous range covers, and notes the
// region's user; uncover takes that back.
func (p *pd) cover(m transport.Mapping, need transport.Access) (transport.Extent, *transport.RegionEntry, *regionMR, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ext, e, err := contiguous(p.table.View(), m, need, p.dev.caps.MaxMRSize)
	if err != nil {
		return ext, nil, nil, err
	}
	mr := p.regions[e.ID]
	mr.users++
	return ext, e, mr, nil
}

func (p *pd) uncover(mr *regionMR) {
	p.mu.Lock()
	mr.users--
	p.mu.Unlock()
}

func (p *pd) NewRegistration(kind transport.RegistrationKind, _ int) (transport.Registration, error) {
	unsupported := &transport.Error{Op: "new registration", Device: p.dev.name, WR: -1, Err: transport.ErrUnsupported}
	switch kind {
	case transport.SyncMR, transport.Window:
	case transport.FastMR:
		unsupported.Detail = "user-space verbs has no fast registration"
		return nil, unsupported
	default:
		return nil, p.dev.invalid("new registration", "kind %d", kind)
	}
	if kind == transport.Window && p.dev.caps.Windows == transport.NoWindows {
		unsupported.Detail = "no type-2 windows"
		return nil, unsupported
	}
	if err := p.children.add(kindRegistration); err != nil {
		return nil, err
	}
	if kind == transport.SyncMR {
		return newSyncMR(p), nil
	}
	w, err := newWindow(p)
	if err != nil {
		p.children.drop(kindRegistration)
		return nil, err
	}
	return w, nil
}

func (p *pd) Close() error {
	return p.children.close("protection domain", p.dev.name, func() error {
		if err := p.dev.destroyed("close protection domain", C.ibv_dealloc_pd(p.c)); err != nil {
			return err
		}
		for _, block := range p.windows.block {
			C.free(ptr(block))
		}
		C.free(ptr(p.windows))
		inUse.pds.Add(-1)
		p.dev.children.drop(kindPD)
		return nil
	})
}
