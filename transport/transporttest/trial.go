package transporttest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"rdmarw/transport"
)

// How long is waited for what must come, and for what must not. A device that the
// suite runs on may be emulated, and be asked by a machine that has other things to do.
const (
	patience = 20 * time.Second
	silence  = 300 * time.Millisecond
)

// trial is one run of one row: what it made, and what it noted.
type trial struct {
	bed    Bed
	notes  []string
	broken []string
	ends   []*end
	undo   []func() error // last first
}

// impossible ends a trial that can't go on.
type impossible struct{ why string }

// cannot ends the trial: something that every device must do was not done.
func (t *trial) cannot(format string, args ...any) {
	panic(impossible{fmt.Sprintf(format, args...)})
}

// must ends the trial if there is an error.
func (t *trial) must(what string, err error) {
	if err != nil {
		t.cannot("%s: %v", what, err)
	}
}

// note records a value under a name.
func (t *trial) note(name string, value any) {
	t.notes = append(t.notes, fmt.Sprintf("%s=%v", name, value))
}

// noteError records an error by the contract's word. One that the contract has no word for
// must not be.
func (t *trial) noteError(name string, err error) {
	word := errorWord(err)
	t.note(name, word)
	if strings.HasPrefix(word, foreign) {
		t.violate("an error that is none of the contract's: %v", err)
	}
}

// violate records what must not happen on any device.
func (t *trial) violate(format string, args ...any) {
	t.broken = append(t.broken, fmt.Sprintf(format, args...))
}

// later has something closed at the end, before what was made before it.
func (t *trial) later(close func() error) { t.undo = append(t.undo, close) }

func (t *trial) carryOut(run func(*trial)) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case impossible:
			t.violate("%s", p.why)
		default:
			panic(p)
		}
	}()
	run(t)
}

// finish closes everything and checks what holds on every device.
func (t *trial) finish() {
	for i := len(t.undo) - 1; i >= 0; i-- {
		if err := t.undo[i](); err != nil {
			t.violate("closing: %v", err)
		}
	}
	for _, e := range t.ends {
		e.checkMemory()
		e.checkCompletions()
	}
	for i := len(t.ends) - 1; i >= 0; i-- {
		t.ends[i].close()
	}
	if t.bed.Misuse != nil {
		if err := t.bed.Misuse(); err != nil {
			t.violate("misuse: %v", err)
		}
	}
	if err := t.bed.Close(); err != nil {
		t.violate("closing the bed: %v", err)
	}
}

// ctx is a context that ends when patience does.
func (t *trial) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// pairing says how two ends are connected. The zero value is a connection without
// special wishes.
type pairing struct {
	a, b     func(*transport.QPConfig) // change what the queue pairs are made with
	pa, pb   transport.ConnParams
	receives int // that B posts before the connection is up; negative: none, zero: 4
}

// pair makes two ends and connects them, with receives posted at B.
func (t *trial) pair() (a, b *end) { return t.paired(pairing{}) }

func (t *trial) paired(p pairing) (a, b *end) {
	a, b = t.end("A", t.bed.A), t.end("B", t.bed.B)
	t.connect(a, b, p)
	return a, b
}

// connect connects two ends. A is the active one.
func (t *trial) connect(a, b *end, p pairing) {
	ctx, cancel := t.ctx()
	defer cancel()
	l, err := b.dev.Listen(t.bed.Listen)
	t.must("listen", err)
	defer func() { t.must("close the listener", l.Close()) }()
	conn, err := a.dev.Resolve(ctx, l.Addr())
	t.must("resolve", err)
	a.own(conn)
	a.createQP(p.a)
	t.must("connect", conn.Connect(p.pa))
	conn, err = l.Next(ctx)
	t.must("next", err)
	b.own(conn)
	b.createQP(p.b)
	if n := p.receives; n >= 0 {
		if n == 0 {
			n = 4
		}
		b.receive(n)
	}
	t.must("accept", b.conn.Accept(p.pb))
	a.info, err = a.conn.Established(ctx)
	t.must("A established", err)
	b.info, err = b.conn.Established(ctx)
	t.must("B established", err)
}

// host is the host that B listens on.
func (t *trial) host() string {
	host, _, err := net.SplitHostPort(t.bed.Listen)
	t.must("the bed's address", err)
	return host
}
