package sim

import "rdmarw/transport"

// window is a type-2 memory window.
type window struct {
	regBase
	slot      uint32
	firstByte uint8

	// What was last given to Map. region is that of the memory, or own.
	mapped struct {
		region *mr
		addr   uint64
		length uint64
		access transport.Access
	}

	// own is a region of exactly the mapped range, where a window alone would let
	// peers reach all of what it is bound over.
	own *mr

	// What is bound.
	valid   bool
	keyByte uint8
	qp      *QP
	mr      *mr
	addr    uint64
	length  uint64
	access  transport.Access
}

func (w *window) Kind() transport.RegistrationKind { return transport.Window }

// Map notes the range. The rights of a window are the peer's; local ones are
// ignored.
func (w *window) Map(m transport.Mapping) (transport.Extent, error) {
	const op = "map"
	d := w.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if err := w.checkMapping(op, &m); err != nil {
		return transport.Extent{}, err
	}
	if err := w.unmap(op); err != nil {
		return transport.Extent{}, err
	}
	access := m.Access & transport.RemoteAny
	ext := d.contiguous(&m)
	if ext.Len == 0 {
		return transport.Extent{}, w.nothing(op)
	}
	var region *mr
	err := w.pd.covered(&m, &ext, localNeed(access)|transport.BindWindow, func(r *mr, _ uint64, _ uint32) { region = r })
	if err != nil {
		return transport.Extent{}, d.errorf(op, err, "")
	}
	if err := d.allocatable(op, AllocMap); err != nil {
		return transport.Extent{}, err
	}
	if d.caps.MapBlocks[transport.Window] && (ext.IOVA != region.iova || ext.Len != region.length) {
		if region, err = w.registerExactly(op, region, ext, access); err != nil {
			return transport.Extent{}, err
		}
	}
	w.mapped.region, w.mapped.addr, w.mapped.length, w.mapped.access = region, ext.IOVA, ext.Len, access
	return ext, nil
}

// registerExactly makes the region that the window will be bound over.
func (w *window) registerExactly(op string, region *mr, ext transport.Extent, access transport.Access) (*mr, error) {
	n, err := w.dev.newMR(op, w.pd, transport.SyncMR)
	if err != nil {
		return nil, err
	}
	n.access = localNeed(access) | transport.BindWindow
	n.reset(ext.IOVA)
	n.append(region.at(ext.IOVA - region.iova)[:ext.Len])
	n.cover(region)
	n.valid = true
	w.own = n
	w.dev.stats.WindowRegions++
	w.dev.registerCost(ext.Len)
	return n, nil
}

// Unmap forgets the mapping of a window that isn't bound.
func (w *window) Unmap() error {
	w.dev.fabric.mu.Lock()
	defer w.dev.fabric.unlock()
	return w.unmap("unmap")
}

func (w *window) unmap(op string) error {
	if w.own != nil && w.own.users > 0 {
		return w.dev.errorf(op, transport.ErrBusy, "the window is bound")
	}
	if w.own != nil {
		w.own.drop()
		w.own = nil
	}
	w.mapped.region = nil
	return nil
}

func (w *window) KeyByte() uint8 { return w.firstByte }

func (w *window) LKey(uint8) transport.LKey { return 0 }

func (w *window) RKey(keyByte uint8) transport.RKey {
	return transport.RKey(makeKey(classWindow, w.slot, keyByte))
}

func (w *window) AppendValid(wrs []transport.WR, keyByte uint8) []transport.WR {
	return append(wrs, transport.WR{Op: transport.OpBindWindow, Reg: w.id, KeyByte: keyByte})
}

func (w *window) AppendInvalid(wrs []transport.WR, keyByte uint8) []transport.WR {
	return append(wrs, transport.WR{Op: transport.OpLocalInv, Reg: w.id, KeyByte: keyByte})
}

// Close deallocates the window, bound or not.
func (w *window) Close() error {
	d := w.dev
	d.fabric.mu.Lock()
	defer d.fabric.unlock()
	if w.closed {
		return nil
	}
	w.invalidate()
	_ = w.unmap("close") // not bound any more
	d.windows.give(w.slot, w.keyByte)
	d.dropRegistration(&w.regBase)
	return nil
}

func (w *window) contains(addr, n uint64) bool {
	off := addr - w.addr // wraps to a huge number below the window
	return off <= w.length && n <= w.length-off
}

// bind is the BIND_MW. The rules are those of a type-2 window (InfiniBand
// Architecture 10.6.7.2, and rxe_check_bind_mw): it must be free, and what it is
// bound to must be there. That the range is not empty, inside of an MR of the
// same protection domain that permits windows and, if the peer may write, local
// writes, has been seen to by Map and by the lookup of the registration.
func (w *window) bind(q *QP, keyByte uint8) bool {
	to := &w.mapped
	if w.valid || to.region == nil || !to.region.valid {
		return false
	}
	w.valid, w.keyByte, w.qp = true, keyByte, q
	w.mr, w.addr, w.length, w.access = to.region, to.addr, to.length, to.access
	w.mr.users++
	q.windows++
	return true
}

// invalidate makes the window free. Its key byte stays: the next bind has to
// bring another.
func (w *window) invalidate() {
	if !w.valid {
		return
	}
	w.valid = false
	w.mr.users--
	w.qp.windows--
	w.mr, w.qp = nil, nil
}
