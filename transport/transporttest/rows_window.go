package transporttest

import "rdmarw/transport"

// bound makes B's window of part of the exposed memory, valid under its next key byte.
func (e *end) bound(offset, n int, access transport.Access) exposed {
	x := e.mapped(e.registration(transport.Window), offset, n, access)
	e.makeValid(&x, x.reg.KeyByte()+1)
	return x
}

// makeValid makes a registration valid under a key byte, which must work.
func (e *end) makeValid(x *exposed, keyByte uint8) {
	if s := e.valid(x, keyByte); s != "ok" {
		e.t.cannot("%s: %v can't be made valid: %s", e.name, x.reg.Kind(), s)
	}
}

// validCookie is the cookie of requests that make registrations valid or invalid.
const validCookie = 900

// valid makes a registration valid, if it can be, and is the status of that.
func (e *end) valid(x *exposed, keyByte uint8) string {
	x.key = x.reg.RKey(keyByte)
	return e.execute(x.reg.AppendValid(nil, keyByte))
}

// invalid makes a registration invalid by an own LOCAL_INV, and is the status of that.
func (e *end) invalid(x exposed, keyByte uint8) string {
	return e.execute(x.reg.AppendInvalid(nil, keyByte))
}

func (e *end) execute(wrs []transport.WR) string {
	last := &wrs[len(wrs)-1]
	last.Cookie, last.Flags = validCookie, transport.Signaled
	if _, err := e.try(wrs...); err != nil {
		return errorWord(err)
	}
	return e.status(validCookie)
}

// use has A READ or WRITE the whole of an exposed range, and is the request's status.
// After it, if it was refused, the connection is of no more use.
func (a *end) use(cookie uint64, op transport.Opcode, x exposed) string {
	wr := x.targets(signaled(cookie, op))
	if op == transport.OpRead {
		a.mayChange(sinkAt, x.length)
		wr = a.list(wr, a.sink(sinkAt, x.length))
	} else {
		wr = a.list(wr, a.at(sourceAt, x.length))
	}
	a.post(wr)
	return a.access(cookie, op)
}

// windowRows are about type-2 windows.
func windowRows() []Row {
	w := func(name string, run func(t *trial)) Row {
		return Row{Group: "window", Name: name, needs: needWindows, run: run}
	}
	reach := func(name string, op transport.Opcode, access transport.Access, aim func(x exposed) (uint64, transport.RKey, int)) Row {
		return w(op.String()+" "+name, func(t *trial) {
			t.reach(op, access, func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
				return aim(b.bound(exposedAt, exposedLen, access))
			})
		})
	}
	var rows []Row
	for _, op := range []transport.Opcode{transport.OpRead, transport.OpWrite} {
		access := transport.RemoteAny &^ transport.RemoteAtomic
		rows = append(rows,
			reach("whole", op, access, func(x exposed) (uint64, transport.RKey, int) { return x.addr, x.key, exposedLen }),
			reach("one byte over the end", op, access, func(x exposed) (uint64, transport.RKey, int) { return x.addr, x.key, exposedLen + 1 }),
			reach("one byte before the start", op, access, func(x exposed) (uint64, transport.RKey, int) { return x.addr - 1, x.key, 1 }),
			reach("without the right", op, access&^map[transport.Opcode]transport.Access{transport.OpRead: readable, transport.OpWrite: transport.RemoteWrite}[op],
				func(x exposed) (uint64, transport.RKey, int) { return x.addr, x.key, exposedLen }),
			reach("without any right", op, 0, func(x exposed) (uint64, transport.RKey, int) { return x.addr, x.key, exposedLen }),
			reach("another key byte", op, access, func(x exposed) (uint64, transport.RKey, int) { return x.addr, x.key ^ 1, exposedLen }),
			reach("its first key", op, access, func(x exposed) (uint64, transport.RKey, int) {
				return x.addr, x.reg.RKey(x.reg.KeyByte()), exposedLen
			}),
		)
	}
	return append(rows,
		w("READ before it is bound", func(t *trial) {
			t.reach(transport.OpRead, readable, func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
				x := b.mapped(b.registration(transport.Window), exposedAt, exposedLen, access)
				return x.addr, x.reg.RKey(x.reg.KeyByte()), exposedLen
			})
		}),
		w("READ through one that was closed", func(t *trial) {
			t.reach(transport.OpRead, readable, func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
				x := b.bound(exposedAt, exposedLen, access)
				t.must("close", x.reg.Close())
				return x.addr, x.key, exposedLen
			})
		}),
		w("READ on another queue pair of the domain", func(t *trial) {
			a, b := t.pair()
			other := b.sibling()
			a2 := t.end("A", t.bed.A)
			t.connect(a2, other, pairing{receives: -1})
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("other", a2.use(1, transport.OpRead, x))
			t.note("own", a.use(1, transport.OpRead, x))
		}),
		w("READ on a queue pair of another domain", func(t *trial) {
			a, b := t.pair()
			c, d := t.pair()
			_ = a
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("A", c.use(1, transport.OpRead, x))
			t.note("B", d.received(0))
		}),
		w("bound while bound", func(t *trial) {
			_, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("bind", b.valid(&x, x.key.KeyByte()+1))
			t.note("state", b.received(0))
		}),
		w("bound under its first key byte", func(t *trial) {
			_, b := t.pair()
			x := b.mapped(b.registration(transport.Window), exposedAt, exposedLen, readable)
			t.note("bind", b.valid(&x, x.reg.KeyByte()))
		}),
		w("bound again under the same key byte", func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			b.revokedByPeer(a, x)
			t.note("bind", b.valid(&x, x.key.KeyByte()))
		}),
		w("bound again under a key byte two further on", func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			b.revokedByPeer(a, x)
			t.note("bind", b.valid(&x, x.key.KeyByte()+2))
			t.note("READ", a.use(3, transport.OpRead, x))
		}),
		w("bound again to another range", func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			b.revokedByPeer(a, x)
			old := x.key
			x = b.mapped(x.reg, exposedAt+4<<10, 64, transport.RemoteWrite)
			b.mayChange(exposedAt+4<<10, 64)
			t.note("bind", b.valid(&x, old.KeyByte()+1))
			t.note("WRITE", a.use(3, transport.OpWrite, x))
			t.note("bytes", b.changed(exposedAt+4<<10, 64))
			x.key = old
			t.note("old-key", a.use(4, transport.OpWrite, x))
		}),
		w("bound, and not mapped", func(t *trial) {
			_, b := t.pair()
			x := exposed{reg: b.registration(transport.Window)}
			t.note("bind", b.valid(&x, x.reg.KeyByte()+1))
		}),
		w("of one byte", func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt+7, 1, readable)
			t.note("READ", a.use(1, transport.OpRead, x))
		}),
		w("of the whole region", func(t *trial) {
			a, b := t.pair()
			x := b.bound(0, memorySize, readable)
			x.length = 64
			t.note("READ", a.use(1, transport.OpRead, x))
			x.addr += memorySize - 63
			t.note("READ-over-the-end", a.use(2, transport.OpRead, x))
		}),
		w("two of one range", func(t *trial) {
			a, b := t.pair()
			x, y := b.bound(exposedAt, exposedLen, readable), b.bound(exposedAt, exposedLen, writable)
			t.note("READ", a.use(1, transport.OpRead, x))
			t.note("WRITE", a.use(2, transport.OpWrite, y))
			t.must("close", x.reg.Close())
			t.note("WRITE-again", a.use(3, transport.OpWrite, y))
			t.note("READ-again", a.use(4, transport.OpRead, x))
		}),
		w("FETCH_ADD", func(t *trial) {
			if !t.bed.A.Caps().Atomics {
				t.note("atomics", "none")
				return
			}
			a, b := t.pair()
			x := b.bound(exposedAt, 8, transport.RemoteAtomic)
			a.mayChange(sinkAt, 8)
			a.post(a.list(x.targets(signaled(1, transport.OpFetchAdd)), a.sink(sinkAt, 8)))
			t.note("A", a.status(1))
		}),
		w("over memory without bind-window", func(t *trial) {
			b := t.end("B", t.bed.B)
			r := b.region(4096, transport.LocalWrite)
			_, err := b.registration(transport.Window).Map(transport.Mapping{List: []transport.Piece{r.Piece(0, 100)}, Access: readable})
			t.noteError("map", err)
		}),
		w("to be written, over memory without local-write", func(t *trial) {
			b := t.end("B", t.bed.B)
			r := b.region(4096, transport.BindWindow)
			_, err := b.registration(transport.Window).Map(transport.Mapping{List: []transport.Piece{r.Piece(0, 100)}, Access: transport.RemoteWrite})
			t.noteError("map", err)
		}),
		w("over the end of the region", func(t *trial) {
			b := t.end("B", t.bed.B)
			_, err := b.registration(transport.Window).Map(transport.Mapping{List: []transport.Piece{b.mem.Piece(memorySize-1, 2)}, Access: readable})
			t.noteError("map", err)
		}),
		w("of nothing", func(t *trial) {
			b := t.end("B", t.bed.B)
			_, err := b.registration(transport.Window).Map(transport.Mapping{List: []transport.Piece{b.mem.Piece(0, 0)}, Access: readable})
			t.noteError("map", err)
		}),
		w("its region is taken out while it is bound", func(t *trial) {
			_, b := t.pair()
			b.bound(exposedAt, exposedLen, readable)
			t.noteError("remove", b.pd.RemoveRegion(b.mem))
		}),
		w("closed twice", func(t *trial) {
			_, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			t.noteError("close", x.reg.Close())
			t.noteError("again", x.reg.Close())
			_, err := x.reg.Map(transport.Mapping{List: []transport.Piece{b.mem.Piece(0, 8)}, Access: readable})
			t.noteError("map", err)
		}),
		Row{Group: "window", Name: "none to be had", needs: func(c *transport.Caps) bool { return !needWindows(c) }, run: func(t *trial) {
			_, err := t.end("B", t.bed.B).pd.NewRegistration(transport.Window, 0)
			t.noteError("new", err)
		}},
	)
}

// revokedByPeer has A invalidate a window, or a fast registration, of B's by
// SEND_WITH_INV. It takes B's first receive.
func (e *end) revokedByPeer(a *end, x exposed) {
	wr := signaled(2, transport.OpSendWithInv)
	wr.RKey = x.key
	a.post(wr)
	if s := a.status(2); s != "ok" {
		e.t.cannot("SEND_WITH_INV: %s", s)
	}
	if c, ok := e.wait(firstReceive); !ok || c.Status != transport.StatusOK {
		e.t.cannot("SEND_WITH_INV is not received: %s", e.describe(c))
	}
}

// fastRows are about registration by work request: of kernel dialects only.
func fastRows() []Row {
	f := func(name string, run func(t *trial)) Row {
		return Row{Group: "FRWR", Name: name, needs: needFastReg, run: run}
	}
	fast := func(b *end, access transport.Access) exposed {
		x := b.mapped(b.registration(transport.FastMR), exposedAt, exposedLen, access)
		b.makeValid(&x, x.reg.KeyByte()+1)
		return x
	}
	// ready connects, and lets B post.
	ready := func(t *trial) (a, b *end) {
		a, b = t.pair()
		a.post(signaled(1, transport.OpSend))
		if s := b.received(0); s != "0B" {
			t.cannot("first message: %s", s)
		}
		return a, b
	}
	return []Row{
		f("READ", func(t *trial) {
			a, b := ready(t)
			t.note("READ", a.use(3, transport.OpRead, fast(b, readable)))
		}),
		f("WRITE without the right", func(t *trial) {
			a, b := ready(t)
			x := fast(b, readable)
			t.note("WRITE", a.use(3, transport.OpWrite, x))
			a.sync(4)
			t.note("B", b.received(1))
			t.note("bytes", b.changed(exposedAt, exposedLen))
		}),
		f("LOCAL_INV, then READ", func(t *trial) {
			a, b := ready(t)
			x := fast(b, readable)
			t.note("invalidate", b.invalid(x, x.key.KeyByte()))
			t.note("READ", a.use(3, transport.OpRead, x))
		}),
		f("LOCAL_INV of another key byte", func(t *trial) {
			_, b := ready(t)
			x := fast(b, readable)
			t.note("invalidate", b.invalid(x, x.key.KeyByte()+1))
		}),
		f("FAST_REG while valid", func(t *trial) {
			_, b := ready(t)
			x := fast(b, readable)
			t.note("valid", b.valid(&x, x.key.KeyByte()+1))
		}),
		f("used again under the next key byte", func(t *trial) {
			a, b := ready(t)
			x := fast(b, readable)
			t.note("invalidate", b.invalid(x, x.key.KeyByte()))
			old := x.key
			t.note("valid", b.valid(&x, x.key.KeyByte()+1))
			t.note("READ", a.use(3, transport.OpRead, x))
			x.key = old
			t.note("old-key", a.use(4, transport.OpRead, x))
		}),
	}
}
