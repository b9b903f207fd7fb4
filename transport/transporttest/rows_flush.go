package transporttest

import "rdmarw/transport"

// flushRows are about what becomes of requests when a queue pair fails.
func flushRows() []Row {
	// badRead makes a READ that B refuses: what kills a connection on every device.
	badRead := func(a *end, x exposed, cookie uint64, flags transport.Flags) transport.WR {
		wr := a.list(x.targets(transport.WR{Cookie: cookie, Op: transport.OpRead, Flags: flags}), a.sink(sinkAt, 64))
		wr.RKey = 0x7fff_ff01
		return wr
	}
	return []Row{
		{Group: "flush", Name: "receives, in order", run: func(t *trial) {
			a, _ := t.pair()
			a.receive(3)
			t.must("fail", a.qp.Fail())
			t.note("order", a.sequence(3))
		}},
		{Group: "flush", Name: "receives of both ends after a Disconnect", run: func(t *trial) {
			a, b := t.pair()
			a.receive(3)
			t.must("disconnect", a.conn.Disconnect())
			t.note("A", a.sequence(3))
			t.note("B", b.sequence(4))
		}},
		{Group: "flush", Name: "receives of an end whose peer fails", run: func(t *trial) {
			a, b := t.pair()
			a.receive(1)
			t.must("fail", b.qp.Fail())
			t.note("B", b.sequence(4))
			if a.dev.Caps().Protocol == transport.IWARP {
				t.note("A", a.received(0)) // no stream outlives its queue pair
				t.note("A-ended", a.ended())
			} else {
				t.note("A", a.silent()) // nobody is told
			}
		}},
		{Group: "flush", Name: "receives before the connection is up", run: func(t *trial) {
			a := t.resolved()
			a.createQP(nil)
			a.receive(2)
			t.must("fail", a.qp.Fail())
			t.note("state", stateWord(a.qp))
			t.note("order", a.sequence(2))
		}},
		{Group: "flush", Name: "requests behind one that fails at the peer", needs: needNoIWARP, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, both)
			a.receive(2)
			a.post(
				badRead(a, x, 1, transport.Signaled),
				a.list(x.targets(signaled(2, transport.OpWrite)), a.at(sourceAt, 8)),
				a.list(x.targets(transport.WR{Cookie: 3, Op: transport.OpWrite}), a.at(sourceAt, 8)),
				signaled(4, transport.OpSend),
			)
			a.until(func() bool { return len(a.got) >= 6 })
			t.note("requests", a.sequenceOf(func(c transport.Completion) bool { return c.Cookie < firstReceive }))
			t.note("receives", a.sequenceOf(func(c transport.Completion) bool { return c.Cookie >= firstReceive }))
			t.note("bytes", b.changed(exposedAt, 64))
		}},
		{Group: "flush", Name: "an unsignaled request that fails", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, both)
			a.post(badRead(a, x, 1, 0))
			t.note("A", a.status(1))
			t.note("B", b.received(0))
		}},
		{Group: "flush", Name: "an unsignaled request before one that fails", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, both)
			a.mayChange(sinkAt, 64)
			a.post(
				a.list(x.targets(transport.WR{Cookie: 1, Op: transport.OpRead}), a.sink(sinkAt, 64)),
				badRead(a, x, 2, transport.Signaled),
			)
			t.note("A-next", a.status(2))
			t.note("A", a.sequenceOf(func(c transport.Completion) bool { return c.Cookie == 1 }))
			t.note("data", a.holds(sinkAt, 64, b, exposedAt))
		}},
		{Group: "flush", Name: "a request with an own error behind others", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10, both)
			bad := a.at(sourceAt, 8)
			bad.LKey = 0x7fff_ff01
			a.mayChange(sinkAt, 8<<10)
			a.post(
				a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 8<<10)), // takes its time
				a.list(x.targets(signaled(2, transport.OpWrite)), bad),
			)
			a.settle(2)
			t.note("order", a.sequence(0))
			t.must("fail", a.qp.Fail())
			t.note("after-Fail", a.sequence(2))
		}},
		{Group: "flush", Name: "requests behind one with an own error", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, both)
			bad := a.at(sourceAt, 8)
			bad.LKey = 0x7fff_ff01
			a.post(
				a.list(x.targets(signaled(1, transport.OpWrite)), bad),
				a.list(x.targets(signaled(2, transport.OpWrite)), a.at(sourceAt, 8)),
				a.list(x.targets(transport.WR{Cookie: 3, Op: transport.OpWrite}), a.at(sourceAt, 8)),
				signaled(4, transport.OpSend),
			)
			a.settle(4)
			t.note("order", a.sequence(0))
			t.must("fail", a.qp.Fail())
			t.note("after-Fail", a.sequence(4))
			t.note("bytes", b.changed(exposedAt, 64))
		}},
		{Group: "flush", Name: "requests that wait for a receive, when their end fails", needs: needNoIWARP, run: func(t *trial) {
			a, _ := t.paired(pairing{receives: -1})
			a.post(
				signaled(1, transport.OpSend),
				transport.WR{Cookie: 2, Op: transport.OpSend},
				signaled(3, transport.OpSend),
			)
			t.note("before", a.silent())
			t.must("fail", a.qp.Fail())
			t.note("order", a.sequence(3))
		}},
		{Group: "flush", Name: "requests to a peer that has failed", needs: needNoIWARP, run: func(t *trial) {
			a, b := t.paired(pairing{pa: transport.ConnParams{RetryCount: 1}})
			t.must("fail", b.qp.Fail())
			a.post(signaled(1, transport.OpSend), transport.WR{Cookie: 2, Op: transport.OpSend})
			t.note("order", a.sequence(2))
		}},
		{Group: "drain", Name: "marker behind unsignaled requests, then Fail", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, writable)
			a.receive(2)
			a.post(
				a.list(x.targets(transport.WR{Cookie: 1, Op: transport.OpWrite}), a.at(sourceAt, 8)),
				transport.WR{Cookie: 2, Op: transport.OpSend},
				signaled(3, transport.OpWrite),
			)
			t.note("marker", a.status(3))
			t.must("fail", a.qp.Fail())
			t.note("rest", a.sequence(2))
		}},
		{Group: "drain", Name: "Close with requests outstanding, nothing moves afterwards", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10, readable)
			a.mayChange(sinkAt, 8<<10)
			a.post(a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 8<<10)))
			t.noteError("close", a.conn.Close())
			after := append([]byte(nil), a.mem.Bytes()...)
			a.untilFor(silenceContext, func() bool { return false })
			t.note("moved", string(after) != string(a.mem.Bytes()))
		}},
		{Group: "drain", Name: "completions stay after Close", run: func(t *trial) {
			a, b := t.pair()
			a.post(signaled(1, transport.OpSend))
			t.note("B", b.received(0))
			if !a.until(func() bool { return len(a.got) > 0 }) {
				t.cannot("the SEND does not complete")
			}
			t.noteError("close", a.conn.Close())
			t.note("A", a.status(1))
		}},
	}
}
