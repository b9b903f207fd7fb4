package transporttest

import (
	"errors"

	"rdmarw/transport"
)

// postRows are about chains of which a request is refused, and posts in the wrong state.
func postRows() []Row {
	// middle posts a chain of which the second request is bad.
	middle := func(name string, needs need, bad func(a *end, x exposed) transport.WR) Row {
		return Row{Group: "post", Name: "bad request in the middle: " + name, needs: needs, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, writable)
			good := func(cookie uint64) transport.WR {
				return a.list(x.targets(signaled(cookie, transport.OpWrite)), a.at(sourceAt, 8))
			}
			n, err := a.try(good(1), bad(a, x), good(3))
			t.note("accepted", n)
			t.noteError("post", err)
			var e *transport.Error
			if errors.As(err, &e) {
				t.note("request", e.WR)
			}
			if n > 0 {
				t.note("A", a.status(1))
			}
			a.post(signaled(4, transport.OpSend))
			t.note("A-next", a.status(4))
			t.note("B", b.received(0))
		}}
	}
	tooMany := func(n int) func(*end, exposed) transport.WR {
		return func(a *end, x exposed) transport.WR {
			var list []transport.SGE
			for range a.qp.Granted().MaxSendSGE + n {
				list = append(list, a.at(sourceAt, 1))
			}
			return a.list(x.targets(signaled(2, transport.OpWrite)), list...)
		}
	}
	plain := func(op transport.Opcode, change func(*transport.WR)) func(*end, exposed) transport.WR {
		return func(a *end, x exposed) transport.WR {
			wr := a.list(x.targets(signaled(2, op)), a.at(sourceAt, 8))
			if change != nil {
				change(&wr)
			}
			return wr
		}
	}
	return []Row{
		middle("an unknown operation", nil, plain(200, nil)),
		middle("operation 0", nil, plain(transport.OpInvalid, nil)),
		middle("FAST_REG where there is none", func(c *transport.Caps) bool { return c.FastReg.MaxPages == 0 }, plain(transport.OpFastReg, nil)),
		middle("READ_WITH_INV where there is none", func(c *transport.Caps) bool { return !c.ReadWithInv }, plain(transport.OpReadWithInv, nil)),
		middle("BIND_MW where there are no windows", func(c *transport.Caps) bool { return !needWindows(c) }, plain(transport.OpBindWindow, nil)),
		middle("BIND_MW of nothing", needWindows, plain(transport.OpBindWindow, nil)),
		middle("BIND_MW of an unknown registration", needWindows, plain(transport.OpBindWindow, func(wr *transport.WR) { wr.Reg = 1<<20 | 777 })),
		middle("LOCAL_INV of nothing", nil, plain(transport.OpLocalInv, nil)),
		middle("SGEs outside of the arena", nil, plain(transport.OpWrite, func(wr *transport.WR) { wr.NumSGE = 100 })),
		middle("SGEs far outside of the arena", nil, plain(transport.OpWrite, func(wr *transport.WR) { wr.FirstSGE, wr.NumSGE = 1<<31, 1<<15 })),
		middle("too many SGEs for any queue pair", nil, func(a *end, x exposed) transport.WR {
			return tooMany(a.dev.Caps().MaxSendSGE-a.qp.Granted().MaxSendSGE+1)(a, x)
		}),
		middle("more inline than any queue pair takes", needInline, func(a *end, x exposed) transport.WR {
			wr := x.targets(signaled(2, transport.OpWrite))
			wr.Flags |= transport.Inline
			return a.list(wr, a.at(sourceAt, a.dev.Caps().MaxInline+1))
		}),
		{Group: "post", Name: "no requests", run: func(t *trial) {
			a, _ := t.pair()
			n, err := a.try()
			t.note("accepted", n)
			t.noteError("post", err)
		}},
		{Group: "post", Name: "before the connection is up", run: func(t *trial) {
			a := t.resolved()
			a.createQP(nil)
			t.note("state", stateWord(a.qp))
			n, err := a.try(signaled(1, transport.OpSend))
			t.note("accepted", n)
			t.noteError("post", err)
			a.receive(1)
		}},
		{Group: "post", Name: "after Fail", run: func(t *trial) {
			a, _ := t.pair()
			t.must("fail", a.qp.Fail())
			t.note("state", stateWord(a.qp))
			n, err := a.try(signaled(1, transport.OpSend))
			t.note("accepted", n)
			t.noteError("post", err)
			_, err = a.tryReceive(a.at(receiveAt, 8))
			t.noteError("receive", err)
			t.noteError("fail-again", a.qp.Fail())
		}},
		{Group: "post", Name: "after Disconnect", run: func(t *trial) {
			a, _ := t.pair()
			t.must("disconnect", a.conn.Disconnect())
			t.note("state", stateWord(a.qp))
			n, err := a.try(signaled(1, transport.OpSend))
			t.note("accepted", n)
			t.noteError("post", err)
			_, err = a.tryReceive(a.at(receiveAt, 8))
			t.noteError("receive", err)
		}},
		{Group: "post", Name: "after the peer's Disconnect", run: func(t *trial) {
			a, b := t.pair()
			t.must("disconnect", b.conn.Disconnect())
			t.note("A", a.ended())
			n, err := a.try(signaled(1, transport.OpSend))
			t.note("accepted", n)
			t.noteError("post", err)
		}},
		{Group: "post", Name: "after Close", run: func(t *trial) {
			a, _ := t.pair()
			t.must("close", a.conn.Close())
			n, err := a.try(signaled(1, transport.OpSend))
			t.note("accepted", n)
			t.noteError("post", err)
			_, err = a.tryReceive(a.at(receiveAt, 8))
			t.noteError("receive", err)
			t.noteError("close-again", a.conn.Close())
		}},
		{Group: "post", Name: "receives, the second one bad", run: func(t *trial) {
			a := t.resolved()
			a.createQP(nil)
			s := a.at(receiveAt, 8)
			n, err := a.qp.PostRecv([]transport.RecvWR{{Cookie: 1, NumSGE: 1}, {Cookie: 2, FirstSGE: 1, NumSGE: 1}, {Cookie: 3, NumSGE: 1}}, []transport.SGE{s})
			t.note("accepted", n)
			t.noteError("post", err)
		}},
		{Group: "post", Name: "receive of one SGE too many", run: func(t *trial) {
			a := t.resolved()
			a.createQP(func(c *transport.QPConfig) { c.MaxRecvSGE = c.PD.Device().Caps().MaxRecvSGE })
			s := a.at(receiveAt, 1)
			var list []transport.SGE
			for range a.qp.Granted().MaxRecvSGE {
				list = append(list, s)
			}
			_, err := a.tryReceive(list...)
			t.noteError("most", err)
			_, err = a.tryReceive(append(list, s)...)
			t.noteError("one-more", err)
		}},
		{Group: "post", Name: "no receives", run: func(t *trial) {
			a := t.resolved()
			a.createQP(nil)
			n, err := a.qp.PostRecv(nil, nil)
			t.note("accepted", n)
			t.noteError("post", err)
		}},
		{Group: "post", Name: "receives until the queue is full", run: func(t *trial) {
			a := t.resolved()
			a.createQP(func(c *transport.QPConfig) { c.MaxRecvWR = 5 })
			n := 0
			var err error
			for ; n < 100; n++ {
				if _, err = a.tryReceive(a.at(receiveAt, 8)); err != nil {
					break
				}
			}
			t.note("granted", a.qp.Granted().MaxRecvWR)
			t.note("took", n)
			t.noteError("then", err)
		}},
		{Group: "post", Name: "requests until the queue is full", needs: needNoIWARP, run: func(t *trial) {
			// The first one never ends, and so none behind it does.
			a, b := t.paired(pairing{receives: -1, a: func(c *transport.QPConfig) { c.MaxSendWR = 5 }})
			n := 0
			var err error
			for ; n < 100; n++ {
				if _, err = a.try(signaled(uint64(n+1), transport.OpSend)); err != nil {
					break
				}
			}
			t.note("granted", a.qp.Granted().MaxSendWR)
			t.note("took", n)
			t.noteError("then", err)
			b.receive(n)
			ok := 0
			for i := range n {
				if a.status(uint64(i+1)) == "ok" {
					ok++
				}
			}
			t.note("ok", ok)
		}},
	}
}

// resolved makes an end with a connection that isn't made yet.
func (t *trial) resolved() *end {
	a := t.end("A", t.bed.A)
	ctx, cancel := t.ctx()
	defer cancel()
	conn, err := a.dev.Resolve(ctx, t.bed.Nobody)
	t.must("resolve", err)
	a.own(conn)
	return a
}

// limitRows are about what is just possible, and what isn't any more.
func limitRows() []Row {
	// sized makes a queue pair and records what was granted.
	sized := func(t *trial, change func(c *transport.QPConfig, caps *transport.Caps)) (*end, error) {
		a := t.resolved()
		cfg := a.config()
		change(&cfg, a.dev.Caps())
		qp, err := a.conn.CreateQP(cfg)
		a.qp = qp
		return a, err
	}
	ask := func(name string, field func(*transport.QueueCaps) *int, limit func(*transport.Caps) int) []Row {
		var rows []Row
		for _, off := range []struct {
			name string
			by   int
		}{{"limit", 0}, {"limit + 1", 1}} {
			rows = append(rows, Row{Group: "limit", Name: name + ": " + off.name, run: func(t *trial) {
				var asked int
				a, err := sized(t, func(c *transport.QPConfig, caps *transport.Caps) {
					asked = limit(caps) + off.by
					*field(&c.QueueCaps) = asked
				})
				t.noteError("create", err)
				if err == nil {
					g := a.qp.Granted()
					t.note("granted", *field(&g)-asked)
				}
			}})
		}
		return append(rows, Row{Group: "limit", Name: name + ": negative", run: func(t *trial) {
			_, err := sized(t, func(c *transport.QPConfig, _ *transport.Caps) { *field(&c.QueueCaps) = -1 })
			t.noteError("create", err)
		}})
	}
	rows := ask("send SGEs", func(c *transport.QueueCaps) *int { return &c.MaxSendSGE }, func(c *transport.Caps) int { return c.MaxSendSGE })
	rows = append(rows, ask("receive SGEs", func(c *transport.QueueCaps) *int { return &c.MaxRecvSGE }, func(c *transport.Caps) int { return c.MaxRecvSGE })...)
	rows = append(rows, ask("inline", func(c *transport.QueueCaps) *int { return &c.MaxInline }, func(c *transport.Caps) int { return c.MaxInline })...)
	// The largest queues take memory that a test machine may not have: only what is over
	// the limit is asked for.
	for _, q := range []struct {
		name  string
		field func(*transport.QueueCaps) *int
		limit func(*transport.Caps) int
	}{
		{"send queue", func(c *transport.QueueCaps) *int { return &c.MaxSendWR }, func(c *transport.Caps) int { return c.MaxSendWR }},
		{"receive queue", func(c *transport.QueueCaps) *int { return &c.MaxRecvWR }, func(c *transport.Caps) int { return c.MaxRecvWR }},
	} {
		rows = append(rows, Row{Group: "limit", Name: q.name + ": limit + 1", run: func(t *trial) {
			_, err := sized(t, func(c *transport.QPConfig, caps *transport.Caps) { *q.field(&c.QueueCaps) = q.limit(caps) + 1 })
			t.noteError("create", err)
		}})
	}
	granted := func(name string, c transport.QueueCaps) Row {
		return Row{Group: "limit", Name: "granted for " + name, run: func(t *trial) {
			a, err := sized(t, func(cfg *transport.QPConfig, caps *transport.Caps) {
				cfg.QueueCaps = c
				cfg.MaxSendSGE, cfg.MaxRecvSGE = min(c.MaxSendSGE, caps.MaxSendSGE), min(c.MaxRecvSGE, caps.MaxRecvSGE)
				cfg.MaxInline = min(c.MaxInline, caps.MaxInline)
			})
			t.must("create", err)
			g := a.qp.Granted()
			t.note("send", g.MaxSendWR)
			t.note("receive", g.MaxRecvWR)
			t.note("send-SGEs", g.MaxSendSGE)
			t.note("receive-SGEs", g.MaxRecvSGE)
			t.note("inline", g.MaxInline)
		}}
	}
	rows = append(rows,
		granted("nothing", transport.QueueCaps{}),
		granted("1 of each", transport.QueueCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 1}),
		granted("odd sizes", transport.QueueCaps{MaxSendWR: 100, MaxRecvWR: 33, MaxSendSGE: 3, MaxRecvSGE: 5, MaxInline: 70}),
		granted("powers of two", transport.QueueCaps{MaxSendWR: 64, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}),
	)
	// gather sends as many SGEs as the device, or the queue pair, has.
	gather := func(t *trial, more int, onQueuePair bool) {
		most := t.bed.A.Caps().MaxSendSGE
		a, b := t.paired(pairing{a: func(c *transport.QPConfig) {
			if !onQueuePair {
				c.MaxSendSGE = most
			}
		}})
		n := most + more
		if onQueuePair {
			n = a.qp.Granted().MaxSendSGE + more
		}
		var list []transport.SGE
		for i := range n {
			list = append(list, a.at(sourceAt+i, 1))
		}
		_, err := a.try(a.list(signaled(1, transport.OpSend), list...))
		t.note("sges", n)
		t.noteError("post", err)
		if err == nil {
			t.note("A", a.status(1))
			t.note("B", b.received(0))
			t.note("data", b.holds(receiveAt, n, a, sourceAt))
		}
	}
	inline := func(t *trial, more int, onQueuePair bool) {
		most := t.bed.A.Caps().MaxInline
		a, b := t.paired(pairing{a: func(c *transport.QPConfig) {
			if !onQueuePair {
				c.MaxInline = most
			}
		}})
		n := a.qp.Granted().MaxInline + more
		x := b.expose(1<<10, writable)
		wr := x.targets(signaled(1, transport.OpWrite))
		wr.Flags |= transport.Inline
		_, err := a.try(a.list(wr, a.at(sourceAt, n)))
		t.note("bytes", n)
		t.noteError("post", err)
		if err == nil {
			t.note("A", a.status(1))
			a.sync(2)
			t.note("B", b.received(0))
			t.note("data", b.holds(exposedAt, n, a, sourceAt))
		}
	}
	return append(rows,
		Row{Group: "limit", Name: "SEND of the device's most SGEs", run: func(t *trial) { gather(t, 0, false) }},
		Row{Group: "limit", Name: "SEND of one SGE more than the device has", run: func(t *trial) { gather(t, 1, false) }},
		Row{Group: "limit", Name: "SEND of the queue pair's most SGEs", run: func(t *trial) { gather(t, 0, true) }},
		Row{Group: "limit", Name: "SEND of one SGE more than the queue pair has", run: func(t *trial) { gather(t, 1, true) }},
		Row{Group: "limit", Name: "WRITE of the device's most inline bytes", needs: needInline, run: func(t *trial) { inline(t, 0, false) }},
		Row{Group: "limit", Name: "WRITE of one inline byte more than the device takes", needs: needInline, run: func(t *trial) { inline(t, 1, false) }},
		Row{Group: "limit", Name: "WRITE of one inline byte less than the queue pair takes", needs: needInline, run: func(t *trial) { inline(t, -1, true) }},
		Row{Group: "limit", Name: "WRITE of one inline byte more than the queue pair takes", needs: needInline, run: func(t *trial) { inline(t, 1, true) }},
		Row{Group: "limit", Name: "SEND of a byte more than the longest message", run: func(t *trial) {
			a, _ := t.pair()
			n := a.dev.Caps().MaxMsg + 1
			if n > 1<<32-1 {
				n = 1<<32 - 1
			}
			_, err := a.try(a.list(signaled(1, transport.OpSend), transport.SGE{Addr: a.mem.Addr(), Len: uint32(n), LKey: a.lkey()}))
			t.noteError("post", err)
			if err == nil {
				t.note("A", a.status(1))
			}
		}},
		Row{Group: "limit", Name: "CQ: sizes", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			for _, ask := range []struct {
				name string
				n    int
			}{{"-1", -1}, {"0", 0}, {"1", 1}, {"limit+1", e.dev.Caps().MaxCQE + 1}} {
				cq, err := e.dev.NewCQ(ask.n)
				t.noteError(ask.name, err)
				if err == nil {
					t.must("close", cq.Close())
				}
			}
		}},
		Row{Group: "limit", Name: "region: sizes", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			for _, ask := range []struct {
				name string
				n    int
			}{{"-1", -1}, {"0", 0}, {"1", 1}, {"4097", 4097}} {
				r, err := e.dev.NewRegion(transport.RegionConfig{Size: ask.n})
				t.noteError(ask.name, err)
				if err == nil {
					t.note("len", r.Len())
					t.must("close", r.Close())
				}
			}
		}},
	)
}
