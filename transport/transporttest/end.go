package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"rdmarw/transport"
)

// The memory of an end, by use. Everything is filled with a pattern, and nothing may
// change but what was opened for it.
const (
	memorySize = 64 << 10
	sourceAt   = 4 << 10  // what is sent from
	sinkAt     = 20 << 10 // what own READs write to
	sinkLen    = 16 << 10
	exposedAt  = 36 << 10 // what is exposed to the peer
	receiveAt  = 52 << 10 // receives
	receiveLen = 64
	mostSlots  = 64 // of receives
)

// firstReceive is the cookie of the first receive; those of requests are smaller.
const firstReceive = 1000

// end is one end of a connection, with all that it needs.
type end struct {
	t    *trial
	name string
	dev  transport.Device
	pd   transport.PD
	cq   transport.CQ
	mem  *transport.Region
	conn transport.Conn
	qp   transport.QP
	info transport.ConnInfo

	sinkKey  transport.LKey  // see sink
	sges     []transport.SGE // of the chain that is being built
	receives int             // posted so far
	pattern  []byte          // what the memory holds but for what is open
	open     []byte          // by byte: 1 where the memory may change
	*ledger
}

// ledger is what a CQ brings. Ends that share a CQ share it.
type ledger struct {
	got  []transport.Completion
	owed map[uint64]int // by cookie: completions that may come
}

// patterns are what the memory of ends is filled with, by name: different for each, and
// the same nowhere near.
var patterns = map[string][]byte{"A": pattern('A'), "B": pattern('B'), "C": pattern('C')}

func pattern(first byte) []byte {
	p := make([]byte, memorySize)
	for i := range p {
		p[i] = first + byte(i*7) + byte(i>>8)*31
	}
	return p
}

// end makes an end: domain, CQ and memory.
func (t *trial) end(name string, d transport.Device) *end {
	e := &end{t: t, name: name, dev: d, ledger: &ledger{owed: make(map[uint64]int)}}
	t.ends = append(t.ends, e)
	var err error
	e.pd, err = d.NewPD()
	t.must("new protection domain", err)
	e.cq, err = d.NewCQ(256)
	t.must("new CQ", err)
	access := transport.LocalWrite
	if d.Caps().Windows != transport.NoWindows {
		access |= transport.BindWindow
	}
	e.mem, err = d.NewRegion(transport.RegionConfig{Size: memorySize, Access: access})
	t.must("new region", err)
	t.must("add region", e.pd.AddRegion(e.mem))
	e.pattern, e.open = patterns[name], make([]byte, memorySize)
	copy(e.mem.Bytes(), e.pattern)
	return e
}

func (e *end) close() {
	closed := func(what string, err error) {
		if err != nil {
			e.t.violate("%s: close %s: %v", e.name, what, err)
		}
	}
	if e.cq != nil {
		closed("CQ", e.cq.Close())
	}
	if e.mem != nil {
		closed("region's key", e.pd.RemoveRegion(e.mem))
	}
	if e.pd != nil {
		closed("protection domain", e.pd.Close())
	}
	if e.mem != nil {
		closed("region", e.mem.Close())
	}
}

// own takes a connection, to be closed at the end.
func (e *end) own(c transport.Conn) {
	e.conn = c
	c.AfterDone(e.cq.Wake) // so that waiting for completions notices
	e.t.later(c.Close)
}

// config is what queue pairs are made with.
func (e *end) config() transport.QPConfig {
	caps := e.dev.Caps()
	return transport.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, QueueCaps: transport.QueueCaps{
		MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: min(4, caps.MaxSendSGE), MaxRecvSGE: min(2, caps.MaxRecvSGE),
		MaxInline: min(32, caps.MaxInline),
	}}
}

func (e *end) createQP(change func(*transport.QPConfig)) {
	cfg := e.config()
	if change != nil {
		change(&cfg)
	}
	var err error
	e.qp, err = e.conn.CreateQP(cfg)
	e.t.must("create queue pair", err)
}

// lkey is the key of the end's memory in its own domain.
func (e *end) lkey() transport.LKey { return e.pd.Regions().View().Lookup(e.mem.ID()).LKey }

// sibling is another end on the same domain, CQ and memory, without a connection yet.
func (e *end) sibling() *end {
	s := *e
	s.conn, s.qp = nil, nil
	return &s
}

// at is part of the memory as an SGE.
func (e *end) at(offset, n int) transport.SGE {
	return transport.SGE{Addr: e.mem.Addr() + uint64(offset), Len: uint32(n), LKey: e.lkey()}
}

// sink is part of the memory as an SGE that a READ can write to: on iWARP hardware under
// the key of a registration that the peer may write to.
func (e *end) sink(offset, n int) transport.SGE {
	s := e.at(offset, n)
	if e.dev.Caps().ReadSinkNeedsRemoteWrite {
		if e.sinkKey == 0 {
			e.sinkKey = e.exposeAt(sinkAt, sinkLen, writable).reg.LKey(0)
		}
		s.LKey = e.sinkKey
	}
	return s
}

// mayChange opens part of the memory.
func (e *end) mayChange(offset, n int) {
	for i := range n {
		e.open[offset+i] = 1
	}
}

// receive posts receives of one slot each.
func (e *end) receive(n int) {
	for range n {
		slot := e.receives % mostSlots
		e.mayChange(receiveAt+slot*receiveLen, receiveLen)
		e.receiveInto(e.at(receiveAt+slot*receiveLen, receiveLen))
	}
}

// receiveInto posts one receive.
func (e *end) receiveInto(sges ...transport.SGE) {
	if _, err := e.tryReceive(sges...); err != nil {
		e.t.cannot("%s: post receive: %v", e.name, err)
	}
}

func (e *end) tryReceive(sges ...transport.SGE) (int, error) {
	cookie := firstReceive + uint64(e.receives)
	n, err := e.qp.PostRecv([]transport.RecvWR{{Cookie: cookie, NumSGE: uint16(len(sges))}}, sges)
	if n > 0 {
		e.receives++
		e.owed[cookie]++
	}
	return n, err
}

// list adds SGEs to the chain that is being built, and makes a request of them.
func (e *end) list(wr transport.WR, sges ...transport.SGE) transport.WR {
	wr.FirstSGE, wr.NumSGE = uint32(len(e.sges)), uint16(len(sges))
	e.sges = append(e.sges, sges...)
	return wr
}

// try posts a chain, which may be refused.
func (e *end) try(wrs ...transport.WR) (int, error) {
	n, err := e.qp.PostSend(wrs, e.sges)
	e.sges = e.sges[:0]
	for i := range n {
		e.owed[wrs[i].Cookie]++
	}
	return n, err
}

// post posts a chain, which must be accepted.
func (e *end) post(wrs ...transport.WR) {
	if n, err := e.try(wrs...); err != nil || n != len(wrs) {
		e.t.cannot("%s: posting %v: %d of %d accepted, %v", e.name, wrs[0].Op, n, len(wrs), err)
	}
}

// poll takes what has completed.
func (e *end) poll() {
	var buf [16]transport.Completion
	for {
		n, err := e.cq.Poll(buf[:])
		e.got = append(e.got, buf[:n]...)
		if err != nil {
			e.t.cannot("%s: poll: %v", e.name, err)
		}
		if n < len(buf) {
			return
		}
	}
}

// until waits until something is so, and tells whether it is. It waits by the CQ,
// which moves a stepped simulation, and returns at once when nothing can happen there.
func (e *end) until(ready func() bool) bool { return e.untilFor(patienceContext, ready) }

func patienceContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

func silenceContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), silence)
}

func (e *end) untilFor(limit func() (context.Context, context.CancelFunc), ready func() bool) bool {
	ctx, cancel := limit()
	defer cancel()
	for {
		if e.poll(); ready() {
			return true
		}
		e.t.must("arm", e.cq.Arm())
		if e.poll(); ready() {
			return true
		}
		if err := e.cq.Wait(ctx); err != nil {
			e.poll()
			return ready()
		}
	}
}

// take takes the completion of a request out, if it is there.
func (e *end) take(cookie uint64) (transport.Completion, bool) {
	for i, c := range e.got {
		if c.Cookie == cookie && e.owed[cookie] > 0 {
			e.got = append(e.got[:i:i], e.got[i+1:]...)
			e.owed[cookie]--
			return c, true
		}
	}
	return transport.Completion{}, false
}

// wait waits for a completion, and tells whether it came.
func (e *end) wait(cookie uint64) (c transport.Completion, ok bool) {
	e.until(func() bool { c, ok = e.take(cookie); return ok })
	return c, ok
}

// status waits for a completion and is its status as a word.
func (e *end) status(cookie uint64) string {
	c, ok := e.wait(cookie)
	if !ok {
		return "never"
	}
	return statusWord(c.Status)
}

// access waits for a READ or a WRITE of the peer's memory, and is its status. On iWARP a
// WRITE is over when it was sent, and knows no answer; but if the peer's TERMINATE comes in the
// middle of that, siw says that the request was not legal. Who is first is chance: both are ok.
func (e *end) access(cookie uint64, op transport.Opcode) string {
	word := e.status(cookie)
	if e.dev.Caps().Protocol == transport.IWARP && op == transport.OpWrite && word == statusWord(transport.StatusLocalQPOp) {
		return "ok"
	}
	return word
}

// received waits for the n-th receive, from 0, and describes it: status, and for a
// success length and flags.
func (e *end) received(n int) string {
	c, ok := e.wait(firstReceive + uint64(n))
	if !ok {
		return "never"
	}
	return e.describe(c)
}

// receivedIfAny is received where it may well be that nothing comes.
func (e *end) receivedIfAny(n int) string {
	var c transport.Completion
	var ok bool
	e.untilFor(silenceContext, func() bool { c, ok = e.take(firstReceive + uint64(n)); return ok })
	if !ok {
		return "none"
	}
	return e.describe(c)
}

// answer is what the peer's n-th receive becomes after a request that ended with a status:
// a request that failed at its own end is nothing that the peer needs to hear of, but on
// iWARP, where the connection ends with it.
func (e *end) answer(n int, status string) string {
	if e.dev.Caps().Protocol != transport.IWARP && (strings.HasPrefix(status, "local-") || status == "flushed") {
		return e.receivedIfAny(n)
	}
	return e.received(n)
}

func (e *end) describe(c transport.Completion) string {
	if c.Status != transport.StatusOK {
		return statusWord(c.Status)
	}
	s := fmt.Sprintf("%dB", c.ByteLen)
	if c.Flags&transport.Receive == 0 {
		s += "+no-receive"
	}
	if c.Flags&transport.WithImm != 0 {
		s += fmt.Sprintf("+imm:%#x", c.Imm)
	}
	if c.Flags&transport.WithInv != 0 {
		s += "+inv"
	}
	return s
}

// silent tells whether no further completion comes. It takes its time: what comes later
// than that is found by the check of completions at the end, if at all.
func (e *end) silent() string {
	n := len(e.got)
	e.untilFor(silenceContext, func() bool { return len(e.got) > n })
	if len(e.got) == n {
		return "none"
	}
	var words []string
	for _, c := range e.got[n:] {
		words = append(words, fmt.Sprintf("%d:%s", c.Cookie, statusWord(c.Status)))
	}
	return strings.Join(words, ",")
}

// settle waits for n completions, and not for long.
func (e *end) settle(n int) {
	e.untilFor(silenceContext, func() bool { return len(e.got) >= n })
}

// ended waits for the end of the connection, and is what Err says then.
func (e *end) ended() string {
	if !e.until(e.isDone) {
		return "up"
	}
	return errorWord(e.conn.Err())
}

func (e *end) isDone() bool {
	select {
	case <-e.conn.Done():
		return true
	default:
		return false
	}
}

// changed describes which bytes of a range differ from the pattern.
func (e *end) changed(offset, n int) string {
	first, last, count := -1, -1, 0
	for i := offset; i < offset+n; i++ {
		if e.mem.Bytes()[i] != e.pattern[i] {
			if first < 0 {
				first = i - offset
			}
			last, count = i-offset, count+1
		}
	}
	switch {
	case first < 0:
		return "none"
	case first == 0 && last == n-1:
		return "all"
	case last-first+1 != count:
		return "scattered"
	}
	return fmt.Sprintf("[%d,+%d)", first, count)
}

// holds tells whether part of the memory holds what a part of another end's pattern is.
func (e *end) holds(offset, n int, from *end, fromOffset int) bool {
	return bytes.Equal(e.mem.Bytes()[offset:offset+n], from.pattern[fromOffset:fromOffset+n])
}

// checkMemory checks that nothing has changed but what may.
func (e *end) checkMemory() {
	if e.mem == nil {
		return
	}
	var bad []int
	mem := e.mem.Bytes()
	const part = 1 << 10
	for at := 0; at < memorySize; at += part {
		if bytes.Equal(mem[at:at+part], e.pattern[at:at+part]) {
			continue
		}
		for i := at; i < at+part; i++ {
			if mem[i] != e.pattern[i] && e.open[i] == 0 {
				bad = append(bad, i)
			}
		}
	}
	if len(bad) > 0 {
		e.t.violate("%s: %d bytes changed that nobody may change, from %d to %d", e.name, len(bad), bad[0], bad[len(bad)-1])
	}
}

// checkCompletions checks that what completed was posted, and once only.
func (e *end) checkCompletions() {
	for _, c := range e.got {
		if e.owed[c.Cookie]--; e.owed[c.Cookie] < 0 {
			e.t.violate("%s: a completion of %d that nobody expects: %s", e.name, c.Cookie, statusWord(c.Status))
		}
	}
}

// exposed is a range that the peer was told of.
type exposed struct {
	reg    transport.Registration
	addr   uint64
	key    transport.RKey
	offset int
	length int
}

// expose registers part of the exposed memory for the peer, by call.
func (e *end) expose(n int, access transport.Access) exposed { return e.exposeAt(exposedAt, n, access) }

func (e *end) exposeAt(offset, n int, access transport.Access) exposed {
	reg := e.registration(transport.SyncMR)
	return e.mapped(reg, offset, n, access)
}

func (e *end) registration(kind transport.RegistrationKind) transport.Registration {
	reg, err := e.pd.NewRegistration(kind, 16)
	e.t.must("new registration", err)
	e.t.later(reg.Close)
	return reg
}

func (e *end) mapped(reg transport.Registration, offset, n int, access transport.Access) exposed {
	ext, err := reg.Map(transport.Mapping{List: []transport.Piece{e.mem.Piece(uint64(offset), uint32(n))}, Access: access})
	e.t.must("map", err)
	if ext.Len != uint64(n) {
		e.t.cannot("map covers %d of %d bytes", ext.Len, n)
	}
	if access&(transport.RemoteWrite|transport.RemoteAtomic) != 0 {
		e.mayChange(offset, n)
	}
	return exposed{reg: reg, addr: ext.IOVA, key: reg.RKey(0), offset: offset, length: n}
}

// targets points a request at a range of the peer.
func (x exposed) targets(wr transport.WR) transport.WR {
	wr.RemoteAddr, wr.RKey = x.addr, x.key
	return wr
}

// signaled makes a signaled request.
func signaled(cookie uint64, op transport.Opcode) transport.WR {
	return transport.WR{Cookie: cookie, Op: op, Flags: transport.Signaled}
}
