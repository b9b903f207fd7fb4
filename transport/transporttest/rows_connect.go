package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"rdmarw/transport"
)

// dialogue is a connection in the making: A's request, and B's side of it.
type dialogue struct {
	a, b     *end
	listener transport.Listener
}

// ask has A send a request, and B take it.
func (t *trial) ask(p transport.ConnParams) dialogue {
	d := dialogue{a: t.end("A", t.bed.A), b: t.end("B", t.bed.B)}
	ctx, cancel := t.ctx()
	defer cancel()
	var err error
	d.listener, err = d.b.dev.Listen(t.bed.Listen)
	t.must("listen", err)
	t.later(d.listener.Close)
	conn, err := d.a.dev.Resolve(ctx, d.listener.Addr())
	t.must("resolve", err)
	d.a.own(conn)
	d.a.createQP(nil)
	t.must("connect", conn.Connect(p))
	conn, err = d.listener.Next(ctx)
	t.must("next", err)
	d.b.own(conn)
	return d
}

// outcome waits for the end of the attempt and is what Established says.
func (e *end) outcome() (transport.ConnInfo, string) {
	ctx, cancel := e.t.ctx()
	defer cancel()
	info, err := e.conn.Established(ctx)
	return info, errorWord(err)
}

// arrived describes private data: how much of what was sent has come, and whether
// anything but zeros follows.
func arrived(sent, got []byte) string {
	if !bytes.HasPrefix(got, sent) {
		return fmt.Sprintf("other(%d)", len(got))
	}
	if len(bytes.Trim(got[len(sent):], "\x00")) > 0 {
		return "with-more"
	}
	return fmt.Sprint(len(sent))
}

func data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + 1)
	}
	return b
}

// connectRows are about connections that come to be, or don't.
func connectRows() []Row {
	var rows []Row
	add := func(name string, run func(t *trial)) {
		rows = append(rows, Row{Group: "connect", Name: name, run: run})
	}

	for _, n := range []int{0, 1, 55, 56} {
		add(fmt.Sprintf("request with %d bytes of private data", n), func(t *trial) {
			d := t.ask(transport.ConnParams{PrivateData: data(n)})
			t.note("B", arrived(data(n), d.b.conn.Request().PrivateData))
		})
	}
	add("request with 57 bytes of private data", func(t *trial) {
		a := t.resolved()
		a.createQP(nil)
		t.noteError("connect", a.conn.Connect(transport.ConnParams{PrivateData: data(57)}))
	})
	for _, n := range []int{0, 1, 195, 196} {
		add(fmt.Sprintf("answer with %d bytes of private data", n), func(t *trial) {
			d := t.ask(transport.ConnParams{})
			d.b.createQP(nil)
			d.b.receive(1)
			t.must("accept", d.b.conn.Accept(transport.ConnParams{PrivateData: data(n)}))
			info, err := d.a.outcome()
			t.note("A", err)
			t.note("data", arrived(data(n), info.PrivateData))
			_, err = d.b.outcome()
			t.note("B", err)
		})
	}
	add("answer with 197 bytes of private data", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.noteError("accept", d.b.conn.Accept(transport.ConnParams{PrivateData: data(197)}))
		t.noteError("accept-then", d.b.conn.Accept(transport.ConnParams{}))
		_, err := d.a.outcome()
		t.note("A", err)
	})
	for _, n := range []int{0, 1, 147, 148} {
		add(fmt.Sprintf("rejected with %d bytes of private data", n), func(t *trial) {
			d := t.ask(transport.ConnParams{})
			d.a.receive(1)
			t.noteError("reject", d.b.conn.Reject(data(n)))
			ctx, cancel := t.ctx()
			defer cancel()
			_, err := d.a.conn.Established(ctx)
			t.noteError("A", err)
			var rejected *transport.RejectedError
			if errors.As(err, &rejected) {
				t.note("data", arrived(data(n), rejected.PrivateData))
			}
			t.note("A-ended", d.a.ended())
			t.note("A-receive", d.a.received(0))
			t.note("A-state", stateWord(d.a.qp))
		})
	}
	add("rejected with 149 bytes of private data", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("reject", d.b.conn.Reject(data(149)))
		t.noteError("reject-then", d.b.conn.Reject(nil))
	})
	add("rejected with a queue pair", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		d.b.receive(1)
		t.noteError("reject", d.b.conn.Reject(nil))
		t.note("B-ended", d.b.isDone())
		t.note("B-receive", d.b.received(0))
	})
	add("rejected twice", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("reject", d.b.conn.Reject(nil))
		t.noteError("again", d.b.conn.Reject(nil))
	})
	add("rejected, then accepted", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.noteError("reject", d.b.conn.Reject(nil))
		t.noteError("accept", d.b.conn.Accept(transport.ConnParams{}))
	})
	add("rejected by the active side", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("reject", d.a.conn.Reject(nil))
	})
	add("request closed without an answer", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("close", d.b.conn.Close())
		_, err := d.a.outcome()
		t.note("A", err)
	})
	add("request with a queue pair closed without an answer", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.noteError("close", d.b.conn.Close())
		_, err := d.a.outcome()
		t.note("A", err)
	})
	add("nobody listens", func(t *trial) {
		a := t.resolved()
		a.createQP(nil)
		a.receive(1)
		t.noteError("connect", a.conn.Connect(transport.ConnParams{}))
		_, err := a.outcome()
		t.note("A", err)
		t.note("A-ended", a.ended())
		t.note("A-receive", a.received(0))
	})
	add("listener closed while a request is on its way", func(t *trial) {
		a := t.end("A", t.bed.A)
		ctx, cancel := t.ctx()
		defer cancel()
		l, err := t.bed.B.Listen(t.bed.Listen)
		t.must("listen", err)
		conn, err := a.dev.Resolve(ctx, l.Addr())
		t.must("resolve", err)
		a.own(conn)
		a.createQP(nil)
		t.must("connect", conn.Connect(transport.ConnParams{}))
		t.noteError("close", l.Close())
		// It may have come before, and is rejected, or find nobody who listens. Or siw's listener
		// closes between its SYN and its MPA request: then nobody answers that one, and siw's CM
		// waits for as long as it does for any answer (siw_cm.h: MPAREQ_TIMEOUT, 10 s).
		_, word := a.outcome()
		refused := word == "rejected" || word == "unreachable" || word == "timeout"
		t.note("A", map[bool]string{true: "refused", false: word}[refused])
	})
	add("Established, with a context that has ended", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := d.a.conn.Established(ctx)
		t.noteError("A", err)
	})
	add("Next, with a context that has ended", func(t *trial) {
		l, err := t.bed.B.Listen(t.bed.Listen)
		t.must("listen", err)
		t.later(l.Close)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = l.Next(ctx)
		t.noteError("next", err)
	})
	add("Next, of a closed listener", func(t *trial) {
		l, err := t.bed.B.Listen(t.bed.Listen)
		t.must("listen", err)
		t.noteError("close", l.Close())
		t.noteError("again", l.Close())
		ctx, cancel := t.ctx()
		defer cancel()
		_, err = l.Next(ctx)
		t.noteError("next", err)
	})
	add("Listen twice on one port", func(t *trial) {
		l, err := t.bed.B.Listen(t.bed.Listen)
		t.must("listen", err)
		t.later(l.Close)
		again, err := t.bed.B.Listen(l.Addr())
		t.noteError("again", err)
		if err == nil {
			t.must("close", again.Close())
		}
	})
	add("Listen again when the first has closed", func(t *trial) {
		l, err := t.bed.B.Listen(t.bed.Listen)
		t.must("listen", err)
		addr := l.Addr()
		t.must("close", l.Close())
		l, err = t.bed.B.Listen(addr)
		t.noteError("again", err)
		if err == nil {
			t.note("same-address", l.Addr() == addr)
			t.must("close", l.Close())
		}
	})
	add("Listen on what is no address", func(t *trial) {
		for _, addr := range []string{"", "nonsense", t.host(), t.host() + ":70000", t.host() + ":-1"} {
			l, err := t.bed.B.Listen(addr)
			t.note(map[bool]string{true: "good", false: "bad"}[err == nil], len(addr) > 0)
			if err == nil {
				t.must("close", l.Close())
			} else if !errors.Is(err, transport.ErrInvalid) {
				t.noteError("as", err)
			}
		}
	})
	add("Resolve, with a context that has ended", func(t *trial) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c, err := t.bed.A.Resolve(ctx, t.bed.Nobody)
		t.note("conn", c != nil)
		t.note("error", err != nil)
	})
	add("Connect without a queue pair", func(t *trial) {
		a := t.resolved()
		t.noteError("connect", a.conn.Connect(transport.ConnParams{}))
		t.note("QP", a.conn.QP() == nil)
	})
	add("Accept without a queue pair", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("accept", d.b.conn.Accept(transport.ConnParams{}))
	})
	add("Connect by the passive side", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.noteError("connect", d.b.conn.Connect(transport.ConnParams{}))
	})
	add("Accept by the active side", func(t *trial) {
		a := t.resolved()
		a.createQP(nil)
		t.noteError("accept", a.conn.Accept(transport.ConnParams{}))
	})
	add("Connect twice", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("again", d.a.conn.Connect(transport.ConnParams{}))
	})
	add("Accept twice", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		d.b.receive(1)
		t.noteError("accept", d.b.conn.Accept(transport.ConnParams{}))
		t.noteError("again", d.b.conn.Accept(transport.ConnParams{}))
		_, err := d.a.outcome()
		t.note("A", err)
		_, err = d.b.outcome()
		t.note("B", err)
	})
	add("Reject after Accept", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.noteError("accept", d.b.conn.Accept(transport.ConnParams{}))
		t.noteError("reject", d.b.conn.Reject(nil))
		_, err := d.a.outcome()
		t.note("A", err)
	})
	add("two queue pairs", func(t *trial) {
		a := t.resolved()
		a.createQP(nil)
		_, err := a.conn.CreateQP(a.config())
		t.noteError("second", err)
		t.note("same", a.conn.QP() == a.qp)
	})
	add("queue pair after the request", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		_, err := d.a.conn.CreateQP(d.a.config())
		t.noteError("second", err)
	})
	add("queue pair without a domain", func(t *trial) {
		a := t.resolved()
		cfg := a.config()
		cfg.PD = nil
		_, err := a.conn.CreateQP(cfg)
		t.noteError("create", err)
		cfg = a.config()
		cfg.SendCQ = nil
		_, err = a.conn.CreateQP(cfg)
		t.noteError("without-CQ", err)
	})
	add("states on the way", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.note("A-asked", stateWord(d.a.qp))
		d.b.createQP(nil)
		d.b.receive(1)
		t.note("B-made", stateWord(d.b.qp))
		t.must("accept", d.b.conn.Accept(transport.ConnParams{}))
		_, err := d.a.outcome()
		t.note("A", err)
		t.note("A-up", stateWord(d.a.qp))
		_, err = d.b.outcome()
		t.note("B", err)
		t.note("B-up", stateWord(d.b.qp))
		t.note("A-err", errorWord(d.a.conn.Err()))
	})
	add("queue pair of the active side failed before the answer", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.must("fail", d.a.qp.Fail())
		t.note("A-failed", stateWord(d.a.qp))
		// On siw the connection is up with this call, and may have ended when it returns.
		word := errorWord(d.b.conn.Accept(transport.ConnParams{}))
		t.note("accept", map[bool]string{true: "ok", false: word}[word == "ok" || word == "disconnected"])
		_, err := d.a.outcome()
		t.note("A", err)
		t.note("A-state", stateWord(d.a.qp))
		t.noteError("close", d.a.conn.Close()) // only now rxe's peer hears of it
		_, err = d.b.outcome()
		t.note("B", err)
		t.note("B-ended", d.b.until(d.b.isDone))
		t.note("B-state", stateWord(d.b.qp))
	})
	add("queue pair of the passive side failed before the answer", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		d.b.createQP(nil)
		t.must("fail", d.b.qp.Fail())
		t.note("B-failed", stateWord(d.b.qp))
		t.noteError("accept", d.b.conn.Accept(transport.ConnParams{}))
		_, err := d.b.outcome()
		t.note("B", err)
		t.note("B-state", stateWord(d.b.qp))
		t.noteError("again", d.b.conn.Accept(transport.ConnParams{}))
		t.noteError("close", d.b.conn.Close())
		_, err = d.a.outcome()
		t.note("A", err)
		t.note("A-state", stateWord(d.a.qp))
	})
	add("Established twice", func(t *trial) {
		a, _ := t.pair()
		info, err := a.outcome()
		t.note("A", err)
		t.note("same-depth", info.InitiatorDepth == a.info.InitiatorDepth)
	})
	for _, d := range []struct {
		name   string
		pa, pb transport.ConnParams
	}{
		{"by default", transport.ConnParams{}, transport.ConnParams{}},
		{"A asks for 4 and 6", transport.ConnParams{InitiatorDepth: 4, ResponderResources: 6}, transport.ConnParams{}},
		{"B has 5 and 3", transport.ConnParams{}, transport.ConnParams{InitiatorDepth: 5, ResponderResources: 3}},
		{"A asks for 8 and 2, B has 4 and 4", transport.ConnParams{InitiatorDepth: 8, ResponderResources: 2}, transport.ConnParams{InitiatorDepth: 4, ResponderResources: 4}},
		{"A asks for none", transport.ConnParams{InitiatorDepth: -1, ResponderResources: -1}, transport.ConnParams{}},
		{"B has none", transport.ConnParams{}, transport.ConnParams{InitiatorDepth: -1, ResponderResources: -1}},
		{"A asks for 1000 each", transport.ConnParams{InitiatorDepth: 1000, ResponderResources: 1000}, transport.ConnParams{}},
	} {
		add("depths, "+d.name, func(t *trial) {
			dl := t.ask(d.pa)
			r := dl.b.conn.Request()
			t.note("request", fmt.Sprintf("%d/%d", r.InitiatorDepth, r.ResponderResources))
			dl.b.createQP(nil)
			dl.b.receive(1)
			t.must("accept", dl.b.conn.Accept(d.pb))
			a, err := dl.a.outcome()
			t.note("A", err)
			b, err := dl.b.outcome()
			t.note("B", err)
			t.note("A-depths", fmt.Sprintf("%d/%d", a.InitiatorDepth, a.ResponderResources))
			t.note("B-depths", fmt.Sprintf("%d/%d", b.InitiatorDepth, b.ResponderResources))
		})
	}
	return rows
}

// disconnectRows are about the end of connections.
func disconnectRows() []Row {
	var rows []Row
	add := func(name string, run func(t *trial)) {
		rows = append(rows, Row{Group: "disconnect", Name: name, run: run})
	}
	both := func(t *trial, a, b *end) {
		t.note("A", a.ended())
		t.note("B", b.ended())
		t.note("A-state", stateWord(a.qp))
		t.note("B-state", stateWord(b.qp))
	}
	add("by the active side", func(t *trial) {
		a, b := t.pair()
		t.noteError("disconnect", a.conn.Disconnect())
		t.note("at-once", a.isDone())
		both(t, a, b)
	})
	add("by the passive side", func(t *trial) {
		a, b := t.pair()
		t.noteError("disconnect", b.conn.Disconnect())
		t.note("at-once", b.isDone())
		both(t, a, b)
	})
	add("by both", func(t *trial) {
		a, b := t.pair()
		t.noteError("A-disconnect", a.conn.Disconnect())
		t.noteError("B-disconnect", b.conn.Disconnect())
		both(t, a, b)
	})
	add("twice", func(t *trial) {
		a, b := t.pair()
		t.noteError("disconnect", a.conn.Disconnect())
		t.noteError("again", a.conn.Disconnect())
		both(t, a, b)
	})
	add("by closing", func(t *trial) {
		a, b := t.pair()
		t.noteError("close", a.conn.Close())
		t.note("A", a.ended())
		t.note("B", b.ended())
		t.note("B-receive", b.received(0))
	})
	add("by closing, on the passive side", func(t *trial) {
		a, b := t.pair()
		t.noteError("close", b.conn.Close())
		t.note("A", a.ended())
		t.note("B", b.ended())
	})
	add("right behind a SEND", func(t *trial) {
		a, b := t.pair()
		a.post(a.list(signaled(1, transport.OpSend), a.at(sourceAt, 5)))
		t.note("A", a.status(1))
		t.noteError("disconnect", a.conn.Disconnect())
		t.note("B", b.ended())
	})
	add("of what never was connected", func(t *trial) {
		a := t.resolved()
		t.noteError("disconnect", a.conn.Disconnect())
		t.note("ended", a.isDone())
	})
	add("while the request is under way", func(t *trial) {
		d := t.ask(transport.ConnParams{})
		t.noteError("disconnect", d.a.conn.Disconnect())
		t.note("A", d.a.ended())
		_, err := d.a.outcome()
		t.note("established", err)
	})
	add("AfterDone of what has ended", func(t *trial) {
		a, _ := t.pair()
		t.must("disconnect", a.conn.Disconnect())
		a.ended()
		called := 0
		a.conn.AfterDone(func() { called++ })
		t.note("called", called)
	})
	add("AfterDone is called once, the last one given", func(t *trial) {
		a, b := t.pair()
		first, second := make(chan struct{}, 8), make(chan struct{}, 8)
		a.conn.AfterDone(func() { first <- struct{}{} })
		a.conn.AfterDone(func() { second <- struct{}{}; a.cq.Wake() })
		t.must("disconnect", b.conn.Disconnect())
		a.until(func() bool { return len(second) > 0 })
		t.must("disconnect", a.conn.Disconnect())
		t.note("first", len(first))
		t.note("second", len(second))
	})
	add("Established after the end", func(t *trial) {
		a, b := t.pair()
		t.must("disconnect", b.conn.Disconnect())
		t.note("ended", a.ended())
		_, err := a.outcome()
		t.note("A", err)
	})
	add("Close of what never was connected", func(t *trial) {
		a := t.resolved()
		t.noteError("close", a.conn.Close())
		t.noteError("again", a.conn.Close())
		_, err := a.conn.CreateQP(a.config())
		t.noteError("queue-pair", err)
		t.noteError("connect", a.conn.Connect(transport.ConnParams{}))
	})
	return rows
}
