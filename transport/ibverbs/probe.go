//go:build ibverbs && linux && cgo

package ibverbs

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"rdmarw/transport"
)

// Probe finds out what a device really does, by doing it on connections of the device
// with itself: it needs an IP address on the device's network device, some hundred
// kilobytes of locked memory, and a fraction of a second. It is asked for, never done by
// [Open], which is to have no effects. The answer is kept for the process, until the
// device is removed, and devices that are opened afterwards believe it.
//
// Nothing is tried that is known to do harm: no window is invalidated twice (rxe
// in Linux 6.12 crashes), and where the kernel or the provider doesn't offer an operation
// it is not posted. Errors are those of Open, of connecting, and ctx's; a probe that
// fails in part tells nothing.
func Probe(ctx context.Context, name string) (Probed, error) {
	dev, err := Open(name)
	if err != nil {
		return Probed{}, err
	}
	d := dev.(*device)
	defer d.Close()
	if p, ok := cachedProbe(d.name); ok {
		return p, nil
	}
	addr, err := d.ownAddress()
	if err != nil {
		return Probed{}, err
	}
	p := &prober{d: d, addr: addr}
	for _, step := range []func(context.Context) error{p.order, p.batch, p.windows, p.remoteInvalidation, p.sacrificeMR, p.localInvalidationOfMR} {
		if err := step(ctx); err != nil {
			return Probed{}, fmt.Errorf("probe: %w", err)
		}
	}
	cacheProbe(d.name, p.found)
	return p.found, nil
}

func (d *device) ownAddress() (string, error) {
	for _, a := range d.info.Addrs {
		if !a.IsLinkLocalUnicast() {
			return a.String(), nil
		}
	}
	return "", &transport.Error{Op: "probe", Device: d.name, WR: -1, Err: transport.ErrUnreachable,
		Detail: "its network device has no IP address to connect to"}
}

// probes are what was found out, for as long as the process lives and the device is
// there.
var probes struct {
	mu     sync.Mutex
	byName map[string]Probed
}

func cachedProbe(name string) (Probed, bool) {
	probes.mu.Lock()
	defer probes.mu.Unlock()
	p, ok := probes.byName[name]
	return p, ok
}

func cacheProbe(name string, p Probed) {
	probes.mu.Lock()
	defer probes.mu.Unlock()
	if probes.byName == nil {
		probes.byName = make(map[string]Probed)
	}
	probes.byName[name] = p
}

func forgetProbe(name string) {
	probes.mu.Lock()
	defer probes.mu.Unlock()
	delete(probes.byName, name)
}

type prober struct {
	d     *device
	addr  string
	found Probed
}

// again opens the device with other capabilities.
func (p *prober) again(edit func(*device)) (*device, error) {
	o, err := Open(p.d.name)
	if err != nil {
		return nil, err
	}
	d := o.(*device)
	edit(d)
	return d, nil
}

// on runs a step on a connection of its own.
func (p *prober) on(ctx context.Context, d *device, step func(a, b *probeEnd) error) (err error) {
	var a, b probeEnd
	defer func() { err = errors.Join(err, a.close(), b.close()) }()
	for _, e := range []*probeEnd{&a, &b} {
		if err := e.open(d); err != nil {
			return err
		}
	}
	if err := connectProbe(ctx, p.addr, &a, &b); err != nil {
		return err
	}
	return step(&a, &b)
}

func outcome(ok bool) Outcome {
	if ok {
		return Works
	}
	return Fails
}

// order looks whether a WRITE overtakes a READ.
func (p *prober) order(ctx context.Context) error {
	d, err := p.again(func(d *device) { d.quirk.unordered = false })
	if err != nil {
		return err
	}
	defer d.Close()
	return p.on(ctx, d, func(a, b *probeEnd) error {
		reg, err := b.expose(probeSize/2, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		if err != nil {
			return err
		}
		defer reg.Close()
		ordered := true
		for range 8 {
			a.post(transport.WR{Cookie: 1, Op: transport.OpRead, NumSGE: 1, RemoteAddr: b.mem.Addr(), RKey: reg.RKey(0)}, a.sge(probeSize/2))
			a.post(transport.WR{Cookie: 2, Op: transport.OpWrite, NumSGE: 1, RemoteAddr: b.mem.Addr(), RKey: reg.RKey(0)}, a.sge(8))
			first, ok := a.next(ctx)
			second, ok2 := a.next(ctx)
			if !ok || !ok2 || first.Status != transport.StatusOK || second.Status != transport.StatusOK {
				return errors.Join(ctx.Err(), first.Status, second.Status)
			}
			ordered = ordered && first.Cookie == 1
		}
		p.found.InOrder = outcome(ordered)
		return nil
	})
}

// batch looks whether what is posted by ibv_wr_* arrives whole.
func (p *prober) batch(ctx context.Context) error {
	if !p.d.batchOffered {
		return nil
	}
	d, err := p.again(func(d *device) { d.caps.AtomicPost = true })
	if err != nil {
		return err
	}
	defer d.Close()
	return p.on(ctx, d, func(a, b *probeEnd) error {
		send := transport.WR{Op: transport.OpSend, NumSGE: 1}
		if n := a.post(transport.WR{Op: transport.OpInvalid}, a.sge(1)); n != 0 {
			p.found.BatchPosting = Fails
			return nil
		}
		a.post(send, a.sge(10))
		send.NumSGE = 2
		a.post(send, a.sge(10), a.sge(14))
		send.NumSGE, send.Flags = 1, transport.Inline
		a.post(send, a.sge(30))
		good := true
		for _, want := range []uint32{10, 24, 30} {
			c, ok := b.next(ctx)
			good = good && ok && c.Status == transport.StatusOK && c.ByteLen == want
		}
		p.found.BatchPosting = outcome(good)
		return ctx.Err()
	})
}

func (p *prober) hasWindows() bool { return p.d.caps.Windows != transport.NoWindows }

// windows binds a window, writes through it, and invalidates it from its own side.
func (p *prober) windows(ctx context.Context) error {
	if !p.hasWindows() {
		return nil
	}
	d, err := p.again(func(d *device) { d.caps.LocalInv[transport.Window] = works })
	if err != nil {
		return err
	}
	defer d.Close()
	return p.on(ctx, d, func(a, b *probeEnd) error {
		w, key, err := b.bind(ctx)
		if err != nil || w == nil {
			p.found.BindWindow = Fails
			return err
		}
		defer w.Close()
		write := transport.WR{Op: transport.OpWrite, NumSGE: 1, RemoteAddr: b.mem.Addr(), RKey: w.RKey(key)}
		a.post(write, a.sge(8))
		c, ok := a.next(ctx)
		p.found.BindWindow = outcome(ok && c.Status == transport.StatusOK)
		if p.found.BindWindow != Works {
			return ctx.Err()
		}
		// It is valid, and no peer that could have invalidated it before knows it.
		b.post(w.AppendInvalid(nil, key)[0])
		if c, ok = b.next(ctx); !ok || c.Status != transport.StatusOK {
			p.found.LocalInvWindow = Fails
			return ctx.Err()
		}
		a.post(write, a.sge(8))
		c, ok = a.next(ctx)
		p.found.LocalInvWindow = outcome(ok && c.Status == transport.StatusRemoteAccess)
		return ctx.Err()
	})
}

// remoteInvalidation has the peer invalidate a window.
func (p *prober) remoteInvalidation(ctx context.Context) error {
	if p.found.BindWindow != Works || !p.d.caps.SendWithInv {
		return nil
	}
	return p.on(ctx, p.d, func(a, b *probeEnd) error {
		w, key, err := b.bind(ctx)
		if err != nil || w == nil {
			return err
		}
		defer w.Close()
		a.post(transport.WR{Op: transport.OpSendWithInv, RKey: w.RKey(key)})
		c, ok := b.next(ctx)
		p.found.ReportsInv = outcome(ok && c.Flags&transport.WithInv != 0 && c.InvKey == w.RKey(key))
		if sent, ok := a.next(ctx); !ok || sent.Status != transport.StatusOK || c.Status != transport.StatusOK {
			p.found.SendWithInvWindow = Fails
			return ctx.Err()
		}
		a.post(transport.WR{Op: transport.OpWrite, NumSGE: 1, RemoteAddr: b.mem.Addr(), RKey: w.RKey(key)}, a.sge(8))
		c, ok = a.next(ctx)
		p.found.SendWithInvWindow = outcome(ok && c.Status == transport.StatusRemoteAccess)
		return ctx.Err()
	})
}

// sacrificeMR has the peer invalidate an MR that nobody needs any more. Where that
// works it is dead for good: user space has no work request that revives it.
func (p *prober) sacrificeMR(ctx context.Context) error {
	if !p.d.caps.SendWithInv {
		return nil
	}
	return p.on(ctx, p.d, func(a, b *probeEnd) error {
		reg, err := b.expose(64, transport.LocalWrite|transport.RemoteWrite|transport.RemoteRead)
		if err != nil {
			return err
		}
		defer reg.Close()
		a.post(transport.WR{Op: transport.OpSendWithInv, RKey: reg.RKey(0)})
		if c, ok := b.next(ctx); !ok || c.Status != transport.StatusOK {
			p.found.SendWithInvMR = Fails // refused, at the price of the connection
			return ctx.Err()
		}
		a.next(ctx)
		a.post(transport.WR{Op: transport.OpRead, NumSGE: 1, RemoteAddr: b.mem.Addr(), RKey: reg.RKey(0)}, a.sge(8))
		c, ok := a.next(ctx)
		p.found.SendWithInvMR = outcome(!ok || c.Status != transport.StatusOK)
		return ctx.Err()
	})
}

// localInvalidationOfMR posts a LOCAL_INV of an MR. Not on iWARP: siw's provider looks
// operations up in a table without bounds.
func (p *prober) localInvalidationOfMR(ctx context.Context) error {
	if p.d.caps.Protocol == transport.IWARP || !p.hasWindows() {
		return nil
	}
	d, err := p.again(func(d *device) { d.caps.LocalInv[transport.Window] = works })
	if err != nil {
		return err
	}
	defer d.Close()
	return p.on(ctx, d, func(a, b *probeEnd) error {
		reg, err := b.expose(64, transport.LocalWrite|transport.RemoteWrite)
		if err != nil {
			return err
		}
		defer reg.Close()
		// The C side knows windows only, so the MR goes in as one.
		mw := zeroed[C.struct_ibv_mw](1)
		if mw == nil {
			return transport.ErrNoMemory
		}
		defer C.free(ptr(mw))
		mw.rkey = C.uint32_t(reg.RKey(0))
		w, err := b.pd.addWindow(mw)
		if err != nil {
			return err
		}
		defer w.forget()
		b.post(transport.WR{Op: transport.OpLocalInv, Reg: w.ID(), KeyByte: uint8(reg.RKey(0))})
		if c, ok := b.next(ctx); !ok || c.Status != transport.StatusOK {
			p.found.LocalInvMR = Fails
			return ctx.Err()
		}
		a.post(transport.WR{Op: transport.OpWrite, NumSGE: 1, RemoteAddr: b.mem.Addr(), RKey: reg.RKey(0)}, a.sge(8))
		c, ok := a.next(ctx)
		p.found.LocalInvMR = outcome(ok && c.Status == transport.StatusRemoteAccess)
		return ctx.Err()
	})
}

const (
	probeSize    = 128 << 10
	probeRecvs   = 4
	probePatient = 5 * time.Second
)

// probeEnd is one end of a connection of a probe.
type probeEnd struct {
	pd   *pd
	cq   *cq
	mem  *transport.Region
	conn transport.Conn
	qp   transport.QP
}

func (e *probeEnd) open(d *device) error {
	p, err := d.NewPD()
	if err != nil {
		return err
	}
	e.pd = p.(*pd)
	q, err := d.NewCQ(64)
	if err != nil {
		return err
	}
	e.cq = q.(*cq)
	access := transport.LocalWrite
	if d.caps.Windows != transport.NoWindows {
		access |= transport.BindWindow
	}
	if e.mem, err = d.NewRegion(transport.RegionConfig{Size: probeSize, Access: access}); err != nil {
		return err
	}
	return e.pd.AddRegion(e.mem)
}

func (e *probeEnd) close() error {
	var errs []error
	if e.conn != nil {
		errs = append(errs, e.conn.Close())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.mem != nil {
		errs = append(errs, e.pd.RemoveRegion(e.mem), e.mem.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	return errors.Join(errs...)
}

func (e *probeEnd) createQP(c transport.Conn) (err error) {
	e.conn = c
	e.qp, err = c.CreateQP(transport.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, QueueCaps: transport.QueueCaps{
		MaxSendWR: 8, MaxRecvWR: probeRecvs, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: min(64, e.pd.dev.caps.MaxInline)}})
	if err != nil {
		return err
	}
	var wrs [probeRecvs]transport.RecvWR
	for i := range wrs {
		wrs[i].NumSGE = 1
	}
	_, err = e.qp.PostRecv(wrs[:], []transport.SGE{e.sge(1024)})
	return err
}

func connectProbe(ctx context.Context, addr string, a, b *probeEnd) error {
	l, err := b.pd.dev.Listen(net.JoinHostPort(addr, "0"))
	if err != nil {
		return err
	}
	defer l.Close()
	active, err := a.pd.dev.Resolve(ctx, l.Addr())
	if err != nil {
		return err
	}
	if err := a.createQP(active); err != nil {
		return err
	}
	// Who is refused something is not to wait for long.
	params := transport.ConnParams{RetryCount: 2, RNRRetryCount: 2}
	if err := active.Connect(params); err != nil {
		return err
	}
	passive, err := l.Next(ctx)
	if err != nil {
		return err
	}
	if err := b.createQP(passive); err != nil {
		return err
	}
	if err := passive.Accept(params); err != nil {
		return err
	}
	for _, e := range []*probeEnd{a, b} {
		if _, err := e.conn.Established(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *probeEnd) sge(n uint32) transport.SGE {
	return transport.SGE{Addr: e.mem.Addr(), Len: n, LKey: e.pd.table.View().Lookup(e.mem.ID()).LKey}
}

// post posts a request, signaled, and returns how many were accepted.
func (e *probeEnd) post(wr transport.WR, sges ...transport.SGE) int {
	wr.Flags |= transport.Signaled
	n, _ := e.qp.PostSend([]transport.WR{wr}, sges)
	return n
}

// next waits for a completion, for a while.
func (e *probeEnd) next(ctx context.Context) (transport.Completion, bool) {
	var c [1]transport.Completion
	for deadline := time.Now().Add(probePatient); ctx.Err() == nil && time.Now().Before(deadline); {
		if n, err := e.cq.Poll(c[:]); n > 0 && err == nil {
			return c[0], true
		}
		time.Sleep(50 * time.Microsecond)
	}
	return transport.Completion{}, false
}

// expose registers the first n bytes.
func (e *probeEnd) expose(n uint32, access transport.Access) (transport.Registration, error) {
	r, err := e.pd.NewRegistration(transport.SyncMR, 0)
	if err != nil {
		return nil, err
	}
	if _, err := r.Map(transport.Mapping{List: []transport.Piece{e.mem.Piece(0, n)}, Access: access}); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// bind makes a window and binds it over some of the memory; without error, nil means
// that the device refused.
func (e *probeEnd) bind(ctx context.Context) (_ transport.Registration, key uint8, err error) {
	w, err := e.pd.NewRegistration(transport.Window, 0)
	if err != nil {
		return nil, 0, nil
	}
	if _, err := w.Map(transport.Mapping{List: []transport.Piece{e.mem.Piece(0, 64)}, Access: transport.RemoteWrite | transport.RemoteRead}); err != nil {
		return nil, 0, errors.Join(err, w.Close())
	}
	key = w.KeyByte() + 1
	e.post(w.AppendValid(nil, key)[0])
	if c, ok := e.next(ctx); !ok || c.Status != transport.StatusOK {
		return nil, 0, errors.Join(ctx.Err(), w.Close())
	}
	return w, key, nil
}
