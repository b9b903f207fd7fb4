package transporttest

import (
	"context"
	"time"

	"rdmarw/transport"
)

// sendRows are messages that arrive.
func sendRows() []Row {
	// message sends one message and records it at both ends.
	message := func(t *trial, wr transport.WR, sges func(a *end) []transport.SGE) (a, b *end) {
		a, b = t.pair()
		var list []transport.SGE
		if sges != nil {
			list = sges(a)
		}
		if _, err := a.try(a.list(wr, list...)); err != nil {
			t.noteError("post", err)
			return a, b
		}
		status := a.status(wr.Cookie)
		t.note("A", status)
		t.note("B", b.answer(0, status))
		t.note("memory", b.changed(receiveAt, receiveLen))
		return a, b
	}
	whole := func(n int) func(*end) []transport.SGE {
		return func(a *end) []transport.SGE { return []transport.SGE{a.at(sourceAt, n)} }
	}
	inline := func(op transport.Opcode) transport.WR {
		wr := signaled(1, op)
		wr.Flags |= transport.Inline
		return wr
	}
	with := func(wr transport.WR, change func(*transport.WR)) transport.WR { change(&wr); return wr }
	return []Row{
		{Group: "send", Name: "SEND of 1 byte", run: func(t *trial) { message(t, signaled(1, transport.OpSend), whole(1)) }},
		{Group: "send", Name: "SEND as long as the receive", run: func(t *trial) { message(t, signaled(1, transport.OpSend), whole(receiveLen)) }},
		{Group: "send", Name: "SEND of nothing, without SGEs", run: func(t *trial) { message(t, signaled(1, transport.OpSend), nil) }},
		{Group: "send", Name: "SEND of nothing, of an empty SGE", run: func(t *trial) { message(t, signaled(1, transport.OpSend), whole(0)) }},
		{Group: "send", Name: "SEND of 3 SGEs, the middle one empty", run: func(t *trial) {
			a, b := message(t, signaled(1, transport.OpSend), func(a *end) []transport.SGE {
				return []transport.SGE{a.at(sourceAt, 5), a.at(sourceAt+9, 0), a.at(sourceAt+5, 7)}
			})
			t.note("data", b.holds(receiveAt, 12, a, sourceAt))
		}},
		{Group: "send", Name: "SEND of 3 SGEs, the last one empty", run: func(t *trial) {
			a, b := message(t, signaled(1, transport.OpSend), func(a *end) []transport.SGE {
				return []transport.SGE{a.at(sourceAt, 5), a.at(sourceAt+5, 7), a.at(sourceAt, 0)}
			})
			t.note("data", b.holds(receiveAt, 12, a, sourceAt))
		}},
		{Group: "send", Name: "SEND of 3 SGEs of different lengths", run: func(t *trial) {
			a, b := message(t, signaled(1, transport.OpSend), func(a *end) []transport.SGE {
				return []transport.SGE{a.at(sourceAt, 1), a.at(sourceAt+1, 17), a.at(sourceAt+18, 30)}
			})
			t.note("data", b.holds(receiveAt, 48, a, sourceAt))
		}},
		{Group: "send", Name: "WRITE of 3 SGEs of different lengths", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(48, writable)
			a.post(a.list(x.targets(signaled(1, transport.OpWrite)), a.at(sourceAt, 1), a.at(sourceAt+1, 17), a.at(sourceAt+18, 30)))
			t.note("A", a.status(1))
			a.sync(2)
			t.note("B", b.received(0))
			t.note("data", b.holds(exposedAt, 48, a, sourceAt))
		}},
		{Group: "send", Name: "SEND of overlapping SGEs", run: func(t *trial) {
			message(t, signaled(1, transport.OpSend), func(a *end) []transport.SGE {
				return []transport.SGE{a.at(sourceAt, 8), a.at(sourceAt, 8)}
			})
		}},
		{Group: "send", Name: "solicited SEND", run: func(t *trial) {
			message(t, with(signaled(1, transport.OpSend), func(wr *transport.WR) { wr.Flags |= transport.Solicited }), whole(4))
		}},
		{Group: "send", Name: "fenced SEND", run: func(t *trial) {
			message(t, with(signaled(1, transport.OpSend), func(wr *transport.WR) { wr.Flags |= transport.Fence }), whole(4))
		}},
		{Group: "send", Name: "unsignaled SEND", run: func(t *trial) {
			a, b := t.pair()
			a.post(a.list(transport.WR{Cookie: 1, Op: transport.OpSend}, a.at(sourceAt, 4)), signaled(2, transport.OpSend))
			t.note("A", a.status(2))
			t.note("B", b.received(0))
			t.note("B-next", b.received(1))
			t.note("of-unsignaled", a.silent())
		}},
		{Group: "send", Name: "to the own end", run: func(t *trial) {
			a, b := t.pair()
			a.sync(1)
			t.note("B", b.received(0))
			a.receive(1)
			b.post(b.list(signaled(1, transport.OpSend), b.at(sourceAt, 9)))
			t.note("back", a.received(0))
			t.note("status", b.status(1))
		}},
		{Group: "inline", Name: "SEND of 8 bytes", needs: needInline, run: func(t *trial) {
			a, b := message(t, inline(transport.OpSend), whole(8))
			t.note("data", b.holds(receiveAt, 8, a, sourceAt))
		}},
		{Group: "inline", Name: "SEND of nothing", needs: needInline, run: func(t *trial) { message(t, inline(transport.OpSend), nil) }},
		{Group: "inline", Name: "SEND of 2 SGEs", needs: needInline, run: func(t *trial) {
			a, b := message(t, inline(transport.OpSend), func(a *end) []transport.SGE {
				return []transport.SGE{a.at(sourceAt, 5), a.at(sourceAt+5, 3)}
			})
			t.note("data", b.holds(receiveAt, 8, a, sourceAt))
		}},
		{Group: "inline", Name: "SEND with a bad key", needs: needInline, run: func(t *trial) {
			message(t, inline(transport.OpSend), func(a *end) []transport.SGE {
				s := a.at(sourceAt, 8)
				s.LKey = 0x7fff_ff01
				return []transport.SGE{s}
			})
		}},
		{Group: "inline", Name: "memory is free when the post returns", needs: needInline, run: func(t *trial) {
			a, b := t.pair()
			copy(a.mem.Bytes()[sinkAt:], "one")
			a.mayChange(sinkAt, 3)
			a.post(a.list(inline(transport.OpSend), a.sink(sinkAt, 3)))
			copy(a.mem.Bytes()[sinkAt:], "two")
			t.note("A", a.status(1))
			t.note("B", b.received(0))
			t.note("data", string(b.mem.Bytes()[receiveAt:][:3]))
		}},
		{Group: "inline", Name: "WRITE", needs: needInline, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8, writable)
			a.post(a.list(x.targets(inline(transport.OpWrite)), a.at(sourceAt, 8)))
			t.note("A", a.status(1))
			a.sync(2)
			t.note("B", b.received(0))
			t.note("bytes", b.changed(exposedAt, 8))
		}},
		{Group: "inline", Name: "READ", needs: needInline, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8, readable)
			_, err := a.try(a.list(x.targets(inline(transport.OpRead)), a.sink(sinkAt, 8)))
			t.noteError("post", err)
		}},
		{Group: "inline", Name: "SEND_WITH_INV", needs: needInv, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8, readable)
			wr := inline(transport.OpSendWithInv)
			wr.RKey = x.key
			_, err := a.try(a.list(wr, a.at(sourceAt, 8)))
			t.noteError("post", err)
			if err == nil {
				t.note("A", a.status(1))
				t.note("B", b.received(0))
			}
		}},
		{Group: "immediate", Name: "SEND_WITH_IMM", needs: needImm, run: func(t *trial) {
			message(t, with(signaled(1, transport.OpSendWithImm), func(wr *transport.WR) { wr.Imm = 0x01020304 }), whole(4))
		}},
		{Group: "immediate", Name: "SEND_WITH_IMM of nothing", needs: needImm, run: func(t *trial) {
			message(t, with(signaled(1, transport.OpSendWithImm), func(wr *transport.WR) { wr.Imm = ^uint32(0) }), nil)
		}},
		{Group: "immediate", Name: "SEND_WITH_IMM where there is none", needs: func(c *transport.Caps) bool { return !c.WriteWithImm }, run: func(t *trial) {
			message(t, signaled(1, transport.OpSendWithImm), whole(4))
		}},
		{Group: "immediate", Name: "WRITE_WITH_IMM where there is none", needs: func(c *transport.Caps) bool { return !c.WriteWithImm }, run: func(t *trial) {
			message(t, signaled(1, transport.OpWriteWithImm), whole(4))
		}},
		{Group: "atomic", Name: "FETCH_ADD where there is none", needs: func(c *transport.Caps) bool { return !c.Atomics }, run: func(t *trial) {
			message(t, signaled(1, transport.OpFetchAdd), whole(8))
		}},
		{Group: "immediate", Name: "WRITE_WITH_IMM", needs: needImm, run: func(t *trial) { writeWithImm(t, 8, 1) }},
		{Group: "immediate", Name: "WRITE_WITH_IMM of nothing", needs: needImm, run: func(t *trial) { writeWithImm(t, 0, 1) }},
		{Group: "immediate", Name: "WRITE_WITH_IMM longer than the receive", needs: needImm, run: func(t *trial) { writeWithImm(t, 2*receiveLen, 1) }},
		{Group: "immediate", Name: "WRITE_WITH_IMM without a receive, tried once", needs: needImm, run: func(t *trial) { writeWithImm(t, 8, 0) }},
	}
}

func writeWithImm(t *trial, n, receives int) {
	if receives == 0 {
		receives = -1
	}
	a, b := t.paired(pairing{receives: receives, pb: transport.ConnParams{RNRRetryCount: -1}})
	x := b.expose(exposedLen, writable)
	wr := x.targets(signaled(1, transport.OpWriteWithImm))
	wr.Imm = 0x05060708
	if n > 0 {
		wr = a.list(wr, a.at(sourceAt, n))
	}
	a.post(wr)
	t.note("A", a.status(1))
	if receives > 0 {
		t.note("B", b.received(0))
	}
	t.note("bytes", b.changed(exposedAt, exposedLen))
}

// receiveRows are messages and the receives that they meet, or don't.
func receiveRows() []Row {
	// meet sends n bytes to a receive of the given SGEs.
	meet := func(t *trial, n int, sges func(b *end) []transport.SGE) {
		a, b := t.paired(pairing{receives: -1})
		b.mayChange(receiveAt, receiveLen)
		list := sges(b)
		if _, err := b.tryReceive(list...); err != nil {
			t.noteError("receive", err)
			return
		}
		b.receive(1)
		wr := signaled(1, transport.OpSend)
		if n > 0 {
			wr = a.list(wr, a.at(sourceAt, n))
		}
		a.post(wr)
		t.note("B", b.received(0))
		t.noteSender(a, 1)
		t.note("memory", b.changed(receiveAt, receiveLen))
		a.sync(2)
		t.note("B-next", b.received(1))
	}
	// notReady sends to where there is no receive, with a number of retries.
	notReady := func(t *trial, retries int) {
		a, _ := t.paired(pairing{receives: -1, pb: transport.ConnParams{RNRRetryCount: retries}})
		a.receive(1)
		a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 8)), signaled(2, transport.OpSend))
		t.noteSender(a, 1)
		t.noteSender(a, 2)
		t.must("fail", a.qp.Fail())
		t.note("own-receive", a.received(0))
	}
	return []Row{
		{Group: "receive", Name: "message one byte longer", run: func(t *trial) {
			meet(t, 17, func(b *end) []transport.SGE { return []transport.SGE{b.at(receiveAt, 16)} })
		}},
		{Group: "receive", Name: "message shorter", run: func(t *trial) {
			meet(t, 15, func(b *end) []transport.SGE { return []transport.SGE{b.at(receiveAt, 16)} })
		}},
		{Group: "receive", Name: "message across 2 SGEs", run: func(t *trial) {
			meet(t, 20, func(b *end) []transport.SGE {
				return []transport.SGE{b.at(receiveAt, 16), b.at(receiveAt+16, 16)}
			})
		}},
		{Group: "receive", Name: "message one byte longer than 2 SGEs", run: func(t *trial) {
			meet(t, 33, func(b *end) []transport.SGE {
				return []transport.SGE{b.at(receiveAt, 16), b.at(receiveAt+16, 16)}
			})
		}},
		{Group: "receive", Name: "message behind an empty SGE", run: func(t *trial) {
			meet(t, 10, func(b *end) []transport.SGE { return []transport.SGE{b.at(receiveAt, 0), b.at(receiveAt, 16)} })
		}},
		{Group: "receive", Name: "second SGE bad, and not needed", run: func(t *trial) {
			meet(t, 10, func(b *end) []transport.SGE {
				return []transport.SGE{b.at(receiveAt, 16), {Addr: 1, Len: 16, LKey: 0x7fff_ff01}}
			})
		}},
		{Group: "receive", Name: "second SGE bad, and needed", run: func(t *trial) {
			meet(t, 20, func(b *end) []transport.SGE {
				return []transport.SGE{b.at(receiveAt, 16), {Addr: 1, Len: 16, LKey: 0x7fff_ff01}}
			})
		}},
		{Group: "receive", Name: "empty message into no SGEs", run: func(t *trial) {
			meet(t, 0, func(*end) []transport.SGE { return nil })
		}},
		{Group: "receive", Name: "a byte into no SGEs", run: func(t *trial) {
			meet(t, 1, func(*end) []transport.SGE { return nil })
		}},
		{Group: "receive", Name: "empty message into an empty SGE", run: func(t *trial) {
			meet(t, 0, func(b *end) []transport.SGE { return []transport.SGE{b.at(receiveAt, 0)} })
		}},
		{Group: "receive", Name: "a byte into an empty SGE", run: func(t *trial) {
			meet(t, 1, func(b *end) []transport.SGE { return []transport.SGE{b.at(receiveAt, 0)} })
		}},
		{Group: "receive", Name: "empty message into a receive with a bad key", run: func(t *trial) {
			meet(t, 0, func(*end) []transport.SGE { return []transport.SGE{{Addr: 1, Len: 16, LKey: 0x7fff_ff01}} })
		}},
		{Group: "receive", Name: "none, not tried again", run: func(t *trial) { notReady(t, -1) }},
		{Group: "receive", Name: "none, tried again once", run: func(t *trial) { notReady(t, 1) }},
		{Group: "receive", Name: "none, tried again for ever whatever the sender says, posted late", needs: needNoIWARP, run: func(t *trial) {
			a, b := t.paired(pairing{receives: -1, pa: transport.ConnParams{RNRRetryCount: -1}})
			a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 8)), signaled(2, transport.OpSend))
			t.note("A-before", a.silent())
			b.receive(2)
			t.note("A", a.status(1))
			t.note("A-next", a.status(2))
			t.note("B", b.received(0))
			t.note("B-next", b.received(1))
		}},
		{Group: "receive", Name: "none, the connection on iWARP", needs: func(c *transport.Caps) bool { return !needNoIWARP(c) }, run: func(t *trial) {
			a, b := t.paired(pairing{receives: -1})
			a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 8)))
			t.noteSender(a, 1)
			t.note("A-ended", a.ended())
			t.note("B-ended", b.ended())
		}},
		{Group: "receive", Name: "in the order of posting", run: func(t *trial) {
			a, b := t.pair()
			for i := range 3 {
				a.post(a.list(signaled(uint64(i+1), transport.OpSend), a.at(sourceAt, i+1)))
			}
			for i := range 3 {
				t.note([]string{"first", "second", "third"}[i], b.received(i))
			}
		}},
		{Group: "receive", Name: "waiting for a message", run: func(t *trial) {
			a, b := t.pair()
			b.poll()
			t.must("arm", b.cq.Arm())
			a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 4)))
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			begun := time.Now()
			t.noteError("wait", b.cq.Wait(ctx))
			t.note("in-time", time.Since(begun) < patience)
			t.note("B", b.received(0))
		}},
	}
}

// srqRows are about shared receive queues.
func srqRows() []Row {
	shared := func(t *trial, connections int) (as, bs []*end, srq transport.SRQ) {
		b := t.end("B", t.bed.B)
		srq, err := b.pd.NewSRQ(8, 1)
		t.must("new SRQ", err)
		t.later(srq.Close)
		for range connections {
			a := t.end("A", t.bed.A)
			peer := b.sibling()
			t.connect(a, peer, pairing{receives: -1, b: func(c *transport.QPConfig) { c.SRQ = srq }})
			as, bs = append(as, a), append(bs, peer)
		}
		return as, bs, srq
	}
	post := func(t *trial, b *end, srq transport.SRQ, n int) {
		for i := range n {
			b.mayChange(receiveAt+i*receiveLen, receiveLen)
			_, err := srq.PostRecv([]transport.RecvWR{{Cookie: firstReceive + uint64(i), NumSGE: 1}}, []transport.SGE{b.at(receiveAt+i*receiveLen, receiveLen)})
			t.must("post to the SRQ", err)
			b.owed[firstReceive+uint64(i)]++
		}
	}
	return []Row{
		{Group: "SRQ", Name: "two queue pairs take turns", needs: needSRQ, run: func(t *trial) {
			as, bs, srq := shared(t, 2)
			b := t.ends[0]
			post(t, b, srq, 3)
			for i, turn := range []int{0, 1, 0} {
				as[turn].post(as[turn].list(signaled(uint64(i+1), transport.OpSend), as[turn].at(sourceAt, i+1)))
				t.note("A", as[turn].status(uint64(i+1)))
				c, ok := b.wait(firstReceive + uint64(i))
				t.note("B", b.describe(c))
				t.note("of-its-queue-pair", ok && c.QPN == bs[turn].qp.Num())
			}
		}},
		{Group: "SRQ", Name: "a failed queue pair leaves it alone", needs: needSRQ, run: func(t *trial) {
			as, bs, srq := shared(t, 2)
			b := t.ends[0]
			post(t, b, srq, 2)
			t.must("fail", bs[0].qp.Fail())
			t.note("flushed", b.silent())
			as[1].post(as[1].list(signaled(1, transport.OpSend), as[1].at(sourceAt, 5)))
			t.note("A", as[1].status(1))
			t.note("B", b.received(0))
		}},
		{Group: "SRQ", Name: "receive on a queue pair that has one", needs: needSRQ, run: func(t *trial) {
			_, bs, _ := shared(t, 1)
			_, err := bs[0].tryReceive(bs[0].at(receiveAt, receiveLen))
			t.noteError("post", err)
		}},
		{Group: "SRQ", Name: "closed while in use", needs: needSRQ, run: func(t *trial) {
			_, _, srq := shared(t, 1)
			t.noteError("close", srq.Close())
		}},
		{Group: "SRQ", Name: "full", needs: needSRQ, run: func(t *trial) {
			b := t.end("B", t.bed.B)
			srq, err := b.pd.NewSRQ(5, 1)
			t.must("new SRQ", err)
			t.later(srq.Close)
			n := 0
			for ; n < 100; n++ {
				if _, err = srq.PostRecv([]transport.RecvWR{{NumSGE: 1}}, []transport.SGE{b.at(receiveAt, receiveLen)}); err != nil {
					break
				}
			}
			t.note("granted", srq.Granted().MaxRecvWR)
			t.note("took", n)
			t.noteError("then", err)
		}},
		{Group: "SRQ", Name: "receive of one SGE too many", needs: needSRQ, run: func(t *trial) {
			b := t.end("B", t.bed.B)
			srq, err := b.pd.NewSRQ(4, 2)
			t.must("new SRQ", err)
			t.later(srq.Close)
			t.note("granted", srq.Granted().MaxRecvSGE)
			s := b.at(receiveAt, 1)
			_, err = srq.PostRecv([]transport.RecvWR{{NumSGE: 3}}, []transport.SGE{s, s, s})
			t.noteError("post", err)
		}},
		{Group: "SRQ", Name: "receive outside of the arena", needs: needSRQ, run: func(t *trial) {
			b := t.end("B", t.bed.B)
			srq, err := b.pd.NewSRQ(4, 2)
			t.must("new SRQ", err)
			t.later(srq.Close)
			_, err = srq.PostRecv([]transport.RecvWR{{FirstSGE: 1, NumSGE: 1}}, []transport.SGE{b.at(receiveAt, 1)})
			t.noteError("post", err)
		}},
		{Group: "SRQ", Name: "sizes", needs: needSRQ, run: func(t *trial) {
			b := t.end("B", t.bed.B)
			caps := b.dev.Caps()
			for _, ask := range []struct {
				name    string
				wr, sge int
			}{{"0", 0, 1}, {"1", 1, 1}, {"SGE-limit", 4, caps.MaxRecvSGE}, {"SGE-limit+1", 4, caps.MaxRecvSGE + 1}, {"limit+1", caps.MaxSRQWR + 1, 1}} {
				srq, err := b.pd.NewSRQ(ask.wr, ask.sge)
				t.noteError(ask.name, err)
				if err == nil {
					t.note("granted", srq.Granted().MaxRecvWR)
					t.must("close", srq.Close())
				}
			}
		}},
	}
}
