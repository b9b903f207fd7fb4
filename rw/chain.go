package rw

import (
	"errors"

	"rdmarw/mrpool"
	"rdmarw/transport"
)

// registersFirst reports whether the context needs calls that may block before it
// is posted.
func (c *Context) registersFirst() bool { return c.plan.Strategy == SyncReg && c.moves() }

// registersByWR reports whether the context's own requests register its memory.
func (c *Context) registersByWR() bool { return c.plan.Strategy == FastReg && c.moves() }

// moves reports whether the context is a transfer.
func (c *Context) moves() bool { return c.op == Read || c.op == Write }

// localOps is what a transfer's local memory is for.
func (c *Context) localOps() mrpool.LocalOps {
	if c.op == Read {
		return mrpool.ReadSink
	}
	return mrpool.WriteSource
}

// finishesLater reports whether the context is not done when its last request
// is: nothing can be chained behind it.
func (c *Context) finishesLater() bool {
	return c.registersFirst() || c.plan.Strategy == Staged || c.op == Revoke && c.exposure.live() && !c.exposure.invalidatesByWR()
}

// register maps the context's local memory by calls that may block. A worker runs
// it.
func (c *Context) register() error {
	wrs := c.plan.wrs
	for i, seg := range c.plan.segs {
		local, err := c.mrs[i].MapLocal(c.transfer.Local, seg.from, seg.len, c.localOps())
		if err != nil {
			return err
		}
		if local.Len != seg.len {
			return coverageError(c.ep, seg, local.Extent)
		}
		c.plan.patch(wrs[:seg.wrs], local)
		wrs = wrs[seg.wrs:]
	}
	return nil
}

// patch gives requests the keys of their registration.
func (p *plan) patch(wrs []transport.WR, local mrpool.Local) {
	for i := range wrs {
		sge := &p.sges[wrs[i].FirstSGE]
		sge.Addr += local.IOVA
		sge.LKey = local.LKey
	}
}

// stage gives the requests the addresses of the staging slots.
func (c *Context) stage() {
	wrs := c.plan.wrs
	for i, seg := range c.plan.segs {
		c.plan.patch(wrs[:seg.wrs], c.ep.staging.at(c.staged[i]))
		wrs = wrs[seg.wrs:]
	}
}

// coverageError: the planner and the transport disagree on what fits into a
// registration.
func coverageError(ep *Endpoint, seg segment, ext transport.Extent) error {
	return &transport.Error{
		Op: "map", Device: ep.limits.Caps.Device, WR: -1, Err: transport.ErrUnsupported,
		Detail: "the transport covers less of the list than transport.Coverage says: a defect of the transport",
	}
}

// arena is where a chain is put together.
type arena struct {
	wrs  []transport.WR
	sges []transport.SGE
}

// emit appends the context's requests. Nothing is changed but the arena: whatever
// hardware will change is changed by accepted.
func (c *Context) emit(a *arena) error {
	c.first = len(a.wrs)
	err := c.appendTo(a)
	c.end = len(a.wrs)
	return err
}

func (c *Context) appendTo(a *arena) error {
	switch {
	case c.op == Grant:
		for _, m := range c.exposure.mrs {
			a.wrs = m.AppendValid(a.wrs)
		}
		return nil
	case c.op == Revoke:
		if c.exposure.live() && c.exposure.invalidatesByWR() {
			for _, m := range c.exposure.mrs {
				if m.Valid() { // else it was never granted
					a.wrs = m.AppendInvalid(a.wrs)
				}
			}
		}
		return nil
	case c.plan.Strategy == FastReg:
		return c.emitFastReg(a)
	}
	base := uint32(len(a.sges))
	a.sges = append(a.sges, c.plan.sges...)
	for _, wr := range c.plan.wrs {
		wr.FirstSGE += base
		a.wrs = append(a.wrs, wr)
	}
	return nil
}

// emitFastReg maps the segments and appends registrations, READs, invalidations.
func (c *Context) emitFastReg(a *arena) error {
	wrs, ops := c.plan.wrs, c.localOps()
	for i := range c.plan.segs {
		seg, m := &c.plan.segs[i], c.mrs[i]
		local, err := m.MapChecked(c.regions, c.transfer.Local, seg.from, seg.len, ops)
		if err != nil {
			return err
		}
		if local.Len != seg.len {
			return coverageError(c.ep, *seg, local.Extent)
		}
		a.wrs = m.AppendValid(a.wrs)
		for j := range wrs[:seg.wrs] {
			a.sges = append(a.sges, c.plan.sges[wrs[j].FirstSGE])
			sge := &a.sges[len(a.sges)-1]
			sge.Addr += local.IOVA
			sge.LKey = local.LKey
			a.wrs = append(a.wrs, wrs[j])
			wr := &a.wrs[len(a.wrs)-1]
			wr.FirstSGE = uint32(len(a.sges) - 1)
			if wr.Op == transport.OpReadWithInv {
				wr.Reg, wr.KeyByte = m.ID(), m.KeyByte()
			}
		}
		wrs = wrs[seg.wrs:]
	}
	if c.plan.Cost.Invalidations == 0 {
		return nil
	}
	// The fence on the first makes them wait for the READs; the others wait for
	// the first.
	first := len(a.wrs)
	for _, m := range c.mrs {
		a.wrs = m.AppendInvalid(a.wrs)
	}
	a.wrs[first].Flags |= transport.Fence
	return nil
}

// accepted notes what the device took in.
func (c *Context) accepted() {
	switch {
	case c.op == Grant:
		for _, m := range c.exposure.mrs {
			if m.Kind() != transport.SyncMR {
				m.Tell(c.ep.peer)
				m.Posted()
			}
		}
		// From now on the peer may invalidate: its message can be here before the
		// completion of the Grant's chain.
		c.exposure.granted = true
	case c.op == Revoke:
		if c.end > c.first {
			for _, m := range c.exposure.mrs {
				m.InvalidatePosted()
			}
		}
	case c.plan.Strategy == FastReg:
		for _, m := range c.mrs {
			if !c.plan.lazy { // on iWARP, the READ shows it
				m.Tell(c.ep.peer)
			}
			m.Posted()
			if c.plan.Cost.Invalidations > 0 {
				m.InvalidatePosted()
			}
		}
	}
}

// registrationsHeld are those of the context, or of its exposure.
func (c *Context) registrationsHeld() []*mrpool.MR {
	if c.exposure != nil {
		return c.exposure.mrs
	}
	return c.mrs
}

// landed notes that the context's requests are over, well or not, and reports
// whether keys are left that a worker must kill before the context is done.
func (c *Context) landed(ok bool) (finish bool) {
	mrs := c.registrationsHeld()
	switch {
	case !ok:
		for _, m := range mrs {
			m.Lost()
		}
		return len(mrs)+len(c.staged) > 0
	case c.op == Grant:
		return false // valid, until it is revoked
	case c.op == Revoke && c.end > c.first, c.plan.Strategy == FastReg && !c.plan.lazy:
		for _, m := range mrs {
			m.Invalidated()
		}
		c.putBack()
		return false
	case c.plan.Strategy == FastReg: // valid, with local rights, until its next use
		c.putBack()
		return false
	case c.plan.Strategy == Staged:
		return true
	}
	return len(mrs) > 0
}

// finish does what is left when the requests are over: copies what was staged, and
// kills the keys that the context holds. It may block, so that a worker runs it,
// without the poller's lock. What can't be revoked is set aside by the pool, when it
// is put back.
func (c *Context) finish() error {
	var errs []error
	if c.plan.Strategy == Staged && c.err == nil {
		from, n, err := span(c.transfer.Local, c.transfer.Offset, c.transfer.Length)
		if err == nil {
			err = c.ep.staging.copyOut(c.staged, &c.transfer, from, n, c.ep.regions.View())
		}
		errs = append(errs, err)
	}
	for _, m := range c.registrationsHeld() {
		errs = append(errs, revoke(m))
	}
	return errors.Join(errs...)
}

// revoke kills a key. That its registration couldn't be replaced is the pool's
// trouble.
func revoke(m *mrpool.MR) error {
	if err := m.Revoke(); !errors.Is(err, mrpool.ErrNotReplaced) {
		return err
	}
	return nil
}

// putBack gives the context's registrations back to the pool.
func (c *Context) putBack() {
	if x := c.exposure; x != nil {
		x.putBack()
		return
	}
	c.mrs = c.ep.putAll(c.mrs)
	if len(c.staged) > 0 {
		c.ep.staging.put(c.staged)
		c.staged = c.staged[:0]
	}
}
