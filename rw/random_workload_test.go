package rw_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// workload is random work on a stepped pair: rounds of chains from both sides, to
// memory that the other side exposes for just that. It knows what all memory should
// hold, what everything should have cost, and what should be free.
type workload struct {
	*stepped
	choose choose
	rooms  [2]room
	want   [2][]byte
	idle   [2]charges // what is charged when nothing is under way

	serial   uint64 // of the newest message or fill
	begun    map[*rw.Context]bool
	ended    map[*rw.Context]int
	receives map[*rw.Context]*receivedInto
	messages map[uint64]*message
	// broken: something was made to fail, so that errors are no surprise.
	broken bool
	// dead: so is one of the devices.
	dead bool
	// left is what couldn't end before the endpoints were closed.
	left []*work
	// closing: what is left comes back flushed.
	closing bool
	done    int // transfers that went through
}

// job is one transfer.
type job struct {
	ctx    rw.Context
	side   int
	op     rw.Op
	local  []transport.Piece
	offset uint64
	bytes  uint64
	far    []transport.Piece // of the other side
	x      *rw.Exposure      // of it; nil if there is nothing to move
}

// message is a SEND at the end of a chain, and the jobs before it.
type message struct {
	ctx    rw.Context
	side   int
	serial uint64
	local  []transport.Piece
	after  []*job
	got    bool
}

// receivedInto is a buffer for a message.
type receivedInto struct {
	ctx  rw.Context
	side int
	list []transport.Piece
}

const workloadMemory = 192 << 10

// randomConfig draws devices, pools and policies that work gets tight on.
func randomConfig(c choose, profile sim.Profile) steppedConfig {
	cfg := steppedConfig{
		profile: profile, seed: uint64(c(1<<30, "seed")), memory: workloadMemory,
		pool:     mrpool.Config{SyncMRs: 8 + c(24, "synchronous MRs")},
		queues:   transport.QueueCaps{MaxSendWR: 6 + c(60, "send queue"), MaxRecvWR: 16, MaxSendSGE: 1 + c(min(8, profile.Caps.MaxSendSGE), "SGEs")},
		depth:    1 + c(6, "READ depth"),
		isolated: c.oneIn(2, "isolated"),
		reserve:  c(3, "reserve"),
		policy: rw.Policy{
			Sink:              rw.SinkPolicy(c(4, "sink policy")),
			RegisterAbove:     []int{0, -1, 2, 5}[c(4, "register above")],
			ForceRegistration: c.oneIn(5, "force registration"),
			FeedReads:         c.oneIn(3, "feed"),
		},
	}
	if profile.Caps.FastReg.MaxPages > 0 {
		cfg.pool.FastMRs = 4 + c(12, "fast MRs")
		cfg.pool.FastPages = 1 + c(8, "pages")
	}
	if profile.Caps.Windows != transport.NoWindows {
		cfg.pool.Windows = 8 + c(16, "windows")
	}
	if cfg.policy.Sink == rw.SinkStaging {
		cfg.slots, cfg.slot = 1+c(6, "slots"), 100+c(3000, "slot size")
	}
	cfg.sinks = cfg.policy.Sink == rw.SinkPersistent
	if c.oneIn(3, "slow completions") {
		cfg.faults.Delay = func(_ *sim.QP, k uint64, _ *transport.WR) time.Duration {
			return time.Duration(k*k%7) * time.Microsecond
		}
	}
	return cfg
}

func newWorkload(t rapid.TB, c choose, cfg steppedConfig) *workload {
	w := &workload{
		stepped: newStepped(t, cfg), choose: c,
		begun: make(map[*rw.Context]bool), ended: make(map[*rw.Context]int),
		receives: make(map[*rw.Context]*receivedInto), messages: make(map[uint64]*message),
	}
	for i, e := range w.ends {
		w.serial++
		fill(e.region.Bytes(), w.serial)
		w.want[i] = bytes.Clone(e.region.Bytes())
		w.rooms[i] = room{region: e.region}
		w.idle[i] = e.charged()
	}
	return w
}

// submit begins contexts as one chain, and reports whether they were taken.
func (w *workload) submit(side int, cs ...*rw.Context) error {
	if err := w.ends[side].ep.Submit(cs...); err != nil {
		return err
	}
	for _, c := range cs {
		w.begun[c] = true
		w.ended[c] = 0
	}
	return nil
}

// collect takes in what ended, and reports whether all did.
func (w *workload) collect() bool {
	for side, e := range w.ends {
		for _, c := range e.done {
			require.True(w.t, w.begun[c], "a context came back that was not under way")
			w.ended[c]++
			require.Equal(w.t, 1, w.ended[c], "%v came back again", c.Op())
			if r := w.receives[c]; r != nil {
				w.received(side, r)
			}
		}
		clear(e.done)
		e.done = e.done[:0]
	}
	for c := range w.begun {
		if w.ended[c] == 0 && w.receives[c] == nil {
			return false
		}
	}
	for _, m := range w.messages {
		if w.ended[&m.ctx] == 1 && m.ctx.Err() == nil && !m.got && !w.broken && !w.closing {
			return false // it is on its way
		}
	}
	return true
}

// wait lets everything that was begun end. Receives may stay. It returns false if
// that can't happen before the endpoints are closed, since who is dead isn't told.
func (w *workload) wait() bool {
	if !w.until(w.collect) {
		if w.dead {
			return false
		}
		w.stuck()
	}
	for c, n := range w.ended {
		if n > 0 {
			delete(w.begun, c)
		}
	}
	return true
}

// stuck says what didn't end.
func (w *workload) stuck() {
	var open []string
	for c := range w.begun {
		if w.ended[c] == 0 {
			open = append(open, fmt.Sprintf("%v %+v", c.Op(), c.Plan()))
		}
	}
	for i, e := range w.ends {
		open = append(open, fmt.Sprintf("side %d holds %+v of %+v, failed of: %v", i, e.charged(), w.idle[i], e.ep.Err()))
	}
	require.Fail(w.t, "what was begun doesn't end:\n"+strings.Join(open, "\n"))
}

// received: a message is here, so what was before it in its chain is here too.
func (w *workload) received(side int, r *receivedInto) {
	delete(w.receives, &r.ctx)
	if r.ctx.Err() != nil {
		require.True(w.t, w.broken || w.closing, "%v", r.ctx.Err())
		region := w.ends[side].region // a message may have arrived all the same
		store(region, w.want[side], r.list, 0, bytesOf(region, r.list))
		return
	}
	region := w.ends[side].region
	data := bytesOf(region, r.list)[:8]
	m := w.messages[binary.LittleEndian.Uint64(data)]
	require.NotNil(w.t, m, "a message that nobody sent")
	require.False(w.t, m.got, "a message that came before")
	require.Equal(w.t, 8, r.ctx.Received().Len)
	m.got = true
	store(region, w.want[side], r.list, 0, data)
	for _, j := range m.after {
		if j.op == rw.Write {
			require.Equal(w.t, j.moved(w), contentOf(region, region.Bytes(), j.far, 0, j.bytes), "a message overtook a WRITE of its chain")
		}
	}
}

// moved is what a job moves.
func (j *job) moved(w *workload) []byte {
	if j.op == rw.Read {
		other := w.ends[1-j.side].region
		return contentOf(other, w.want[1-j.side], j.far, 0, j.bytes)
	}
	return contentOf(w.ends[j.side].region, w.want[j.side], j.local, j.offset, j.bytes)
}

// sink is where a job's bytes go: the side, the list and the offset in it.
func (j *job) sink() (side int, list []transport.Piece, offset uint64) {
	if j.op == rw.Read {
		return j.side, j.local, j.offset
	}
	return 1 - j.side, j.far, 0
}

// fresh fills a list with bytes that were nowhere before.
func (w *workload) fresh(side int, list []transport.Piece, n uint64) {
	w.serial++
	data := make([]byte, n)
	fill(data, w.serial)
	region := w.ends[side].region
	store(region, region.Bytes(), list, 0, data)
	store(region, w.want[side], list, 0, data)
}

// impossible are the errors of what a small endpoint can't do, before anything is
// taken.
func (w *workload) impossible(err error) bool {
	for _, e := range []error{rw.ErrTooLarge, mrpool.ErrEmpty, transport.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// newJob draws a transfer and has the other side expose memory for it. Nil: such a
// thing can't be done here. The exposure is in the list in any case.
func (w *workload) newJob(exposed *[]*exposed) *job {
	c := w.choose
	j := &job{side: c(2, "side"), op: rw.Op(1 + c(2, "READ or WRITE"))}
	other := 1 - j.side
	total := c(9000, "bytes")
	j.local = w.rooms[j.side].list(c, total)
	if len(j.local) == 0 {
		j.local = []transport.Piece{w.rooms[j.side].take(0, 0, 1)}
	}
	var length uint64
	if total > 0 && c.oneIn(3, "part") {
		j.offset = uint64(c(total, "offset"))
		length = uint64(c(total-int(j.offset)+1, "length"))
	}
	j.bytes = length
	if length == 0 {
		j.bytes = uint64(total) - j.offset
	}
	w.fresh(j.side, j.local, uint64(total))
	tr := rw.Transfer{Op: j.op, Local: j.local, Offset: j.offset, Length: length}
	if j.bytes > 0 {
		j.far = w.rooms[other].list(c, int(j.bytes)+c(100, "longer"))
		w.fresh(other, j.far, j.bytes)
		ops := mrpool.ReadSource
		if j.op == rw.Write {
			ops = mrpool.WriteSink
		}
		x := w.expose(other, j.far, ops, exposed)
		if x == nil {
			return nil
		}
		j.x = &x.x
		tr.Remote = cut(append([]transport.Remote(nil), x.x.Remotes()...), 1+c(4, "remote ranges"))
	}
	before := w.ends[j.side].charged()
	if err := w.ends[j.side].ep.Prepare(&j.ctx, tr); err != nil {
		require.True(w.t, w.impossible(err), "%v", err)
		require.Equal(w.t, before, w.ends[j.side].charged(), "what is refused takes nothing")
		return nil
	}
	return j
}

// round does some work, and checks all there is to check.
func (w *workload) round() {
	for i := range w.rooms {
		w.rooms[i].reset()
		w.ends[i].dev.forget()
	}
	var all work
	for range 1 + w.choose(5, "transfers") {
		j := w.newJob(&all.exposed)
		if w.failed() || w.dead {
			break
		}
		if j != nil {
			all.jobs = append(all.jobs, j)
		}
	}
	w.begin(&all)
	if !w.wait() {
		w.left = append(w.left, &all)
		return
	}
	// On iWARP a WRITE is done when it is sent; a protocol would hear of its arrival
	// by a message.
	w.fabric.Settle(10 * time.Millisecond)
	if !w.wait() {
		w.left = append(w.left, &all)
		return
	}
	w.settleJobs(&all)
	w.revoke(&all)
	if !w.wait() {
		return
	}
	w.settleRevocations(&all)
	if !w.failed() && !w.dead {
		w.requireIdle()
	}
	if !w.broken {
		w.requireCost(&all)
	}
	w.requireMemory()
}

// failed reports whether one of the endpoints is beyond work.
func (w *workload) failed() bool {
	failed := false
	for _, e := range w.ends {
		if err := e.ep.Err(); err != nil {
			require.True(w.t, w.broken, "an endpoint failed: %v", err)
			failed = true
		}
	}
	return failed
}

// requireIdle: everything taken was given back, and no key is alive.
func (w *workload) requireIdle() {
	for i, e := range w.ends {
		for range 8 { // what couldn't be mended at once
			if e.pool.Repair() == nil {
				break
			}
		}
		require.Equal(w.t, w.idle[i], e.charged(), "credits and pool of side %d", i)
		require.Zero(w.t, len(e.dev.living()), "keys of side %d", i)
	}
}

// requireMemory: all memory of both sides is as it should be, to the last byte.
func (w *workload) requireMemory() {
	for i, e := range w.ends {
		if got := e.region.Bytes(); !bytes.Equal(got, w.want[i]) {
			at := 0
			for got[at] == w.want[i][at] {
				at++
			}
			require.Fail(w.t, fmt.Sprintf("memory of side %d differs from byte %d on", i, at))
		}
	}
}
