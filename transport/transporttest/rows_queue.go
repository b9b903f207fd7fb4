package transporttest

import (
	"context"

	"rdmarw/transport"
)

// queueRows are about CQs.
func queueRows() []Row {
	ended := func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}
	return []Row{
		{Group: "CQ", Name: "polled while empty", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			n, err := e.cq.Poll(make([]transport.Completion, 4))
			t.note("n", n)
			t.noteError("poll", err)
			n, err = e.cq.Poll(nil)
			t.note("n", n)
			t.noteError("poll-nothing", err)
		}},
		{Group: "CQ", Name: "polled one by one", run: func(t *trial) {
			a, b := t.pair()
			a.post(signaled(1, transport.OpSend), signaled(2, transport.OpSend), signaled(3, transport.OpSend))
			for i := range 3 {
				b.received(i)
			}
			var cookies []uint64
			a.until(func() bool { return len(a.got) == 3 })
			for _, c := range a.got {
				cookies = append(cookies, c.Cookie)
			}
			t.note("cookies", len(cookies))
			t.note("QPN", a.got[0].QPN == a.qp.Num())
		}},
		{Group: "CQ", Name: "waited for, with a context that has ended", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			t.must("arm", e.cq.Arm())
			t.noteError("wait", e.cq.Wait(ended()))
		}},
		{Group: "CQ", Name: "woken before it is waited for", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			t.must("arm", e.cq.Arm())
			e.cq.Wake()
			ctx, cancel := t.ctx()
			defer cancel()
			t.noteError("wait", e.cq.Wait(ctx))
		}},
		{Group: "CQ", Name: "armed, and a completion comes", run: func(t *trial) {
			a, b := t.pair()
			t.must("arm", a.cq.Arm())
			a.post(signaled(1, transport.OpSend))
			ctx, cancel := t.ctx()
			defer cancel()
			t.noteError("wait", a.cq.Wait(ctx))
			t.note("B", b.received(0))
			t.note("A", a.status(1))
		}},
		{Group: "CQ", Name: "closed while in use", run: func(t *trial) {
			a, _ := t.pair()
			t.noteError("close", a.cq.Close())
		}},
		{Group: "CQ", Name: "used after it was closed", run: func(t *trial) {
			e := t.end("A", t.bed.A)
			cq, err := e.dev.NewCQ(4)
			t.must("new CQ", err)
			t.noteError("close", cq.Close())
			t.noteError("again", cq.Close())
			_, err = cq.Poll(make([]transport.Completion, 1))
			t.noteError("poll", err)
			t.noteError("arm", cq.Arm())
			ctx, cancel := t.ctx()
			defer cancel()
			t.noteError("wait", cq.Wait(ctx))
			a := t.resolved()
			cfg := a.config()
			cfg.SendCQ = cq
			_, err = a.conn.CreateQP(cfg)
			t.noteError("queue-pair", err)
		}},
		{Group: "CQ", Name: "overrun", run: func(t *trial) {
			// Nobody polls, and more completes than there is room for, whatever the
			// rounding.
			a, b := t.end("A", t.bed.A), t.end("B", t.bed.B)
			small, err := a.dev.NewCQ(1)
			t.must("new CQ", err)
			t.later(small.Close)
			t.connect(a, b, pairing{receives: 32, a: func(c *transport.QPConfig) { c.SendCQ, c.MaxSendWR = small, 32 }})
			for range 32 {
				a.cookieless()
			}
			// A may be in error by now; if it isn't, all have arrived.
			b.untilFor(silenceContext, func() bool { return len(b.got) == 32 })
			buf := make([]transport.Completion, 64)
			var n int
			a.untilFor(silenceContext, func() bool {
				var m int
				m, err = small.Poll(buf)
				n += m
				return err != nil
			})
			t.noteError("poll", err)
			t.note("lost", n < 32)
		}},
		{Group: "CQ", Name: "one for both directions", run: func(t *trial) {
			a, b := t.pair()
			a.receive(1)
			a.post(signaled(1, transport.OpSend))
			t.note("B", b.received(0))
			b.post(b.list(signaled(1, transport.OpSend), b.at(sourceAt, 3)))
			t.note("A", a.received(0))
			t.note("A-send", a.status(1))
			t.note("B-send", b.status(1))
		}},
		{Group: "CQ", Name: "of its own for receives", run: func(t *trial) {
			a, b := t.end("A", t.bed.A), t.end("B", t.bed.B)
			other, err := b.dev.NewCQ(16)
			t.must("new CQ", err)
			t.later(other.Close)
			t.connect(a, b, pairing{b: func(c *transport.QPConfig) { c.SendCQ = other }})
			a.sync(1)
			t.note("receive", b.received(0))
			a.receive(1)
			b.post(signaled(2, transport.OpSend))
			t.note("A", a.received(0))
			var done [4]transport.Completion
			var n int
			b.until(func() bool { n, err = other.Poll(done[:]); return n > 0 || err != nil })
			t.note("send", statusWord(done[0].Status))
			t.note("n", n)
			b.owed[2]--
		}},
	}
}

// deviceRows are about what a device says of itself.
func deviceRows() []Row {
	caps := func(name string, note func(t *trial, c *transport.Caps)) Row {
		return Row{Group: "capabilities", Name: name, run: func(t *trial) { note(t, t.bed.A.Caps()) }}
	}
	return []Row{
		caps("SGEs", func(t *trial, c *transport.Caps) {
			t.note("send", c.MaxSendSGE)
			t.note("receive", c.MaxRecvSGE)
			t.note("READ", c.MaxSGERead)
			t.note("READ-hint", c.MaxSGLRead)
		}),
		caps("sizes", func(t *trial, c *transport.Caps) {
			t.note("send", c.MaxSendWR)
			t.note("receive", c.MaxRecvWR)
			t.note("SRQ", c.MaxSRQWR)
			t.note("CQ", c.MaxCQE)
			t.note("inline", c.MaxInline)
			t.note("message", c.MaxMsg)
		}),
		caps("READ depths", func(t *trial, c *transport.Caps) {
			t.note("initiator", c.InitiatorDepth)
			t.note("responder", c.ResponderResources)
		}),
		caps("registrations", func(t *trial, c *transport.Caps) {
			t.note("windows", c.Windows)
			t.note("max-windows", c.MaxWindows)
			t.note("max-MR", c.MaxMR)
			t.note("max-MR-size", c.MaxMRSize)
			t.note("fast", c.FastReg.MaxPages)
			t.note("MR-blocks", c.MapBlocks[transport.SyncMR])
			t.note("window-blocks", c.MapBlocks[transport.Window])
			t.note("global-lkey", c.GlobalLKey)
		}),
		caps("invalidation", func(t *trial, c *transport.Caps) {
			t.note("SEND_WITH_INV", c.SendWithInv)
			t.note("READ_WITH_INV", c.ReadWithInv)
			t.note("reported", c.CompletionReportsInv)
			t.note("remote-MR", c.RemoteInv[transport.SyncMR])
			t.note("remote-window", c.RemoteInv[transport.Window])
			t.note("local-MR", c.LocalInv[transport.SyncMR])
		}),
		caps("operations", func(t *trial, c *transport.Caps) {
			t.note("immediate", c.WriteWithImm)
			t.note("atomics", c.Atomics)
			t.note("atomic-post", c.AtomicPost)
			t.note("sink-needs-remote-write", c.ReadSinkNeedsRemoteWrite)
			t.note("READ-unchecked", c.RemoteReadUnchecked)
		}),
	}
}

// cookieless posts a SEND of nothing whose completion goes somewhere else.
func (e *end) cookieless() {
	_, _ = e.qp.PostSend([]transport.WR{signaled(500, transport.OpSend)}, nil)
}
