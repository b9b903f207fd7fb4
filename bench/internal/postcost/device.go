//go:build ibverbs && linux && cgo

package postcost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"rdmarw/internal/rawverbs"
	"rdmarw/transport"
	"rdmarw/transport/ibverbs"
)

const (
	deviceBatches = 2001 // with 401, ratios of two runs in an emulated machine differ by 0.05
	writeSize     = 64
)

// Device measures posts of WRITEs to a real device, which is connected to itself.
// Both sides post to the same queue pair, and what they posted is waited for in
// between.
func Device(name string) (_ Result, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := openLoop(name)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	o := &ours{qp: l.qp, todo: l.todo}
	raw := rawverbs.QP(l.qp)
	var m measured
	turns := []turn{
		{&m.ours, o.run},
		{&m.c, func(n int) (time.Duration, error) { return byC(raw, l.todo, n) }},
	}
	for batch := range deviceBatches {
		for i := range turns {
			if err := turns[(i+batch)%len(turns)].take(1); err != nil {
				return Result{}, err
			}
			if err := l.await(); err != nil {
				return Result{}, err
			}
		}
		if err := (turn{&m.crossing, o.crossing}).take(100); err != nil {
			return Result{}, err
		}
	}
	return m.result(l.dev.Caps().Device, false), nil
}

// loop is a connection of a device to itself.
type loop struct {
	dev   transport.Device
	qp    transport.QP
	cq    transport.CQ // of the end that posts
	todo  []transfer
	stack []func() error
}

func (l *loop) onClose(f func() error) { l.stack = append(l.stack, f) }

func (l *loop) close() error {
	var errs []error
	for i := len(l.stack) - 1; i >= 0; i-- {
		errs = append(errs, l.stack[i]())
	}
	return errors.Join(errs...)
}

func openLoop(name string) (*loop, error) {
	l := new(loop)
	if err := l.open(name); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *loop) open(name string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if l.dev, err = ibverbs.Open(name); err != nil {
		return err
	}
	l.onClose(l.dev.Close)
	host, err := addressOf(l.dev.Caps().Device)
	if err != nil {
		return err
	}
	region, err := l.dev.NewRegion(transport.RegionConfig{Size: 2 * Chain * 4096, Access: transport.LocalWrite})
	if err != nil {
		return err
	}
	l.onClose(region.Close)
	pd, err := l.dev.NewPD()
	if err != nil {
		return err
	}
	l.onClose(pd.Close)
	if err := pd.AddRegion(region); err != nil {
		return err
	}
	l.onClose(func() error { return pd.RemoveRegion(region) })
	sink, err := pd.NewRegistration(transport.SyncMR, 0)
	if err != nil {
		return err
	}
	l.onClose(sink.Close)
	if _, err := sink.Map(transport.Mapping{List: []transport.Piece{region.Piece(Chain*4096, Chain*4096)},
		Access: transport.LocalWrite | transport.RemoteWrite}); err != nil {
		return err
	}
	var cqs [2]transport.CQ
	for i := range cqs {
		if cqs[i], err = l.dev.NewCQ(256); err != nil {
			return err
		}
		l.onClose(cqs[i].Close)
	}
	listener, err := l.dev.Listen(net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	l.onClose(listener.Close)
	caps := transport.QueueCaps{MaxSendWR: 64, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	active, err := l.dev.Resolve(ctx, listener.Addr())
	if err != nil {
		return err
	}
	l.onClose(active.Close)
	if l.qp, err = active.CreateQP(transport.QPConfig{PD: pd, SendCQ: cqs[0], RecvCQ: cqs[0], QueueCaps: caps}); err != nil {
		return err
	}
	if err := active.Connect(transport.ConnParams{}); err != nil {
		return err
	}
	passive, err := listener.Next(ctx)
	if err != nil {
		return err
	}
	l.onClose(passive.Close)
	if _, err := passive.CreateQP(transport.QPConfig{PD: pd, SendCQ: cqs[1], RecvCQ: cqs[1], QueueCaps: caps}); err != nil {
		return err
	}
	if err := passive.Accept(transport.ConnParams{}); err != nil {
		return err
	}
	for _, c := range []transport.Conn{active, passive} {
		if _, err := c.Established(ctx); err != nil {
			return err
		}
	}
	l.cq = cqs[0]
	lkey := pd.Regions().View().Lookup(region.ID()).LKey
	for i := range Chain {
		l.todo = append(l.todo, newTransfer(region.Addr()+uint64(i)*4096, region.Addr()+uint64(Chain+i)*4096, writeSize, lkey, sink.RKey(0)))
	}
	return nil
}

func addressOf(device string) (string, error) {
	infos, err := ibverbs.Devices()
	if err != nil {
		return "", err
	}
	for _, i := range infos {
		for _, a := range i.Addrs {
			if i.Name == device && !a.IsLinkLocalUnicast() {
				return a.String(), nil
			}
		}
	}
	return "", fmt.Errorf("%s has no IP address to connect to: %w", device, transport.ErrUnreachable)
}

// await waits for the one completion of a chain.
func (l *loop) await() error {
	var dst [4]transport.Completion
	for start := time.Now(); ; {
		n, err := l.cq.Poll(dst[:])
		switch {
		case err != nil:
			return err
		case n > 0 && dst[0].Status != transport.StatusOK:
			return dst[0].Status
		case n > 0:
			return nil
		case time.Since(start) > 10*time.Second:
			return transport.ErrTimeout
		}
		time.Sleep(20 * time.Microsecond)
	}
}
