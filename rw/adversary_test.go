package rw_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// What a review found that set out to break the package, but for exposures (see
// adversary_exposure_test.go): each test was red once.

func TestAdvWornRegistrationsStarveReservations(t *testing.T) {
	s, a, _ := advStepped(t, "siw-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 8}, reserve: 8})
	for i := range 8 * 300 {
		var x rw.Exposure
		require.NoError(t, a.ep.Expose(&x, []transport.Piece{a.region.Piece(0, 4096)}, mrpool.ReadSource), "use %d: %+v", i, a.pool.Stats(transport.FastMR))
		require.NoError(t, a.ep.Submit(&x.Grant))
		require.NoError(t, a.ep.Submit(&x.Revoke))
		require.True(t, s.until(func() bool { return a.has(&x.Revoke) }))
		a.done = nil
	}
}

// Seen under the race detector.
type advSlowPD struct {
	transport.PD
	made atomic.Int32
}

func (p *advSlowPD) NewRegistration(kind transport.RegistrationKind, n int) (transport.Registration, error) {
	if p.made.Add(1) > 1 {
		time.Sleep(50 * time.Millisecond) // it may block
	}
	return p.PD.NewRegistration(kind, n)
}

func TestAdvPoolCloseRacesRepair(t *testing.T) {
	p := connect(t, simBed("siw-kernel"), rw.EndpointConfig{})
	pd, err := p.a.dev.NewPD()
	require.NoError(t, err)
	require.NoError(t, pd.AddRegion(p.a.region))
	slow := &advSlowPD{PD: pd}
	pool, err := mrpool.New(slow, mrpool.Config{FastMRs: 1})
	require.NoError(t, err)
	ep, epB := p.advDial(t, func(c transport.Conn) transport.Conn { return &advUnwrap{c} }, rw.EndpointConfig{Pool: pool})
	var x rw.Exposure
	for range 256 { // the last is put back to be replaced
		p.a.expose(ep, &x, []transport.Piece{p.a.region.Piece(0, 4096)}, mrpool.ReadSource)
		p.a.revoke(ep, &x)
	}
	if err := errors.Join(ep.Close(), pool.Close()); err != nil {
		t.Error(err)
	}
	time.Sleep(100 * time.Millisecond)
	if err := errors.Join(pd.RemoveRegion(p.a.region), pd.Close()); err != nil {
		t.Error(err) // what Repair made after Pool.Close is nobody's
	}
	epB.Close()
}

type advSilentConn struct{ transport.Conn }
type advSilentQP struct{ transport.QP } // takes requests and never runs them

func (c *advSilentConn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	qp, err := c.Conn.CreateQP(cfg)
	return &advSilentQP{qp}, err
}
func (q *advSilentQP) PostSend(wrs []transport.WR, _ []transport.SGE) (int, error) {
	return len(wrs), nil
}

func (p *pair) advDial(t *testing.T, wrap func(transport.Conn) transport.Conn, cfg rw.EndpointConfig) (a, b *rw.Endpoint) {
	got := make(chan *rw.Endpoint, 1)
	go func() {
		conn, err := p.listen.Next(context.Background())
		if err != nil {
			return
		}
		ep, _ := p.b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.b.pool})
		ep.Accept(context.Background(), transport.ConnParams{})
		got <- ep
	}()
	conn, err := p.a.dev.Resolve(context.Background(), p.listen.Addr())
	require.NoError(t, err)
	a, err = p.a.poller.NewEndpoint(wrap(conn), cfg)
	require.NoError(t, err)
	_, err = a.Connect(context.Background(), transport.ConnParams{})
	require.NoError(t, err)
	return a, <-got
}

func TestAdvCloseReturnsBeforeContexts(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{})
	var x rw.Exposure
	remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 1<<20)}, mrpool.ReadSource)
	pool, err := mrpool.New(p.a.pd, mrpool.Config{SyncMRs: 64})
	require.NoError(t, err)
	ep, epB := p.advDial(t, func(c transport.Conn) transport.Conn { return &advSilentConn{c} }, rw.EndpointConfig{Pool: pool, DrainTimeout: 20 * time.Millisecond})
	var c rw.Context
	var back atomic.Bool
	c.OnDone = func(*rw.Context) { back.Store(true) }
	require.NoError(t, ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: scattered(p.a.region, 64, 100, 50), Remote: remote}))
	require.NoError(t, ep.Submit(&c))
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, ep.Close())
	require.Zero(t, pool.Stats(transport.SyncMR).Out)
	require.NoError(t, pool.Close(), "nothing is out")
	require.Eventually(t, back.Load, 10*time.Second, time.Millisecond, "and the context is about to be given back")
	epB.Close()
	p.b.revoke(p.b.ep, &x)
}

type advPD struct {
	transport.PD
	fail *atomic.Bool
}
type advReg struct {
	transport.Registration
	fail *atomic.Bool
}
type advUnwrap struct{ transport.Conn }

func (p *advPD) NewRegistration(kind transport.RegistrationKind, n int) (transport.Registration, error) {
	r, err := p.PD.NewRegistration(kind, n)
	return &advReg{r, p.fail}, err
}
func (r *advReg) Unmap() error {
	if r.fail.Load() {
		return errors.New("deregistration failed")
	}
	return r.Registration.Unmap()
}
func (c *advUnwrap) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	switch pd := cfg.PD.(type) {
	case *advPD:
		cfg.PD = pd.PD
	case *advSlowPD:
		cfg.PD = pd.PD
	}
	return c.Conn.CreateQP(cfg)
}

func TestAdvCloseHidesKeysThatLive(t *testing.T) {
	p := connect(t, simBed("siw"), rw.EndpointConfig{})
	var fail atomic.Bool
	pool, err := mrpool.New(&advPD{p.a.pd, &fail}, mrpool.Config{SyncMRs: 4})
	require.NoError(t, err)
	ep, epB := p.advDial(t, func(c transport.Conn) transport.Conn { return &advUnwrap{c} }, rw.EndpointConfig{Pool: pool})
	var x rw.Exposure
	p.a.expose(ep, &x, []transport.Piece{p.a.region.Piece(0, 4096)}, mrpool.ReadSource)
	fail.Store(true)
	errClose, errRevoke := ep.Close(), ep.Do(context.Background(), &x.Revoke)
	if errClose == nil && errRevoke == nil {
		t.Error("the key is alive, and both Close and Revoke say that all is well")
	}
	fail.Store(false)
	pool.Close()
	epB.Close()
}

type advBellConn struct {
	transport.Conn
	fail *atomic.Bool
}
type advBellQP struct {
	transport.QP
	fail *atomic.Bool
}

func (c *advBellConn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	qp, err := c.Conn.CreateQP(cfg)
	return &advBellQP{qp, c.fail}, err
}
func (q *advBellQP) PostSend(wrs []transport.WR, sges []transport.SGE) (int, error) {
	if q.fail.Load() {
		return len(wrs), errors.New("the doorbell failed") // transport/ibverbs/qp.go:153
	}
	return q.QP.PostSend(wrs, sges)
}

func TestAdvDoorbellErrorIsDropped(t *testing.T) {
	p := connect(t, simBed("rxe"), rw.EndpointConfig{})
	var fail atomic.Bool
	ep, epB := p.advDial(t, func(c transport.Conn) transport.Conn { return &advBellConn{c, &fail} }, rw.EndpointConfig{Pool: p.a.pool, DrainTimeout: 100 * time.Millisecond})
	fail.Store(true)
	var c rw.Context
	done := make(chan struct{})
	c.OnDone = func(*rw.Context) { close(done) }
	require.NoError(t, ep.PrepareSend(&c, rw.Message{}))
	require.NoError(t, ep.Submit(&c))
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		t.Errorf("never ends; endpoint: %v", ep.Err())
	}
	ep.Close()
	epB.Close()
}

func TestAdvCanceledStagingWaiterHidesPoolWaiter(t *testing.T) {
	ctx := context.Background()
	s, a, b := advStepped(t, "siw", steppedConfig{pool: mrpool.Config{SyncMRs: 2}, policy: rw.Policy{Sink: rw.SinkStaging}, slots: 1, slot: 4096})
	var x rw.Exposure
	remote := b.grant(&x, 64<<10, mrpool.ReadSource)
	var hog [1]*mrpool.MR
	require.NoError(t, a.pool.Take(transport.SyncMR, hog[:], "hog"))
	conn, err := a.dev.Resolve(ctx, s.listen.Addr())
	require.NoError(t, err)
	ep2, err := a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: a.pool, Staging: a.staging, Policy: rw.Policy{Sink: rw.SinkStaging}})
	require.NoError(t, err)
	require.NoError(t, conn.Connect(transport.ConnParams{}))
	connB, err := s.listen.Next(ctx)
	require.NoError(t, err)
	ep2b, err := b.poller.NewEndpoint(connB, rw.EndpointConfig{Pool: b.pool})
	require.NoError(t, err)
	_, err = ep2b.Accept(ctx, transport.ConnParams{})
	require.NoError(t, err)
	_, err = ep2.Established(ctx)
	require.NoError(t, err)
	var c0, c1, c2 rw.Context
	read := func(ep *rw.Endpoint, c *rw.Context, at uint64, n uint32) {
		require.NoError(t, ep.Prepare(c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(at, n)}, Remote: remote}))
		require.NoError(t, ep.Submit(c))
	}
	read(ep2, &c0, 0, 100)            // has the only slot
	read(a.ep, &c1, 8192, 100)        // waits for the slot
	read(a.ep, &c2, 16384, 8192)      // larger than staging: strict
	require.True(t, a.ep.Cancel(&c1)) // so c2 waits for the pool
	hog[0].Put()
	for range 100 {
		a.poll()
	}
	require.Equal(t, 2, a.pool.Stats(transport.SyncMR).Out, "the pool has what c2 waits for, nobody told its endpoint")
}

func TestAdvBrokenRegistrationIsNeverMended(t *testing.T) {
	fail := false
	s, a, b := advStepped(t, "siw-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 1},
		faults: sim.Faults{Allocate: func(_ *sim.Device, what sim.Allocation) error {
			if fail && what == sim.AllocRegistration {
				return transport.ErrNoMemory
			}
			return nil
		}}})
	var x rw.Exposure
	remote := b.grant(&x, 4096, mrpool.ReadSource)
	var one [1]*mrpool.MR
	require.NoError(t, a.pool.Take(transport.FastMR, one[:], "x"))
	_, err := one[0].MapRemote([]transport.Piece{a.region.Piece(0, 4096)}, transport.Cursor{}, 0, mrpool.ReadSource)
	require.NoError(t, err)
	require.NoError(t, one[0].Posted())
	one[0].Lost() // as a failed endpoint does
	one[0].Put()
	fail = true
	require.Error(t, a.pool.Repair()) // as its worker does
	fail = false                      // there is memory again
	var c rw.Context
	require.NoError(t, a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 100)}, Remote: remote}))
	require.NoError(t, a.ep.Submit(&c))
	require.True(t, s.until(func() bool { return a.has(&c) }), "waits for ever: %+v", a.pool.Stats(transport.FastMR))
}

func TestAdvFeedReadsChainOverrunsQueue(t *testing.T) {
	s, a, b := advStepped(t, "rxe", steppedConfig{pool: mrpool.Config{Windows: 4}, policy: rw.Policy{FeedReads: true}, queues: transport.QueueCaps{MaxSendWR: 16, MaxSendSGE: 1}})
	var x rw.Exposure
	remote := b.grant(&x, 6400, mrpool.ReadSource)
	var list []transport.Piece
	for i := range 100 {
		list = append(list, a.region.Piece(uint64(i)*4096, 64))
	}
	var read, nothing rw.Context
	require.NoError(t, a.ep.Prepare(&read, rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
	require.NoError(t, a.ep.Prepare(&nothing, rw.Transfer{Op: rw.Write, Local: []transport.Piece{{}}}))
	if a.ep.Submit(&read, &nothing) != nil {
		return
	}
	require.True(t, s.until(func() bool { return a.has(&read) }))
	require.NoError(t, read.Err())
}

func TestAdvEmptyPoolEndsAChainThatFits(t *testing.T) {
	s, a, b := advStepped(t, "mlx5-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 2}, queues: transport.QueueCaps{MaxSendWR: 8, MaxSendSGE: 1}})
	var x rw.Exposure
	remote := b.grant(&x, 64<<10, mrpool.ReadSource)
	var hog [1]*mrpool.MR
	require.NoError(t, a.pool.Take(transport.FastMR, hog[:], "hog"))
	var c [2]rw.Context
	for i := range c {
		var list []transport.Piece
		for k := range 6 {
			list = append(list, a.region.Piece(uint64(i*10+k)*8192, 4096))
		}
		require.NoError(t, a.ep.Prepare(&c[i], rw.Transfer{Op: rw.Read, Local: list, Remote: remote}))
	}
	require.NoError(t, a.ep.Submit(&c[0], &c[1]), "accepted")
	hog[0].Put()
	require.True(t, s.until(func() bool { return a.has(&c[1]) }))
	require.NoError(t, c[0].Err())
}

func TestAdvSizeCountsWhatStagingHolds(t *testing.T) {
	s, a, b := advStepped(t, "siw", steppedConfig{pool: mrpool.Config{SyncMRs: 2}, slots: 1, slot: 64})
	var x rw.Exposure
	remote := b.grant(&x, 4096, mrpool.ReadSource)
	var c rw.Context
	err := a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 100), a.region.Piece(8192, 100)}, Remote: remote})
	if err != nil || a.ep.Submit(&c) != nil {
		return
	}
	require.True(t, s.until(func() bool { return a.has(&c) }), "accepted, and can never run")
}

func TestAdvClosedStagingIsWaitedForForEver(t *testing.T) {
	s, a, b := advStepped(t, "siw", steppedConfig{pool: mrpool.Config{SyncMRs: 2}, policy: rw.Policy{Sink: rw.SinkStaging}, slots: 2, slot: 4096})
	var x rw.Exposure
	remote := b.grant(&x, 4096, mrpool.ReadSource)
	require.NoError(t, a.staging.Close())
	var c rw.Context
	require.NoError(t, a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 100)}, Remote: remote}))
	require.True(t, a.ep.Submit(&c) != nil || s.until(func() bool { return a.has(&c) }))
}

func TestAdvRollbackWakesItself(t *testing.T) {
	s, a, b := advStepped(t, "siw-kernel", steppedConfig{pool: mrpool.Config{FastMRs: 3}})
	var x rw.Exposure
	remote := b.grant(&x, 4096, mrpool.ReadSource)
	var hog [1]*mrpool.MR
	require.NoError(t, a.pool.Take(transport.FastMR, hog[:], "hog"))
	var c1, c2 rw.Context
	require.NoError(t, a.ep.Prepare(&c1, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(0, 100)}, Remote: remote}))
	require.NoError(t, a.ep.Prepare(&c2, rw.Transfer{Op: rw.Read, Local: []transport.Piece{a.region.Piece(8192, 100), a.region.Piece(16384, 100)}, Remote: remote}))
	require.NoError(t, a.ep.Submit(&c1, &c2)) // needs 3, there are 2
	for s.fabric.Step() {
	}
	before := a.pool.Stats(transport.FastMR).Takes
	for range 1000 {
		a.poll()
	}
	require.Less(t, a.pool.Stats(transport.FastMR).Takes-before, uint64(10), "takes and rolls back with every Poll: Run never parks")
}

func TestAdvRefusedDoTakesOnDoneAway(t *testing.T) {
	var hold atomic.Bool
	p := connect(t, faultyBed("rxe", sim.Faults{Delay: func(*sim.QP, uint64, *transport.WR) time.Duration {
		if hold.Load() {
			return 50 * time.Millisecond
		}
		return 0
	}}), rw.EndpointConfig{})
	var x rw.Exposure
	remote := p.b.expose(p.b.ep, &x, []transport.Piece{p.b.region.Piece(0, 4096)}, mrpool.ReadSource)
	hold.Store(true)
	var c rw.Context
	called := make(chan struct{})
	c.OnDone = func(*rw.Context) { close(called) }
	require.NoError(t, p.a.ep.Prepare(&c, rw.Transfer{Op: rw.Read, Local: []transport.Piece{p.a.region.Piece(0, 4096)}, Remote: remote}))
	require.NoError(t, p.a.ep.Submit(&c))
	require.ErrorIs(t, p.a.ep.Do(context.Background(), &c), rw.ErrNotPrepared)
	select {
	case <-called:
	case <-time.After(2 * time.Second):
		t.Error("OnDone of the use under way was never called")
	}
	p.b.revoke(p.b.ep, &x)
}
