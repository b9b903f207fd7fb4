package rw_test

import (
	"context"
	"slices"

	"rdmarw/transport"
)

// witness is a device that looks on: what package rw maps and posts on the device
// below it is held against the rules (see rules_test.go), and written down. It
// believes nothing that a plan says about itself.
//
// Idle, it takes requests and completes them, and the device below never hears of
// them: plans of any size cost nothing then.
type witness struct {
	transport.Device
	idle bool

	regs     map[transport.RegistrationID]*registered
	mappings []*mapping // since somebody last cleared it
	posts    []posted
	breaches []error
	past     map[transport.RKey]bool // keys that were valid once
	refused  int                     // posts that were not taken whole

	failing func() // if not nil, called when a queue pair is about to be put into the error state
	short   uint64 // bytes that mappings cover less than they should
}

func watch(dev transport.Device, idle bool) *witness {
	return &witness{Device: dev, idle: idle, regs: make(map[transport.RegistrationID]*registered), past: make(map[transport.RKey]bool)}
}

// forget clears what was written down, not what is known of registrations.
func (w *witness) forget() { w.posts, w.mappings = nil, nil }

func (w *witness) NewPD() (transport.PD, error) {
	pd, err := w.Device.NewPD()
	if err != nil {
		return nil, err
	}
	return &witnessPD{PD: pd, w: w}, nil
}

func (w *witness) NewCQ(entries int) (transport.CQ, error) {
	cq, err := w.Device.NewCQ(entries)
	if err != nil {
		return nil, err
	}
	return &witnessCQ{CQ: cq, w: w}, nil
}

func (w *witness) Resolve(ctx context.Context, addr string) (transport.Conn, error) {
	conn, err := w.Device.Resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &witnessConn{Conn: conn, w: w}, nil
}

func (w *witness) Listen(addr string) (transport.Listener, error) {
	l, err := w.Device.Listen(addr)
	if err != nil {
		return nil, err
	}
	return &witnessListener{Listener: l, w: w}, nil
}

type witnessListener struct {
	transport.Listener
	w *witness
}

func (l *witnessListener) Next(ctx context.Context) (transport.Conn, error) {
	conn, err := l.Listener.Next(ctx)
	if err != nil {
		return nil, err
	}
	return &witnessConn{Conn: conn, w: l.w}, nil
}

type witnessPD struct {
	transport.PD
	w *witness
}

func (pd *witnessPD) Device() transport.Device { return pd.w }

func (pd *witnessPD) NewRegistration(kind transport.RegistrationKind, maxPages int) (transport.Registration, error) {
	reg, err := pd.PD.NewRegistration(kind, maxPages)
	if err != nil {
		return nil, err
	}
	r := &registered{Registration: reg, w: pd.w, maxPages: maxPages, keyByte: reg.KeyByte()}
	pd.w.regs[reg.ID()] = r
	return r, nil
}

// registered is a registration, and what the witness knows of it.
type registered struct {
	transport.Registration
	w        *witness
	maxPages int

	valid   bool
	keyByte uint8 // of the newest use
	// now is what it was last made valid with, next what was mapped since.
	now, next *mapping
	// shown: the peer has seen the key.
	shown bool
	// lasting: it is meant to outlive operations (staging memory, sinks).
	lasting bool
}

// mapping is what a registration was mapped to.
type mapping struct {
	transport.Mapping
	ext transport.Extent
	// through counts the bytes that requests moved under it.
	through uint64
	reg     *registered
}

func (r *registered) Map(m transport.Mapping) (transport.Extent, error) {
	ext, err := r.Registration.Map(m)
	if err != nil {
		return ext, err
	}
	m.List = slices.Clone(m.List)
	r.next = &mapping{Mapping: m, ext: ext, reg: r}
	r.w.mappings = append(r.w.mappings, r.next)
	r.w.checkMapping(r)
	if r.Kind() == transport.SyncMR {
		r.valid, r.now, r.shown = true, r.next, m.Access&transport.RemoteAny != 0
	}
	ext.Len -= r.w.short
	return ext, nil
}

func (r *registered) Unmap() error {
	err := r.Registration.Unmap()
	if err == nil && r.Kind() == transport.SyncMR {
		r.valid = false
	}
	return err
}

func (r *registered) Close() error {
	key := r.RKey(r.keyByte)
	err := r.Registration.Close()
	if err == nil {
		r.w.past[key] = true
		r.valid = false
		delete(r.w.regs, r.ID())
	}
	return err
}

type witnessConn struct {
	transport.Conn
	w  *witness
	qp *witnessQP
}

func (c *witnessConn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	pd := cfg.PD.(*witnessPD)
	send, recv := cfg.SendCQ.(*witnessCQ), cfg.RecvCQ.(*witnessCQ)
	cfg.PD, cfg.SendCQ, cfg.RecvCQ = pd.PD, send.CQ, recv.CQ
	qp, err := c.Conn.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	c.qp = &witnessQP{QP: qp, w: c.w, pd: pd, cq: send}
	return c.qp, nil
}

func (c *witnessConn) QP() transport.QP {
	if c.qp == nil {
		return nil
	}
	return c.qp
}

type witnessQP struct {
	transport.QP
	w  *witness
	pd *witnessPD
	cq *witnessCQ
}

func (q *witnessQP) Fail() error {
	if q.w.failing != nil {
		q.w.failing()
	}
	return q.QP.Fail()
}

func (q *witnessQP) PostSend(wrs []transport.WR, sges []transport.SGE) (int, error) {
	if q.w.idle {
		for _, wr := range wrs {
			if wr.Flags&transport.Signaled != 0 {
				q.cq.made = append(q.cq.made, transport.Completion{Cookie: wr.Cookie, QPN: q.Num()})
			}
		}
		q.judge(wrs, sges, len(wrs))
		return len(wrs), nil
	}
	n, err := q.QP.PostSend(wrs, sges)
	if n < len(wrs) {
		q.w.refused++
	}
	if n > 0 {
		q.judge(wrs, sges, n)
	}
	return n, err
}

// witnessCQ adds the completions that an idle witness makes, and sees what peers
// invalidate.
type witnessCQ struct {
	transport.CQ
	w    *witness
	made []transport.Completion
}

func (c *witnessCQ) Poll(dst []transport.Completion) (int, error) {
	n := copy(dst, c.made)
	c.made = c.made[n:]
	more, err := c.CQ.Poll(dst[n:])
	for _, comp := range dst[n : n+more] {
		if comp.Status == transport.StatusOK && comp.Flags&transport.WithInv != 0 {
			c.w.invalidatedByPeer(comp.InvKey)
		}
	}
	return n + more, err
}
