package sim

import "rdmarw/transport"

// runLocal runs a request that is about an own registration only.
func (q *QP) runLocal(e *sqe) transport.Status {
	d := q.dev
	r := q.pd.registration(e.wr.Reg)
	keyByte := e.wr.KeyByte
	switch e.wr.Op {
	case transport.OpFastReg:
		fast, ok := r.(*fastMR)
		if !ok || !fast.validate(keyByte) {
			return d.profile.BadRegistration
		}
		d.stats.FastRegs++
		if d.fabric.log != nil {
			d.fabric.tracef(d, "FRWR %#x [%#x,+%d) %v as %v %v", uint32(fast.id), fast.mr.iova, fast.mr.length, fast.mr.access,
				transport.LKey(fast.mr.lkey()), transport.RKey(fast.mr.rkey()))
		}
	case transport.OpBindWindow:
		w, ok := r.(*window)
		if !ok || !w.bind(q, keyByte) {
			return transport.StatusBindWindow
		}
		d.stats.Binds++
		if d.fabric.log != nil {
			d.fabric.tracef(d, "MW %#x [%#x,+%d) %v as %v on qp %d", uint32(w.id), w.addr, w.length, w.access, w.RKey(keyByte), q.num)
		}
	case transport.OpLocalInv:
		if r == nil || !q.invalidate(r.(target).key(keyByte), &d.caps.LocalInv) {
			return transport.StatusLocalQPOp
		}
		d.stats.LocalInvs++
	}
	return transport.StatusOK
}

// target is a registration as an invalidation sees it.
type target interface {
	// key is the key that goes with a key byte.
	key(keyByte uint8) uint32
}

func (r *syncMR) key(uint8) uint32         { return uint32(r.rkey()) }
func (r *fastMR) key(keyByte uint8) uint32 { return uint32(r.RKey(keyByte)) }
func (w *window) key(keyByte uint8) uint32 { return uint32(w.RKey(keyByte)) }

// invalidate makes what a key names invalid: for a LOCAL_INV of this queue pair
// or a SEND_WITH_INV that arrived on it. It reports whether that succeeded. how
// tells what the operation does to each kind.
func (q *QP) invalidate(key uint32, how *[transport.NumRegistrationKinds]transport.Invalidation) bool {
	d := q.dev
	p := &d.profile
	keyByte := uint8(key)
	if keyClass(key) == classWindow {
		w := d.windows.get(keySlot(key))
		if w == nil || w.keyByte != keyByte || how[transport.Window] == transport.InvNone {
			return false
		}
		if !w.valid {
			if p.FreeInv[transport.Window] == FreeInvCrash {
				d.crash("window %v was invalidated, and is free already: nil pointer in rxe_invalidate_mw", w.RKey(keyByte))
			}
			return p.FreeInv[transport.Window] == FreeInvOK
		}
		if w.qp != q && !p.InvAnyQP {
			return false
		}
		if d.fabric.log != nil {
			d.fabric.tracef(d, "MW %#x invalidated %v", uint32(w.id), w.RKey(keyByte))
		}
		w.invalidate()
		return true
	}
	m := d.mrs.get(keySlot(key))
	if m == nil || m.pd != q.pd || m.keyByte != keyByte && !p.InvAnyByte {
		return false
	}
	if keyClass(key) == classLKey && !m.exposed && !p.OneSTag {
		return false
	}
	if how[m.kind] == transport.InvNone {
		return false
	}
	if !m.valid {
		return p.FreeInv[m.kind] == FreeInvOK
	}
	if d.fabric.log != nil {
		d.fabric.tracef(d, "%v %06x.%02x invalidated", m.kind, key>>8, m.keyByte)
	}
	// A user MR (siw) is dead for good: nothing can make it valid again.
	m.broken = m.kind == transport.SyncMR
	m.invalidate()
	return true
}
