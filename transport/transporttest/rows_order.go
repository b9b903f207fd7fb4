package transporttest

import (
	"fmt"

	"rdmarw/transport"
)

// depths connects with READ depths, as asked for by A for its READs and by B for what it
// answers.
func depths(ask, offer int) pairing {
	return pairing{pa: transport.ConnParams{InitiatorDepth: ask}, pb: transport.ConnParams{ResponderResources: offer}}
}

// readRows are about how many READs are outstanding.
func readRows() []Row {
	// burst posts READs at once, and an atomic among them if wanted.
	burst := func(t *trial, p pairing, reads int) {
		a, b := t.paired(p)
		x := b.expose(reads*16, readable)
		a.mayChange(sinkAt, reads*16)
		var wrs []transport.WR
		for i := range reads {
			wr := a.list(x.targets(signaled(uint64(i+1), transport.OpRead)), a.sink(sinkAt+16*i, 16))
			wr.RemoteAddr += uint64(16 * i)
			wrs = append(wrs, wr)
		}
		n, err := a.try(wrs...)
		t.note("depth", a.info.InitiatorDepth)
		t.note("accepted", n)
		t.noteError("post", err)
		if err != nil {
			return
		}
		ok := 0
		for i := range reads {
			if a.status(uint64(i+1)) == "ok" {
				ok++
			}
		}
		t.note("ok", ok)
		t.note("data", a.holds(sinkAt, 16*reads, b, exposedAt))
	}
	rows := []Row{}
	for _, d := range []struct {
		name             string
		ask, offer, many int
	}{
		{"1 READ, depth 1", 1, 1, 1},
		{"8 READs, depth 1", 1, 1, 8},
		{"8 READs, depth 2", 2, 2, 8},
		{"8 READs, depth 8", 8, 8, 8},
		{"9 READs, depth 8", 8, 8, 9},
		{"31 READs, depth 4", 4, 4, 31},
		{"8 READs, asked for 8, offered 3", 8, 3, 8},
		{"8 READs, asked for 3, offered 8", 3, 8, 8},
		{"READ, asked for depth 0", -1, 8, 1},
		{"READ, offered depth 0", 8, -1, 1},
	} {
		rows = append(rows, Row{Group: "READ depth", Name: d.name, run: func(t *trial) { burst(t, depths(d.ask, d.offer), d.many) }})
	}
	return append(rows,
		Row{Group: "READ depth", Name: "FETCH_ADD, depth 0", needs: needAtomics, run: func(t *trial) {
			a, b := t.paired(depths(-1, 4))
			x := b.expose(8, transport.LocalWrite|transport.RemoteAtomic)
			_, err := a.try(a.list(x.targets(signaled(1, transport.OpFetchAdd)), a.sink(sinkAt, 8)))
			t.noteError("post", err)
		}},
		Row{Group: "READ depth", Name: "WRITE and SEND, depth 0", run: func(t *trial) {
			a, b := t.paired(depths(-1, -1))
			x := b.expose(8, writable)
			a.post(a.list(x.targets(signaled(1, transport.OpWrite)), a.at(sourceAt, 8)), signaled(2, transport.OpSend))
			t.note("A", a.status(1))
			t.note("A-next", a.status(2))
			t.note("B", b.received(0))
		}},
		Row{Group: "READ depth", Name: "READs of both ends at once", run: func(t *trial) {
			a, b := t.paired(pairing{pa: transport.ConnParams{InitiatorDepth: 2, ResponderResources: 2}})
			a.sync(100)
			t.note("B", b.received(0))
			xa, xb := a.expose(64, readable), b.expose(64, readable)
			for _, p := range []struct {
				e *end
				x exposed
			}{{a, xb}, {b, xa}} {
				p.e.mayChange(sinkAt, 64)
				var wrs []transport.WR
				for i := range 4 {
					wr := p.e.list(p.x.targets(signaled(uint64(i+1), transport.OpRead)), p.e.sink(sinkAt+16*i, 16))
					wr.RemoteAddr += uint64(16 * i)
					wrs = append(wrs, wr)
				}
				p.e.post(wrs...)
			}
			for i := range 4 {
				t.note("A", a.status(uint64(i+1)))
				t.note("B", b.status(uint64(i+1)))
			}
			t.note("data", a.holds(sinkAt, 64, b, exposedAt) && b.holds(sinkAt, 64, a, exposedAt))
		}},
		Row{Group: "READ depth", Name: "READ into 2 SGEs", run: func(t *trial) { readInto(t, 2) }},
		Row{Group: "READ depth", Name: "READ into the most SGEs", run: func(t *trial) { readInto(t, 0) }},
		Row{Group: "READ depth", Name: "READ into one SGE too many", run: func(t *trial) { readInto(t, -1) }},
	)
}

// readInto reads 4 bytes into each of so many SGEs; 0 are as many as a READ may have, -1
// one more.
func readInto(t *trial, sges int) {
	most := t.bed.A.Caps().MaxSendSGE
	a, b := t.paired(pairing{a: func(c *transport.QPConfig) { c.MaxSendSGE = most }})
	limit := a.dev.Caps().ReadSGEs(a.qp.Granted().MaxSendSGE)
	switch sges {
	case 0:
		sges = limit
	case -1:
		sges = limit + 1
	}
	x := b.expose(4*sges, readable)
	a.mayChange(sinkAt, 8*sges)
	var list []transport.SGE
	for i := range sges {
		list = append(list, a.sink(sinkAt+8*i, 4))
	}
	_, err := a.try(a.list(x.targets(signaled(1, transport.OpRead)), list...))
	t.note("sges", sges)
	t.noteError("post", err)
	if err != nil {
		return
	}
	t.note("A", a.status(1))
	right := true
	for i := range sges {
		right = right && a.holds(sinkAt+8*i, 4, b, exposedAt+4*i)
	}
	t.note("data", right)
}

// orderRows are about what may be relied upon of a chain.
func orderRows() []Row {
	return []Row{
		{Group: "order", Name: "completions of WRITEs and SENDs come in order", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, writable)
			a.post(
				a.list(x.targets(signaled(1, transport.OpWrite)), a.at(sourceAt, 64)),
				signaled(2, transport.OpSend),
				a.list(x.targets(signaled(3, transport.OpWrite)), a.at(sourceAt, 8)),
				signaled(4, transport.OpSend),
			)
			t.note("order", a.sequence(4))
		}},
		{Group: "order", Name: "completions of READs come in order", run: func(t *trial) {
			a, b := t.paired(depths(2, 2))
			x := b.expose(8<<10, readable)
			a.mayChange(sinkAt, 16<<10)
			a.post(
				a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 8<<10)),
				a.list(x.targets(signaled(2, transport.OpRead)), a.sink(sinkAt+8<<10, 1)),
				a.list(x.targets(signaled(3, transport.OpRead)), a.sink(sinkAt+8<<10, 2)),
			)
			t.note("order", a.sequence(3))
		}},
		{Group: "order", Name: "a READ's completion comes before that of a WRITE behind it", run: func(t *trial) {
			a, b := t.pair()
			x, y := b.expose(4<<10, readable), b.exposeAt(exposedAt+8<<10, 64, writable)
			a.mayChange(sinkAt, 4<<10)
			a.post(
				a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 4<<10)),
				a.list(y.targets(signaled(2, transport.OpWrite)), a.at(sourceAt, 64)),
			)
			t.note("order", a.sequence(2))
		}},
		{Group: "order", Name: "a WRITE has landed when the SEND behind it is received", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10, writable)
			a.post(a.list(x.targets(transport.WR{Cookie: 1, Op: transport.OpWrite}), a.at(sourceAt, 8<<10)), signaled(2, transport.OpSend))
			t.note("B", b.received(0))
			t.note("data", b.holds(exposedAt, 8<<10, a, sourceAt))
		}},
		{Group: "order", Name: "the later of two WRITEs to one place stays", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, writable)
			a.post(
				a.list(x.targets(transport.WR{Cookie: 1, Op: transport.OpWrite}), a.at(sourceAt, 64)),
				a.list(x.targets(transport.WR{Cookie: 2, Op: transport.OpWrite}), a.at(sourceAt+64, 64)),
				signaled(3, transport.OpSend),
			)
			t.note("B", b.received(0))
			t.note("data", b.holds(exposedAt, 64, a, sourceAt+64))
		}},
		{Group: "order", Name: "a READ sees the WRITE before it", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, both)
			a.mayChange(sinkAt, 64)
			a.post(
				a.list(x.targets(transport.WR{Cookie: 1, Op: transport.OpWrite}), a.at(sourceAt, 64)),
				a.list(x.targets(signaled(2, transport.OpRead)), a.sink(sinkAt, 64)),
			)
			t.note("A", a.status(2))
			t.note("data", a.holds(sinkAt, 64, a, sourceAt))
		}},
		{Group: "order", Name: "an atomic sees the one before it", needs: needAtomics, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8, transport.LocalWrite|transport.RemoteAtomic)
			clear(b.mem.Bytes()[exposedAt:][:8])
			a.mayChange(sinkAt, 24)
			var wrs []transport.WR
			for i := range 3 {
				wr := a.list(x.targets(signaled(uint64(i+1), transport.OpFetchAdd)), a.sink(sinkAt+8*i, 8))
				wr.CompareAdd = 1
				wrs = append(wrs, wr)
			}
			a.post(wrs...)
			for i := range 3 {
				t.note("A", a.status(uint64(i+1)))
				t.note("old", a.word(sinkAt+8*i))
			}
		}},
		{Group: "order", Name: "one completion of a chain stands for all", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(256, writable)
			var wrs []transport.WR
			for i := range 16 {
				wr := a.list(x.targets(transport.WR{Cookie: uint64(i + 1), Op: transport.OpWrite}), a.at(sourceAt+16*i, 16))
				wr.RemoteAddr += uint64(16 * i)
				if i == 15 {
					wr.Flags = transport.Signaled
				}
				wrs = append(wrs, wr)
			}
			a.post(wrs...)
			t.note("A", a.status(16))
			a.sync(17)
			t.note("B", b.received(0))
			t.note("others", a.sequenceOf(func(c transport.Completion) bool { return c.Cookie < 16 }))
			t.note("data", b.holds(exposedAt, 256, a, sourceAt))
		}},
	}
}

// sequence waits for n completions and is their cookies, with statuses that aren't
// successes.
func (e *end) sequence(n int) string {
	e.until(func() bool { return len(e.got) >= n })
	return e.sequenceOf(func(transport.Completion) bool { return true })
}

// sequenceOf is those of the completions that have come and weren't taken.
func (e *end) sequenceOf(want func(transport.Completion) bool) string {
	s := ""
	for _, c := range e.got {
		if !want(c) {
			continue
		}
		if s != "" {
			s += ","
		}
		s += fmt.Sprint(c.Cookie)
		if c.Status != transport.StatusOK {
			s += ":" + statusWord(c.Status)
		}
	}
	if s == "" {
		return "none"
	}
	return s
}

// fenceRows are about requests that wait for READs and atomics before them.
func fenceRows() []Row {
	// behind posts a READ and behind it, fenced, a request that uses what it read.
	behind := func(t *trial, op transport.Opcode, flags transport.Flags) {
		const n = 4 << 10
		a, b := t.pair()
		x, y := b.expose(n, readable), b.exposeAt(exposedAt+8<<10, n, writable)
		a.mayChange(sinkAt, n)
		wr := y.targets(signaled(2, op))
		wr.Flags |= flags
		wrs := []transport.WR{a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, n)), a.list(wr, a.sink(sinkAt, n))}
		if op == transport.OpSend {
			wrs[1].NumSGE = 0
		}
		accepted, err := a.try(wrs...)
		t.note("accepted", accepted)
		t.noteError("post", err)
		t.note("A", a.status(1))
		if err != nil {
			return
		}
		t.note("A-next", a.status(2))
		if op == transport.OpWrite {
			a.sync(3)
			t.note("B", b.received(0))
			t.note("data", b.holds(exposedAt+8<<10, n, b, exposedAt))
		}
	}
	return []Row{
		{Group: "fence", Name: "WRITE of what a READ has read", run: func(t *trial) { behind(t, transport.OpWrite, transport.Fence) }},
		{Group: "fence", Name: "SEND behind a READ", run: func(t *trial) { behind(t, transport.OpSend, transport.Fence) }},
		{Group: "fence", Name: "READ", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, readable)
			a.mayChange(sinkAt, 64)
			wr := x.targets(signaled(1, transport.OpRead))
			wr.Flags |= transport.Fence
			_, err := a.try(a.list(wr, a.sink(sinkAt, 64)))
			t.noteError("post", err)
			if err == nil {
				t.note("A", a.status(1))
			}
		}},
		{Group: "fence", Name: "READ behind a READ", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, readable)
			a.mayChange(sinkAt, 128)
			wr := x.targets(signaled(2, transport.OpRead))
			wr.Flags |= transport.Fence
			n, err := a.try(a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 64)), a.list(wr, a.sink(sinkAt+64, 64)))
			t.note("accepted", n)
			t.noteError("post", err)
			t.note("A", a.status(1))
			if err == nil {
				t.note("A-next", a.status(2))
			}
		}},
		{Group: "fence", Name: "WRITE with nothing to wait for", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(64, writable)
			wr := x.targets(signaled(1, transport.OpWrite))
			wr.Flags |= transport.Fence
			a.post(a.list(wr, a.at(sourceAt, 64)))
			t.note("A", a.status(1))
			a.sync(2)
			t.note("B", b.received(0))
		}},
	}
}
