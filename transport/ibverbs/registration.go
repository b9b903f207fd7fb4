//go:build ibverbs && linux && cgo

package ibverbs

// #include <errno.h>
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"unsafe"

	"rdmarw/transport"
)

var (
	_ transport.Registration = (*syncMR)(nil)
	_ transport.Registration = (*window)(nil)
)

// syncMR is an ordinary MR of exactly the mapped range, which lives from Map to
// Unmap: ibv_reg_mr and ibv_dereg_mr each enter the kernel and pin or unpin
// pages.
type syncMR struct {
	pd     *pd
	mr     *C.struct_ibv_mr // nil: not mapped
	region *regionMR
	closed bool
}

func newSyncMR(p *pd) *syncMR { return &syncMR{pd: p} }

// ID is zero: no WR ever names an MR.
func (s *syncMR) ID() transport.RegistrationID     { return 0 }
func (s *syncMR) Kind() transport.RegistrationKind { return transport.SyncMR }

func (s *syncMR) Map(m transport.Mapping) (transport.Extent, error) {
	if s.closed {
		return transport.Extent{}, transport.ErrClosed
	}
	if !m.Access.Valid() || m.Access.Has(transport.BindWindow) {
		return transport.Extent{}, s.pd.dev.invalid("map", "rights %v", m.Access)
	}
	if err := s.Unmap(); err != nil {
		return transport.Extent{}, err
	}
	ext, _, region, err := s.pd.cover(m, m.Access&transport.LocalWrite)
	if err != nil {
		return transport.Extent{}, err
	}
	mr, err := s.pd.register("map", ext.IOVA, ext.Len, m.Access)
	if err != nil {
		s.pd.uncover(region)
		return transport.Extent{}, err
	}
	s.mr, s.region = mr, region
	return ext, nil
}

func (s *syncMR) Unmap() error {
	if s.mr == nil {
		return nil
	}
	if err := s.pd.deregister("unmap", s.mr); err != nil {
		return err
	}
	s.pd.uncover(s.region)
	s.mr, s.region = nil, nil
	return nil
}

func (s *syncMR) KeyByte() uint8 { return 0 }

func (s *syncMR) LKey(uint8) transport.LKey {
	if s.mr == nil {
		return 0
	}
	return transport.LKey(s.mr.lkey)
}

func (s *syncMR) RKey(uint8) transport.RKey {
	if s.mr == nil {
		return 0
	}
	return transport.RKey(s.mr.rkey)
}

func (s *syncMR) AppendValid(wrs []transport.WR, _ uint8) []transport.WR   { return wrs }
func (s *syncMR) AppendInvalid(wrs []transport.WR, _ uint8) []transport.WR { return wrs }

func (s *syncMR) Close() error {
	if s.closed {
		return nil
	}
	if err := s.Unmap(); err != nil {
		return err
	}
	s.closed = true
	s.pd.children.drop(kindRegistration)
	return nil
}

// window is a type-2 memory window. The mapping is kept on the C side, where
// posting a BIND_MW finds it by the window's id.
type window struct {
	pd     *pd
	c      *C.struct_rd_window
	key    uint32 // as allocated
	region *regionMR
	// own is an MR of exactly the mapped range, where a window alone would let peers
	// reach all of what it is bound over.
	own *C.struct_ibv_mr
}

func newWindow(p *pd) (*window, error) {
	var mw *C.struct_ibv_mw
	if rc := C.rd_alloc_window(p.c, &mw); rc != 0 {
		return nil, p.dev.fail("new window", rc, transport.ErrNoMemory)
	}
	w, err := p.addWindow(mw)
	if err != nil {
		C.ibv_dealloc_mw(mw)
		return nil, err
	}
	inUse.windows.Add(1)
	return w, nil
}

// addWindow makes a window known to posting.
func (p *pd) addWindow(mw *C.struct_ibv_mw) (*window, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, ok := p.slots.take()
	if !ok {
		return nil, &transport.Error{Op: "new window", Device: p.dev.name, WR: -1, Err: transport.ErrNoMemory,
			Detail: "2^18 windows in this protection domain"}
	}
	slot := id.slot()
	block := &p.windows.block[slot>>C.RD_BLOCK_BITS]
	if *block == nil {
		if *block = zeroed[C.struct_rd_window](C.RD_BLOCK); *block == nil {
			p.slots.give(id)
			return nil, p.dev.fail("new window", C.ENOMEM, transport.ErrNoMemory)
		}
	}
	w := &window{pd: p, key: uint32(mw.rkey)}
	w.c = &unsafe.Slice(*block, int(C.RD_BLOCK))[slot&(C.RD_BLOCK-1)]
	*w.c = C.struct_rd_window{mw: mw, id: C.uint32_t(id)}
	return w, nil
}

// forget is the opposite.
func (w *window) forget() {
	id := windowID(w.c.id)
	*w.c = C.struct_rd_window{}
	w.c = nil
	w.pd.mu.Lock()
	w.pd.slots.give(id)
	w.pd.mu.Unlock()
}

func (w *window) ID() transport.RegistrationID {
	if w.c == nil {
		return 0
	}
	return transport.RegistrationID(w.c.id)
}

func (w *window) Kind() transport.RegistrationKind { return transport.Window }

func (w *window) Map(m transport.Mapping) (transport.Extent, error) {
	if w.c == nil {
		return transport.Extent{}, transport.ErrClosed
	}
	need := transport.BindWindow
	if m.Access&(transport.RemoteWrite|transport.RemoteAtomic) != 0 {
		need |= transport.LocalWrite
	}
	if err := w.Unmap(); err != nil {
		return transport.Extent{}, err
	}
	ext, e, region, err := w.pd.cover(m, need)
	if err != nil {
		return transport.Extent{}, err
	}
	w.region = region
	w.c.mr = region.mr
	if w.pd.dev.quirk.windowsReachRegion && (ext.IOVA != e.Addr || ext.Len != e.Len) {
		if w.own, err = w.pd.register("map", ext.IOVA, ext.Len, need); err != nil {
			w.pd.uncover(region)
			w.region, w.c.mr = nil, nil
			return transport.Extent{}, err
		}
		w.c.mr = w.own
	}
	w.c.addr = C.uint64_t(ext.IOVA)
	w.c.length = C.uint64_t(ext.Len)
	w.c.access = C.uint32_t(w.pd.verbsAccess(m.Access&transport.RemoteAny) &^ C.IBV_ACCESS_ON_DEMAND)
	return ext, nil
}

// Unmap forgets the mapping, so that its region can be taken out of the
// protection domain again. It leaves the window's validity alone; posting a bind
// of it is refused until it is mapped again.
func (w *window) Unmap() error {
	if w.own != nil {
		if err := w.pd.deregister("unmap", w.own); err != nil {
			return err
		}
		w.own = nil
	}
	if w.region != nil {
		w.pd.uncover(w.region)
		w.region = nil
		w.c.mr = nil
	}
	return nil
}

func (w *window) KeyByte() uint8            { return uint8(w.key) }
func (w *window) LKey(uint8) transport.LKey { return 0 }

func (w *window) RKey(keyByte uint8) transport.RKey {
	return transport.RKey(w.key&^0xff | uint32(keyByte))
}

func (w *window) AppendValid(wrs []transport.WR, keyByte uint8) []transport.WR {
	return append(wrs, transport.WR{Op: transport.OpBindWindow, Reg: w.ID(), KeyByte: keyByte})
}

// AppendInvalid appends a LOCAL_INV also where Caps.LocalInv says that it isn't
// to be used: the post is refused there.
func (w *window) AppendInvalid(wrs []transport.WR, keyByte uint8) []transport.WR {
	return append(wrs, transport.WR{Op: transport.OpLocalInv, Reg: w.ID(), KeyByte: keyByte})
}

func (w *window) Close() error {
	if w.c == nil {
		return nil
	}
	if w.c.mw != nil {
		if err := w.pd.dev.destroyed("close window", C.ibv_dealloc_mw(w.c.mw)); err != nil {
			return err
		}
		w.c.mw = nil // an Unmap that fails is tried again
		inUse.windows.Add(-1)
	}
	if err := w.Unmap(); err != nil {
		return err
	}
	w.forget()
	w.pd.children.drop(kindRegistration)
	return nil
}

// windowID is a transport.RegistrationID: a slot, and a generation that tells the
// id of a closed window from its successor's.
type windowID uint32

func (id windowID) slot() int { return int(id & (1<<C.RD_SLOT_BITS - 1)) }

// windowSlots gives out ids. The zero value is ready.
type windowSlots struct {
	gen  []uint32
	free []int
}

func (s *windowSlots) take() (windowID, bool) {
	var slot int
	switch n := len(s.free); {
	case n > 0:
		slot = s.free[n-1]
		s.free = s.free[:n-1]
	case len(s.gen) < 1<<C.RD_SLOT_BITS:
		slot = len(s.gen)
		s.gen = append(s.gen, 0)
	default:
		return 0, false
	}
	s.gen[slot] = s.gen[slot]%(1<<(32-C.RD_SLOT_BITS)-1) + 1
	return windowID(s.gen[slot]<<C.RD_SLOT_BITS | uint32(slot)), true
}

func (s *windowSlots) give(id windowID) { s.free = append(s.free, id.slot()) }
