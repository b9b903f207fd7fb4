package transporttest

import "rdmarw/transport"

// localRows are about own keys: of the memory that a request sends from, or that a READ or a
// receive writes to.
func localRows() []Row {
	faults := []struct {
		name  string
		fault func(t *trial, e *end, s transport.SGE) transport.SGE
	}{
		{"another key byte", func(_ *trial, _ *end, s transport.SGE) transport.SGE { s.LKey ^= 1; return s }},
		{"a key that never existed", func(_ *trial, _ *end, s transport.SGE) transport.SGE { s.LKey = 0x7fff_ff01; return s }},
		{"key 0", func(_ *trial, _ *end, s transport.SGE) transport.SGE { s.LKey = 0; return s }},
		{"the key of another protection domain", func(t *trial, e *end, s transport.SGE) transport.SGE {
			s.LKey = t.end("C", e.dev).lkey()
			return s
		}},
		{"the key of a region that was taken out", func(t *trial, e *end, s transport.SGE) transport.SGE {
			r := e.region(4096, transport.LocalWrite)
			s = transport.SGE{Addr: r.Addr(), Len: s.Len, LKey: e.pd.Regions().View().Lookup(r.ID()).LKey}
			t.must("remove region", e.pd.RemoveRegion(r))
			return s
		}},
		{"a range over the end", func(_ *trial, e *end, s transport.SGE) transport.SGE {
			s.Addr = e.mem.Addr() + memorySize - uint64(s.Len) + 1
			return s
		}},
		{"a range before the start", func(_ *trial, e *end, s transport.SGE) transport.SGE { s.Addr = e.mem.Addr() - 1; return s }},
		{"memory without local-write", func(_ *trial, e *end, s transport.SGE) transport.SGE {
			r := e.region(4096, 0)
			return transport.SGE{Addr: r.Addr(), Len: s.Len, LKey: e.pd.Regions().View().Lookup(r.ID()).LKey}
		}},
		{"an empty SGE with a bad key in front", nil},
	}
	var rows []Row
	for _, f := range faults {
		list := func(t *trial, e *end, s transport.SGE) []transport.SGE {
			if f.fault == nil {
				return []transport.SGE{{Addr: 1, LKey: 0x7fff_ff01}, s}
			}
			return []transport.SGE{f.fault(t, e, s)}
		}
		for _, op := range []transport.Opcode{transport.OpSend, transport.OpWrite, transport.OpRead} {
			if op == transport.OpRead && f.fault == nil {
				continue // one SGE is all that some devices have for a READ
			}
			rows = append(rows, Row{Group: "own key", Name: op.String() + " with " + f.name, run: func(t *trial) {
				a, b := t.pair()
				x := b.expose(exposedLen, both)
				at := sourceAt
				if op == transport.OpRead {
					at = sinkAt
				}
				if _, err := a.try(a.list(x.targets(signaled(1, op)), list(t, a, a.at(at, 32))...)); err != nil {
					t.noteError("post", err)
					return
				}
				status := a.status(1)
				t.note("A", status)
				if status == "ok" {
					a.sync(2)
					t.note("B", b.received(0))
				}
				t.note("bytes", b.changed(exposedAt, exposedLen))
			}})
		}
		rows = append(rows, Row{Group: "own key", Name: "receive with " + f.name, run: func(t *trial) {
			a, b := t.paired(pairing{receives: -1})
			if f.fault == nil {
				b.mayChange(receiveAt, 32)
			}
			b.receiveInto(list(t, b, b.at(receiveAt, 32))...)
			a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 32)))
			t.note("B", b.received(0))
			t.noteSender(a, 1)
		}})
	}
	return append(rows, Row{Group: "own key", Name: "SEND with the rkey of a registration", run: func(t *trial) {
		a, b := t.pair()
		s := a.at(sinkAt, 32)
		s.LKey = transport.LKey(a.exposeAt(sinkAt, 32, readable).key)
		a.post(a.list(signaled(1, transport.OpSend), s))
		status := a.status(1)
		t.note("A", status)
		t.note("B", b.answer(0, status))
	}})
}

// noteSender records what becomes of a message that the peer may refuse. On iWARP the
// sender of a message is done with it when it is on its way, and may or may not have heard
// of the refusal by then, which ends the connection: all that is sure is that it completes.
func (t *trial) noteSender(a *end, cookie uint64) {
	status := a.status(cookie)
	if a.dev.Caps().Protocol == transport.IWARP && status != "never" {
		status = "done"
	}
	t.note("A", status)
}

// region makes a region and adds it to the end's domain.
func (e *end) region(size int, access transport.Access) *transport.Region {
	r, err := e.dev.NewRegion(transport.RegionConfig{Size: size, Access: access})
	e.t.must("new region", err)
	e.t.must("add region", e.pd.AddRegion(r))
	e.t.later(func() error {
		if err := e.pd.RemoveRegion(r); err != nil {
			return err
		}
		return r.Close()
	})
	return r
}
