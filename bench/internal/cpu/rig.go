package cpu

import (
	"context"
	"errors"
	"fmt"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/null"
)

// rig is a connection on a null device, with what a case needs.
type rig struct {
	Case
	exclusive bool
	dev       *null.Device
	pd        transport.PD
	region    *transport.Region
	pool      *mrpool.Pool
	poller    *rw.Poller
	ep        *rw.Endpoint
	pieces    []transport.Piece
	remote    []transport.Remote
	// c is used for every transfer, so that its lists have their sizes.
	c rw.Context
}

func newRig(c Case, exclusive bool) (*rig, error) {
	r := &rig{Case: c, exclusive: exclusive, dev: null.New(c.caps())}
	var err error
	if r.pd, err = r.dev.NewPD(); err != nil {
		return nil, err
	}
	n := max(1, c.Pieces)
	if r.region, err = r.dev.NewRegion(transport.RegionConfig{Size: 2 * n * pageSize, Access: transport.LocalWrite}); err != nil {
		return nil, err
	}
	if err := r.pd.AddRegion(r.region); err != nil {
		return nil, err
	}
	for i := range n {
		r.pieces = append(r.pieces, r.region.Piece(uint64(2*i*pageSize), pageSize))
	}
	r.remote = []transport.Remote{{Addr: 1 << 40, Len: uint32(n * pageSize), Key: 0x1234}}
	config := mrpool.Config{}
	if c.FastReg || c.Pool {
		config.FastMRs = 8
	}
	if r.pool, err = mrpool.New(r.pd, config); err != nil {
		return nil, err
	}
	return r, r.connect()
}

func (r *rig) connect() error {
	var err error
	if r.poller, err = rw.NewPoller(r.dev, 256, rw.PollerConfig{Workers: -1, Exclusive: r.exclusive}); err != nil {
		return err
	}
	ctx := context.Background()
	conn, err := r.dev.Resolve(ctx, "nobody:1")
	if err != nil {
		return err
	}
	r.ep, err = r.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: r.pool, QueueCaps: r.queues(), Policy: r.policy()})
	if err != nil {
		return err
	}
	if _, err = r.ep.Connect(ctx, transport.ConnParams{}); err != nil {
		return err
	}
	_, err = r.poller.Poll(nil) // takes notice, if nobody else may
	return err
}

func (r *rig) queues() transport.QueueCaps {
	return transport.QueueCaps{MaxSendWR: 128, MaxRecvWR: 1, MaxSendSGE: sgeLimit, MaxRecvSGE: 1}
}

// close frees everything, and finds what did not come back.
func (r *rig) close() error {
	r.ep.StartClose()
	_, err := r.poller.Poll(nil)
	select {
	case <-r.ep.Closed():
	default:
		err = errors.Join(err, errors.New("the endpoint does not close"))
	}
	return errors.Join(err, r.poller.Close(), r.pool.Close(), r.pd.RemoveRegion(r.region), r.pd.Close(), r.region.Close(), r.dev.Close())
}

// ours does the case n times by the library.
func (r *rig) ours(n int) error {
	if r.Pool {
		return r.takeAndPut(n)
	}
	c := &r.c
	var done [1]*rw.Context
	t := rw.Transfer{Op: r.Op, Local: r.pieces, Remote: r.remote}
	for range n {
		if err := r.ep.Prepare(c, t); err != nil {
			return err
		}
		if err := r.ep.Submit(c); err != nil {
			return err
		}
		got, err := r.poller.Poll(done[:])
		switch {
		case err != nil:
			return err
		case got != 1:
			return fmt.Errorf("%v: not complete", r.Case)
		case c.Err() != nil:
			return c.Err()
		}
	}
	return nil
}

func (r *rig) takeAndPut(n int) error {
	var one [1]*mrpool.MR
	for range n {
		if err := r.pool.Take(transport.FastMR, one[:], "bench"); err != nil {
			return err
		}
		one[0].Put()
	}
	return nil
}
