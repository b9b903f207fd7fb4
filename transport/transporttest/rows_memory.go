package transporttest

import "rdmarw/transport"

// registrationRows are about registrations by call, and the objects themselves.
func registrationRows() []Row {
	// mapping maps something at B and records the error, or what is covered.
	mapping := func(name string, access transport.Access, list func(t *trial, b *end) transport.Mapping) Row {
		return Row{Group: "registration", Name: name, run: func(t *trial) {
			b := t.end("B", t.bed.B)
			m := list(t, b)
			m.Access |= access
			ext, err := b.registration(transport.SyncMR).Map(m)
			t.noteError("map", err)
			if err == nil {
				t.note("bytes", ext.Len)
				t.note("offset", int64(ext.IOVA-m.List[0].Addr))
				t.note("next", ext.Next.Piece)
			}
		}}
	}
	one := func(offset uint64, n uint32) func(*trial, *end) transport.Mapping {
		return func(_ *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{b.mem.Piece(offset, n)}}
		}
	}
	onlyRead := func(t *trial, b *end) transport.Mapping {
		return transport.Mapping{List: []transport.Piece{b.region(4096, 0).Piece(0, 64)}}
	}
	var rows []Row
	for a := transport.Access(0); a < transport.BindWindow; a++ {
		rows = append(rows, mapping("of memory with local-write, "+a.String(), a, one(exposedAt, 64)))
	}
	for _, a := range []transport.Access{0, transport.LocalWrite, transport.RemoteRead, writable} {
		rows = append(rows, mapping("of memory without local-write, "+a.String(), a, onlyRead))
	}
	rows = append(rows,
		mapping("with bind-window", readable|transport.BindWindow, one(exposedAt, 64)),
		mapping("of one byte", readable, one(exposedAt+1, 1)),
		mapping("of the whole region", readable, one(0, memorySize)),
		mapping("of nothing", readable, one(exposedAt, 0)),
		mapping("of an empty list", readable, func(*trial, *end) transport.Mapping { return transport.Mapping{} }),
		mapping("one byte over the end of the region", readable, one(memorySize-1, 2)),
		mapping("one byte before the region", readable, one(^uint64(0), 2)),
		mapping("of an unknown region", readable, func(_ *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{{Addr: b.mem.Addr(), Len: 8, Region: b.mem.ID() + 1}}}
		}),
		mapping("of a region of another domain", readable, func(t *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{t.end("C", b.dev).mem.Piece(0, 8)}}
		}),
		mapping("of a region that was taken out", readable, func(t *trial, b *end) transport.Mapping {
			r := b.region(4096, transport.LocalWrite)
			t.must("remove", b.pd.RemoveRegion(r))
			return transport.Mapping{List: []transport.Piece{r.Piece(0, 8)}}
		}),
		mapping("of two pieces that follow each other", readable, func(_ *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{b.mem.Piece(100, 50), b.mem.Piece(150, 10)}}
		}),
		mapping("of two pieces with a gap", readable, func(_ *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{b.mem.Piece(100, 50), b.mem.Piece(151, 10)}}
		}),
		mapping("from the middle of a list", readable, func(_ *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{b.mem.Piece(100, 50), b.mem.Piece(300, 10)}, From: transport.Cursor{Piece: 1, Offset: 4}}
		}),
		mapping("of the first bytes of a list", readable, func(_ *trial, b *end) transport.Mapping {
			return transport.Mapping{List: []transport.Piece{b.mem.Piece(100, 50)}, Len: 20}
		}),
		Row{Group: "registration", Name: "closed twice, and mapped", run: func(t *trial) {
			b := t.end("B", t.bed.B)
			x := b.expose(64, readable)
			t.noteError("close", x.reg.Close())
			t.noteError("again", x.reg.Close())
			_, err := x.reg.Map(transport.Mapping{List: []transport.Piece{b.mem.Piece(0, 8)}})
			t.noteError("map", err)
		}},
		Row{Group: "registration", Name: "unmapped twice", run: func(t *trial) {
			x := t.end("B", t.bed.B).expose(64, readable)
			t.noteError("unmap", x.reg.Unmap())
			t.noteError("again", x.reg.Unmap())
			t.note("rkey", uint32(x.reg.RKey(0)))
			t.note("lkey", uint32(x.reg.LKey(0)))
		}},
		Row{Group: "registration", Name: "a failed Map leaves", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(exposedLen, readable)
			_, err := x.reg.Map(transport.Mapping{List: []transport.Piece{b.mem.Piece(memorySize, 1)}, Access: readable})
			t.noteError("map", err)
			t.note("READ", a.use(1, transport.OpRead, x))
		}},
		Row{Group: "registration", Name: "new keys differ from old ones", run: func(t *trial) {
			b := t.end("B", t.bed.B)
			reg := b.registration(transport.SyncMR)
			seen := make(map[transport.RKey]bool)
			for range 20 {
				seen[b.mapped(reg, exposedAt, 64, readable).key] = true
			}
			t.note("keys", len(seen))
		}},
		Row{Group: "registration", Name: "of an unknown kind", run: func(t *trial) {
			_, err := t.end("B", t.bed.B).pd.NewRegistration(transport.NumRegistrationKinds, 1)
			t.noteError("new", err)
		}},
		Row{Group: "registration", Name: "fast, where there is none", needs: func(c *transport.Caps) bool { return !needFastReg(c) }, run: func(t *trial) {
			_, err := t.end("B", t.bed.B).pd.NewRegistration(transport.FastMR, 1)
			t.noteError("new", err)
		}},
		Row{Group: "registration", Name: "as the memory of a receive", run: func(t *trial) {
			a, b := t.paired(pairing{receives: -1})
			x := b.expose(64, transport.LocalWrite)
			b.mayChange(exposedAt, 64)
			b.receiveInto(transport.SGE{Addr: x.addr, Len: 64, LKey: x.reg.LKey(0)})
			a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 8)))
			t.note("B", b.received(0))
		}},
		Row{Group: "registration", Name: "as the memory of a receive, over the end", run: func(t *trial) {
			a, b := t.paired(pairing{receives: -1})
			x := b.expose(64, transport.LocalWrite)
			b.receiveInto(transport.SGE{Addr: x.addr + 32, Len: 64, LKey: x.reg.LKey(0)})
			a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 33)))
			t.note("B", b.received(0))
		}},
		Row{Group: "registration", Name: "gone while it is the sink of a READ", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, readable)
			sink := a.registration(transport.SyncMR)
			y := a.mapped(sink, sinkAt, 64, transport.LocalWrite)
			key := sink.LKey(0)
			t.must("unmap", sink.Unmap())
			a.post(a.list(x.targets(signaled(1, transport.OpRead)), transport.SGE{Addr: y.addr, Len: 64, LKey: key}))
			t.note("A", a.status(1))
			t.note("sink", a.changed(sinkAt, 64))
		}},
	)
	return rows
}

// regionRows are about regions and their domains.
func regionRows() []Row {
	return []Row{
		{Group: "region", Name: "with rights for a peer", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			for _, a := range []transport.Access{transport.RemoteRead, transport.RemoteWrite | transport.LocalWrite, transport.RemoteAtomic | transport.LocalWrite} {
				r, err := e.dev.NewRegion(transport.RegionConfig{Size: 4096, Access: a})
				t.noteError(a.String(), err)
				if err == nil {
					t.must("close", r.Close())
				}
			}
		}},
		{Group: "region", Name: "added twice", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			t.noteError("again", e.pd.AddRegion(e.mem))
		}},
		{Group: "region", Name: "in two domains", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			pd, err := e.dev.NewPD()
			t.must("new domain", err)
			t.noteError("add", pd.AddRegion(e.mem))
			t.note("keys-differ", pd.Regions().View().Lookup(e.mem.ID()).LKey != e.lkey())
			t.noteError("close-domain", pd.Close())
			t.noteError("remove", pd.RemoveRegion(e.mem))
			t.noteError("close-domain", pd.Close())
		}},
		{Group: "region", Name: "closed while in a domain", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			t.noteError("close", e.mem.Close())
		}},
		{Group: "region", Name: "closed, then added", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			r, err := e.dev.NewRegion(transport.RegionConfig{Size: 64})
			t.must("new region", err)
			t.must("close", r.Close())
			t.noteError("again", r.Close())
			err = e.pd.AddRegion(r)
			t.note("added", err == nil)
		}},
		{Group: "region", Name: "taken out while part of it is registered", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			x := e.expose(64, readable)
			t.noteError("remove", e.pd.RemoveRegion(e.mem))
			t.must("unmap", x.reg.Unmap())
			t.noteError("remove-then", e.pd.RemoveRegion(e.mem))
			t.noteError("remove-again", e.pd.RemoveRegion(e.mem))
			t.must("add", e.pd.AddRegion(e.mem))
		}},
		{Group: "region", Name: "new and clean", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			r, err := e.dev.NewRegion(transport.RegionConfig{Size: 5000, Access: transport.LocalWrite})
			t.must("new region", err)
			sum := 0
			for _, b := range r.Bytes() {
				sum += int(b)
			}
			t.note("len", len(r.Bytes()))
			t.note("sum", sum)
			t.must("close", r.Close())
		}},
		{Group: "domain", Name: "closed with things in it", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			t.noteError("with-region", e.pd.Close())
			pd, err := e.dev.NewPD()
			t.must("new domain", err)
			reg, err := pd.NewRegistration(transport.SyncMR, 0)
			t.must("new registration", err)
			t.noteError("with-registration", pd.Close())
			t.must("close", reg.Close())
			srq, err := pd.NewSRQ(1, 1)
			if err == nil {
				t.noteError("with-SRQ", pd.Close())
				t.must("close", srq.Close())
			}
			t.noteError("empty", pd.Close())
			t.noteError("again", pd.Close())
		}},
		{Group: "domain", Name: "closed with a queue pair in it", run: func(t *trial) {
			a := t.resolved()
			pd, err := a.dev.NewPD()
			t.must("new domain", err)
			a.createQP(func(c *transport.QPConfig) { c.PD = pd })
			t.noteError("close", pd.Close())
			t.must("close connection", a.conn.Close())
			t.noteError("then", pd.Close())
		}},
		{Group: "domain", Name: "used after it was closed", run: func(t *trial) {
			a := t.resolved()
			pd, err := a.dev.NewPD()
			t.must("new domain", err)
			t.must("close", pd.Close())
			_, err = pd.NewRegistration(transport.SyncMR, 0)
			t.noteError("registration", err)
			t.noteError("region", pd.AddRegion(a.mem))
			cfg := a.config()
			cfg.PD = pd
			_, err = a.conn.CreateQP(cfg)
			t.noteError("queue-pair", err)
		}},
		{Group: "device", Name: "closed while in use", run: func(t *trial) {
			t.noteError("close", t.end("A", t.bed.A).dev.Close())
		}},
	}
}
