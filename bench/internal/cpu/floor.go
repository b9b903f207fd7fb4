package cpu

import (
	"context"
	"fmt"
	"sync"

	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/null"
)

// floor does by hand what a case takes.
type floor struct {
	*rig
	ring   *null.Ring
	cq     transport.CQ
	qp     *null.QP
	lkey   transport.LKey
	cookie uint64
	batch  [1]transport.Completion

	reg     transport.Registration
	keyByte uint8

	mu   sync.Mutex
	free []transport.Registration
}

func newFloor(r *rig) (*floor, error) {
	f := &floor{rig: r, ring: r.dev.Ring(), lkey: r.pd.Regions().View().Lookup(r.region.ID()).LKey}
	var err error
	if f.cq, err = r.dev.NewCQ(16); err != nil {
		return nil, err
	}
	conn, err := r.dev.Resolve(context.Background(), "nobody:2")
	if err != nil {
		return nil, err
	}
	qp, err := conn.CreateQP(transport.QPConfig{PD: r.pd, SendCQ: f.cq, RecvCQ: f.cq, QueueCaps: r.queues()})
	if err != nil {
		return nil, err
	}
	f.qp = qp.(*null.QP)
	if r.FastReg || r.Pool {
		if f.reg, err = r.pd.NewRegistration(transport.FastMR, pageLimit); err != nil {
			return nil, err
		}
		f.free = []transport.Registration{f.reg}
	}
	return f, nil
}

// run does the case n times.
func (f *floor) run(n int) error {
	one := f.direct
	switch {
	case f.Pool:
		one = f.popAndPush
	case f.FastReg:
		one = f.fastReg
	}
	for range n {
		if err := one(); err != nil {
			return err
		}
	}
	return nil
}

// direct writes requests of up to 30 SGEs.
func (f *floor) direct() error {
	op := transport.OpWrite
	if f.Op == rw.Read {
		op = transport.OpRead
	}
	lkey := f.lkey
	remote := f.remote[0].Addr
	rkey := f.remote[0].Key
	list := f.pieces
	for len(list) > 0 {
		n := min(len(list), sgeLimit)
		wr, sges := f.ring.Request(n)
		bytes := uint64(0)
		for i, p := range list[:n] {
			sges[i] = transport.SGE{Addr: p.Addr, Len: p.Len, LKey: lkey}
			bytes += uint64(p.Len)
		}
		list = list[n:]
		f.cookie++
		*wr = transport.WR{Cookie: f.cookie, RemoteAddr: remote, RKey: rkey, NumSGE: uint16(n), Op: op}
		remote += bytes
		if len(list) == 0 {
			wr.Flags = transport.Signaled
		}
	}
	return f.complete()
}

// fastReg writes, for up to 256 pages each, a LOCAL_INV of the last use, a FAST_REG,
// and a READ.
func (f *floor) fastReg() error {
	remote := f.remote[0].Addr
	rkey := f.remote[0].Key
	list := f.pieces
	for len(list) > 0 {
		n := min(len(list), pageLimit)
		inv, _ := f.ring.Request(0)
		*inv = transport.WR{Cookie: f.cookie + 1, Op: transport.OpLocalInv, Reg: f.reg.ID(), KeyByte: f.keyByte}
		f.keyByte++
		reg, pages := f.ring.FastReg(n)
		bytes := uint64(0)
		for i, p := range list[:n] {
			pages[i] = p.Addr
			bytes += uint64(p.Len)
		}
		start := list[0].Addr
		list = list[n:]
		*reg = transport.WR{
			Cookie: f.cookie + 2, RemoteAddr: start, CompareAdd: bytes, Imm: uint32(transport.LocalWrite),
			Op: transport.OpFastReg, Reg: f.reg.ID(), KeyByte: f.keyByte,
		}
		f.cookie += 3
		read, sges := f.ring.Request(1)
		sges[0] = transport.SGE{Addr: start, Len: uint32(bytes), LKey: f.reg.LKey(f.keyByte)}
		*read = transport.WR{Cookie: f.cookie, RemoteAddr: remote, RKey: rkey, NumSGE: 1, Op: transport.OpRead}
		remote += bytes
		if len(list) == 0 {
			read.Flags = transport.Signaled
		}
	}
	return f.complete()
}

// complete has the last request complete, and takes the completion.
func (f *floor) complete() error {
	f.qp.Complete(f.cookie)
	n, err := f.cq.Poll(f.batch[:])
	if err != nil || n != 1 || f.batch[0].Cookie != f.cookie {
		return fmt.Errorf("floor: %d completions: %w", n, err)
	}
	return nil
}

// popAndPush takes a registration from a list, and puts it back, each under a mutex.
func (f *floor) popAndPush() error {
	f.mu.Lock()
	last := len(f.free) - 1
	reg := f.free[last]
	f.free = f.free[:last]
	f.mu.Unlock()
	f.mu.Lock()
	f.free = append(f.free, reg)
	f.mu.Unlock()
	return nil
}
