package transporttest

import "rdmarw/transport"

// invalidationRows are about keys that are killed: by the peer's SEND_WITH_INV, or by an own
// LOCAL_INV.
func invalidationRows() []Row {
	// kill has A send an invalidation of a key, and records both ends, and what the
	// range is good for then.
	kill := func(name string, needs need, access transport.Access, key func(t *trial, a, b *end) (transport.RKey, *exposed)) Row {
		return Row{Group: "SEND_WITH_INV", Name: name, needs: needs, run: func(t *trial) {
			a, b := t.pair()
			k, x := key(t, a, b)
			wr := a.list(signaled(1, transport.OpSendWithInv), a.at(sourceAt, 4))
			wr.RKey = k
			a.post(wr)
			got := b.received(0)
			t.note("B", got)
			t.noteSender(a, 1)
			if x == nil || got != "4B" && got != "4B+inv" {
				return
			}
			op := transport.OpRead
			if access.Has(transport.RemoteWrite) {
				op = transport.OpWrite
			}
			t.note("then-"+op.String(), a.use(2, op, *x))
			a.sync(3)
			t.note("B-next", b.received(1))
			if op == transport.OpWrite {
				t.note("bytes", b.changed(exposedAt, exposedLen))
			}
		}}
	}
	registered := func(change func(transport.RKey) transport.RKey) func(*trial, *end, *end) (transport.RKey, *exposed) {
		return func(_ *trial, _, b *end) (transport.RKey, *exposed) {
			x := b.expose(exposedLen, readable)
			return change(x.key), &x
		}
	}
	same := func(k transport.RKey) transport.RKey { return k }
	windowed := func(change func(transport.RKey) transport.RKey) func(*trial, *end, *end) (transport.RKey, *exposed) {
		return func(_ *trial, _, b *end) (transport.RKey, *exposed) {
			x := b.bound(exposedAt, exposedLen, readable)
			return change(x.key), &x
		}
	}
	windowInv := func(c *transport.Caps) bool { return needWindows(c) && needInv(c) }
	return []Row{
		kill("registration", needInv, readable, registered(same)),
		kill("registration that can be written", needInv, writable, func(_ *trial, _, b *end) (transport.RKey, *exposed) {
			x := b.expose(exposedLen, writable)
			return x.key, &x
		}),
		kill("registration, another key byte", needInv, readable, registered(func(k transport.RKey) transport.RKey { return k ^ 1 })),
		kill("registration, index plus one", needInv, readable, registered(func(k transport.RKey) transport.RKey { return k + 1<<8 })),
		kill("key that never existed", needInv, readable, func(*trial, *end, *end) (transport.RKey, *exposed) { return 0x7fff_ff01, nil }),
		kill("key 0", needInv, readable, func(*trial, *end, *end) (transport.RKey, *exposed) { return 0, nil }),
		kill("deregistered", needInv, readable, func(t *trial, _, b *end) (transport.RKey, *exposed) {
			x := b.expose(exposedLen, readable)
			t.must("unmap", x.reg.Unmap())
			return x.key, nil
		}),
		kill("registration of another domain", needInv, readable, func(t *trial, _, b *end) (transport.RKey, *exposed) {
			other := t.end("C", b.dev)
			return other.expose(exposedLen, readable).key, nil
		}),
		kill("lkey of the region", needInv, readable, func(_ *trial, _, b *end) (transport.RKey, *exposed) { return transport.RKey(b.lkey()), nil }),
		{Group: "SEND_WITH_INV", Name: "registration, which is mapped again", needs: needInv, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(exposedLen, readable)
			wr := signaled(1, transport.OpSendWithInv)
			wr.RKey = x.key
			a.post(wr)
			got := b.received(0)
			t.note("B", got)
			t.noteError("unmap", x.reg.Unmap())
			x = b.mapped(x.reg, exposedAt, exposedLen, readable)
			if got == "0B" {
				t.note("READ", a.use(2, transport.OpRead, x))
			}
		}},
		{Group: "SEND_WITH_INV", Name: "sink of an own READ", needs: func(c *transport.Caps) bool { return needInv(c) && !needNoIWARP(c) }, run: func(t *trial) {
			// A READ request shows the sink's STag, as known to A's own domain. B kills it.
			a, b := t.pair()
			x := b.expose(64, readable)
			sink := a.registration(transport.SyncMR)
			access := transport.LocalWrite
			if a.dev.Caps().ReadSinkNeedsRemoteWrite {
				access = writable
			}
			y := a.mapped(sink, sinkAt, 64, access)
			a.mayChange(sinkAt, 64)
			read := func(cookie uint64) string {
				a.post(a.list(x.targets(signaled(cookie, transport.OpRead)), transport.SGE{Addr: y.addr, Len: 64, LKey: sink.LKey(0)}))
				return a.status(cookie)
			}
			t.note("READ", read(1))
			a.receive(1)
			wr := signaled(1, transport.OpSendWithInv)
			wr.RKey = transport.RKey(sink.LKey(0))
			b.post(wr)
			t.note("B", b.status(1))
			got := a.received(0)
			t.note("A", got)
			if got == "0B" {
				t.note("READ-again", read(2))
			}
		}},
		{Group: "SEND_WITH_INV", Name: "without a receive", needs: needInv, run: func(t *trial) {
			a, b := t.paired(pairing{receives: -1, pb: transport.ConnParams{RNRRetryCount: -1}})
			wr := signaled(1, transport.OpSendWithInv)
			wr.RKey = b.expose(exposedLen, readable).key
			a.post(wr)
			t.noteSender(a, 1)
		}},
		kill("window", windowInv, readable, windowed(same)),
		kill("window, another key byte", windowInv, readable, windowed(func(k transport.RKey) transport.RKey { return k ^ 1 })),
		kill("window that was closed", windowInv, readable, func(t *trial, _, b *end) (transport.RKey, *exposed) {
			x := b.bound(exposedAt, exposedLen, readable)
			t.must("close", x.reg.Close())
			return x.key, nil
		}),
		kill("window of another queue pair", windowInv, readable, func(t *trial, _, b *end) (transport.RKey, *exposed) {
			a2, other := t.end("A", t.bed.A), b.sibling()
			t.connect(a2, other, pairing{receives: -1})
			x := other.bound(exposedAt, exposedLen, readable)
			return x.key, nil
		}),
		kill("window of another domain", windowInv, readable, func(t *trial, _, b *end) (transport.RKey, *exposed) {
			_, other := t.pair()
			return other.bound(exposedAt, exposedLen, readable).key, nil
		}),
		{Group: "SEND_WITH_INV", Name: "window, twice", needs: windowInv, Crashes: true, run: func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			b.revokedByPeer(a, x)
			wr := signaled(3, transport.OpSendWithInv)
			wr.RKey = x.key
			a.post(wr)
			t.note("A", a.status(3))
			t.note("B", b.received(1))
		}},
		{Group: "LOCAL_INV", Name: "window", needs: needWindowInv, run: func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("READ", a.use(1, transport.OpRead, x))
			t.note("invalidate", b.invalid(x, x.key.KeyByte()))
			t.note("then-READ", a.use(2, transport.OpRead, x))
			t.note("B", b.received(0))
		}},
		{Group: "LOCAL_INV", Name: "window, then bound again", needs: needWindowInv, run: func(t *trial) {
			a, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("invalidate", b.invalid(x, x.key.KeyByte()))
			t.note("bind", b.valid(&x, x.key.KeyByte()+1))
			t.note("READ", a.use(1, transport.OpRead, x))
		}},
		{Group: "LOCAL_INV", Name: "window, another key byte", needs: needWindowInv, run: func(t *trial) {
			_, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("invalidate", b.invalid(x, x.key.KeyByte()+1))
			t.note("B", b.received(0))
		}},
		{Group: "LOCAL_INV", Name: "window of another queue pair", needs: needWindowInv, run: func(t *trial) {
			_, b := t.pair()
			a2, other := t.end("A", t.bed.A), b.sibling()
			t.connect(a2, other, pairing{receives: -1})
			x := other.bound(exposedAt, exposedLen, readable)
			t.note("invalidate", b.invalid(x, x.key.KeyByte()))
		}},
		{Group: "LOCAL_INV", Name: "window, which was never bound", needs: needWindowInv, run: func(t *trial) {
			_, b := t.pair()
			x := b.mapped(b.registration(transport.Window), exposedAt, exposedLen, readable)
			t.note("invalidate", b.invalid(x, x.reg.KeyByte()+1))
		}},
		{Group: "LOCAL_INV", Name: "window, twice", needs: needWindowInv, Crashes: true, run: func(t *trial) {
			_, b := t.pair()
			x := b.bound(exposedAt, exposedLen, readable)
			t.note("first", b.invalid(x, x.key.KeyByte()))
			t.note("second", b.invalid(x, x.key.KeyByte()))
		}},
		{Group: "LOCAL_INV", Name: "registration by call has no request for it", run: func(t *trial) {
			b := t.end("B", t.bed.B)
			x := b.expose(exposedLen, readable)
			t.note("valid", len(x.reg.AppendValid(nil, 1)))
			t.note("invalid", len(x.reg.AppendInvalid(nil, 1)))
		}},
	}
}
