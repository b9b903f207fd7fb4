package transporttest

import (
	"encoding/binary"

	"rdmarw/transport"
)

// exposedLen is how much is exposed where the amount doesn't matter.
const exposedLen = 256

const (
	readable = transport.RemoteRead
	writable = transport.LocalWrite | transport.RemoteWrite
	both     = readable | writable
)

// aim is what A makes of a range that B exposes, in a certain way, for a request of n
// bytes.
type aim struct {
	name string
	// take makes the range, and returns address and key as A uses them.
	take func(t *trial, b *end, access transport.Access) (addr uint64, key transport.RKey, n int)
}

// offBy exposes a range and points beside it.
func offBy(start int, n int) func(*trial, *end, transport.Access) (uint64, transport.RKey, int) {
	return func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		return x.addr + uint64(int64(start)), x.key, n
	}
}

// keyed exposes a range and uses another key.
func keyed(key func(transport.RKey) transport.RKey) func(*trial, *end, transport.Access) (uint64, transport.RKey, int) {
	return func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		return x.addr, key(x.key), exposedLen
	}
}

var aims = []aim{
	{"whole range", offBy(0, exposedLen)},
	{"first byte", offBy(0, 1)},
	{"last byte", offBy(exposedLen-1, 1)},
	{"one byte over the end", offBy(0, exposedLen+1)},
	{"one byte behind the end", offBy(exposedLen, 1)},
	{"across the end", offBy(exposedLen/2, exposedLen)},
	{"one byte before the start", offBy(-1, 1)},
	{"across the start", offBy(-1, exposedLen)},
	{"around both ends", offBy(-1, exposedLen+2)},
	{"far away", offBy(1<<40, exposedLen)},
	{"address 0", func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		return 0, b.expose(exposedLen, access).key, exposedLen
	}},
	{"wraps around 2^64", func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		return ^uint64(0) - exposedLen/2 + 1, x.key, exposedLen
	}},
	{"nothing at the end", offBy(exposedLen, 0)},
	{"nothing far away", offBy(1<<40, 0)},
	{"nothing, by a key that never existed", func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		return b.mem.Addr(), 0x7fff_ff01, 0
	}},
	{"key byte plus one", keyed(func(k transport.RKey) transport.RKey { return k&^0xff | (k+1)&0xff })},
	{"key byte minus one", keyed(func(k transport.RKey) transport.RKey { return k&^0xff | (k-1)&0xff })},
	{"key byte inverted", keyed(func(k transport.RKey) transport.RKey { return k ^ 0xff })},
	{"index plus one", keyed(func(k transport.RKey) transport.RKey { return k + 1<<8 })},
	{"highest bit of the key", keyed(func(k transport.RKey) transport.RKey { return k ^ 1<<31 })},
	{"key 0", keyed(func(transport.RKey) transport.RKey { return 0 })},
	{"key of all ones", keyed(func(transport.RKey) transport.RKey { return ^transport.RKey(0) })},
	{"key of a deregistered range", func(t *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		t.must("unmap", x.reg.Unmap())
		return x.addr, x.key, exposedLen
	}},
	{"key of a closed registration", func(t *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		t.must("close", x.reg.Close())
		return x.addr, x.key, exposedLen
	}},
	{"old key after mapping again", func(t *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		b.mapped(x.reg, exposedAt, exposedLen, access)
		return x.addr, x.key, exposedLen
	}},
	{"new key after mapping again", func(t *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		x = b.mapped(x.reg, exposedAt, exposedLen, access)
		return x.addr, x.key, exposedLen
	}},
	{"overlapping registration, the other one closed", func(t *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		other := b.expose(exposedLen, access)
		x := b.expose(exposedLen, access)
		t.must("close", other.reg.Close())
		return x.addr, x.key, exposedLen
	}},
	{"key of another protection domain", func(t *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		other := t.end("C", b.dev)
		x := other.expose(exposedLen, access)
		return x.addr, x.key, exposedLen
	}},
	{"lkey of the region", func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		return b.mem.Addr() + exposedAt, transport.RKey(b.lkey()), exposedLen
	}},
	{"lkey of the registration", func(_ *trial, b *end, access transport.Access) (uint64, transport.RKey, int) {
		x := b.expose(exposedLen, access)
		return x.addr, transport.RKey(x.reg.LKey(0)), exposedLen
	}},
}

// accessRows are READs and WRITEs of ranges that are exposed, or not.
func accessRows() []Row {
	var rows []Row
	for _, op := range []transport.Opcode{transport.OpRead, transport.OpWrite} {
		for _, a := range aims {
			rows = append(rows, Row{Group: "range and key", Name: op.String() + " " + a.name, run: func(t *trial) {
				access := readable
				if op == transport.OpWrite {
					access = writable
				}
				t.reach(op, access, a.take)
			}})
		}
		for _, access := range []transport.Access{0, transport.LocalWrite, readable, writable, both} {
			rows = append(rows, Row{Group: "right", Name: op.String() + " with " + access.String(), run: func(t *trial) {
				t.reach(op, access, offBy(0, exposedLen))
			}})
		}
	}
	for _, access := range []transport.Access{readable, writable} {
		rows = append(rows, Row{Group: "right", Name: "WRITE_WITH_IMM with " + access.String(), needs: needImm, run: func(t *trial) {
			t.reach(transport.OpWriteWithImm, access, offBy(0, exposedLen))
		}})
	}
	rows = append(rows,
		Row{Group: "right", Name: "READ and WRITE of nothing, with local-read", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(exposedLen, 0)
			a.post(x.targets(signaled(1, transport.OpRead)), x.targets(signaled(2, transport.OpWrite)))
			t.note("READ", a.status(1))
			t.note("WRITE", a.status(2))
		}},
		Row{Group: "range and key", Name: "WRITE of 8 KiB one byte over the end", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10-1, writable)
			a.post(a.list(x.targets(signaled(1, transport.OpWrite)), a.at(sourceAt, 8<<10)))
			t.note("A", a.access(1, transport.OpWrite))
			a.sync(2)
			t.note("B", b.received(0))
		}},
		Row{Group: "range and key", Name: "WRITE of 8 KiB", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10, writable)
			a.post(a.list(x.targets(signaled(1, transport.OpWrite)), a.at(sourceAt, 8<<10)))
			t.note("A", a.status(1))
			a.sync(2)
			t.note("B", b.received(0))
			t.note("data", b.holds(exposedAt, 8<<10, a, sourceAt))
		}},
		Row{Group: "range and key", Name: "READ of 8 KiB", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10, readable)
			a.mayChange(sinkAt, 8<<10)
			a.post(a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 8<<10)))
			t.note("A", a.status(1))
			t.note("data", a.holds(sinkAt, 8<<10, b, exposedAt))
		}},
		Row{Group: "range and key", Name: "READ of 8 KiB one byte over the end", run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(8<<10-1, readable)
			a.post(a.list(x.targets(signaled(1, transport.OpRead)), a.sink(sinkAt, 8<<10)))
			t.note("A", a.status(1))
			t.note("B", b.received(0))
		}},
	)
	return rows
}

// sync sends an empty message, so that its receive tells that all before it was carried
// out, or else is flushed. It may be too late for it.
func (e *end) sync(cookie uint64) {
	_, _ = e.try(signaled(cookie, transport.OpSend))
}

// reach has A use what B exposes, and records: the request's status, what becomes of B's
// next receive, and which bytes changed.
func (t *trial) reach(op transport.Opcode, access transport.Access, take func(*trial, *end, transport.Access) (uint64, transport.RKey, int)) {
	a, b := t.pair()
	addr, key, n := take(t, b, access)
	wr := signaled(1, op)
	wr.RemoteAddr, wr.RKey, wr.Imm = addr, key, 7
	switch {
	case n == 0:
	case op == transport.OpRead:
		a.mayChange(sinkAt, n)
		wr = a.list(wr, a.sink(sinkAt, n))
	default:
		wr = a.list(wr, a.at(sourceAt, n))
	}
	a.post(wr)
	status := a.access(1, op)
	t.note("A", status)
	a.sync(2)
	t.note("B", b.answer(0, status))
	if n == 0 {
		return
	}
	if op == transport.OpRead {
		t.note("sink", a.changed(sinkAt, n))
	} else {
		t.note("bytes", b.changed(exposedAt, exposedLen))
	}
}

// atomicRows are CMP_SWP and FETCH_ADD.
func atomicRows() []Row {
	const start = 0x0102030405060708
	row := func(name string, op transport.Opcode, access transport.Access, change func(a, b *end, wr *transport.WR, list *[]transport.SGE)) Row {
		return Row{Group: "atomic", Name: op.String() + " " + name, needs: needAtomics, run: func(t *trial) {
			a, b := t.pair()
			x := b.expose(16, access)
			binary.NativeEndian.PutUint64(b.mem.Bytes()[exposedAt:], start)
			b.mayChange(exposedAt, 8)
			a.mayChange(sinkAt, 16)
			wr := x.targets(signaled(1, op))
			wr.CompareAdd, wr.Swap = 5, 9
			if op == transport.OpCompareSwap {
				wr.CompareAdd = start
			}
			list := []transport.SGE{a.sink(sinkAt, 8)}
			if change != nil {
				change(a, b, &wr, &list)
			}
			if _, err := a.try(a.list(wr, list...)); err != nil {
				t.noteError("post", err)
				return
			}
			status := a.status(1)
			t.note("A", status)
			a.sync(2)
			t.note("B", b.answer(0, status))
			t.note("old", a.word(sinkAt))
			t.note("new", b.word(exposedAt))
		}}
	}
	const atomic = transport.LocalWrite | transport.RemoteAtomic
	var rows []Row
	for _, op := range []transport.Opcode{transport.OpFetchAdd, transport.OpCompareSwap} {
		rows = append(rows,
			row("of 8 bytes", op, atomic, nil),
			row("without the right", op, both, nil),
			row("over the end", op, atomic, func(_, _ *end, wr *transport.WR, _ *[]transport.SGE) { wr.RemoteAddr += 16 }),
			row("of an odd address", op, atomic, func(_, _ *end, wr *transport.WR, _ *[]transport.SGE) { wr.RemoteAddr += 4 }),
			row("with another key byte", op, atomic, func(_, _ *end, wr *transport.WR, _ *[]transport.SGE) { wr.RKey ^= 1 }),
			row("with a sink of 4 bytes", op, atomic, func(a, _ *end, _ *transport.WR, list *[]transport.SGE) { (*list)[0].Len = 4 }),
			row("with a sink of 16 bytes", op, atomic, func(a, _ *end, _ *transport.WR, list *[]transport.SGE) { (*list)[0].Len = 16 }),
			row("without a sink", op, atomic, func(a, _ *end, _ *transport.WR, list *[]transport.SGE) { *list = nil }),
			row("with a sink in two parts", op, atomic, func(a, _ *end, _ *transport.WR, list *[]transport.SGE) {
				*list = []transport.SGE{a.sink(sinkAt, 4), a.sink(sinkAt+8, 4)}
			}),
			row("inline", op, atomic, func(_, _ *end, wr *transport.WR, _ *[]transport.SGE) { wr.Flags |= transport.Inline }),
		)
	}
	return append(rows,
		row("of another value", transport.OpCompareSwap, atomic, func(_, _ *end, wr *transport.WR, _ *[]transport.SGE) { wr.CompareAdd++ }),
		row("past 2^64", transport.OpFetchAdd, atomic, func(_, _ *end, wr *transport.WR, _ *[]transport.SGE) { wr.CompareAdd = ^uint64(0) }),
	)
}

// word describes 8 bytes of memory, if they have changed.
func (e *end) word(offset int) string {
	if e.changed(offset, 8) == "none" {
		return "unchanged"
	}
	v := binary.NativeEndian.Uint64(e.mem.Bytes()[offset:])
	var digits [16]byte
	const hex = "0123456789abcdef"
	for i := range digits {
		digits[i] = hex[v>>(60-4*i)&15]
	}
	return string(digits[:])
}
