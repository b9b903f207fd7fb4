package rw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// Completions were lost: nobody knows any more what is outstanding, on any endpoint of
// the poller. All of them fail, their queue pairs are destroyed without waiting, and
// then everything comes back.
func TestLostCompletionsEndAllEndpoints(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel"} {
		t.Run(profile, func(t *testing.T) {
			p, r := stuck(t, profile, rw.EndpointConfig{})
			poller, err := rw.NewPoller(p.a.dev, 1024, rw.PollerConfig{Workers: -1})
			require.NoError(t, err)
			own := *p.a
			own.poller = poller
			q := &pair{a: &own, b: p.b, listen: p.listen}
			lost, stop := make(chan error, 1), make(chan struct{})
			t.Cleanup(func() {
				close(stop)
				require.ErrorIs(t, <-lost, transport.ErrCQOverrun)
				require.NoError(t, poller.Close())
			})
			go func() {
				var last error
				for {
					if _, err := poller.Poll(nil); err != nil {
						last = err
					}
					select {
					case <-stop:
						lost <- last
						return
					case <-time.After(time.Millisecond):
					}
				}
			}()
			cfg := rw.EndpointConfig{QueueCaps: transport.QueueCaps{MaxSendWR: 16, MaxRecvWR: 16}, DrainTimeout: time.Hour}
			one, _ := q.dial(t, cfg, rw.EndpointConfig{})
			two, _ := q.dial(t, cfg, rw.EndpointConfig{})
			ended := make(chan *rw.Context, 4)
			var write, recv, other rw.Context
			for _, c := range []*rw.Context{&write, &recv, &other} {
				c.OnDone = func(c *rw.Context) { ended <- c }
			}
			r.qpn.Store(one.Conn().QP().Num()) // a request that would not complete for an hour
			for c, ep := range map[*rw.Context]*rw.Endpoint{&recv: one, &other: two} {
				require.NoError(t, ep.PrepareRecv(c, []transport.Piece{p.a.region.Piece(0, 64)}))
				require.NoError(t, ep.PostRecv(c))
			}
			require.NoError(t, one.Prepare(&write, rw.Transfer{Op: rw.Write, Local: scattered(p.a.region, 1, 8, 0), Remote: []transport.Remote{{Len: 8}}}))
			require.NoError(t, one.Submit(&write))
			rw.LoseCompletions(poller)
			for range 3 {
				select {
				case c := <-ended:
					require.ErrorIs(t, c.Err(), transport.ErrCQOverrun)
				case <-time.After(time.Minute):
					t.Fatal("a context never ended")
				}
			}
			require.ErrorIs(t, one.Err(), transport.ErrCQOverrun)
			require.ErrorIs(t, two.Err(), transport.ErrCQOverrun)
			require.NoError(t, one.Close())
			require.NoError(t, two.Close())
		})
	}
}

// A completion queue that can't be waited for any more is the end of its poller's
// endpoints: Run says why when everything is back.
func TestRunEndsWhenItCanNotWait(t *testing.T) {
	p := connect(t, testbeds[0], rw.EndpointConfig{})
	poller, err := rw.NewPoller(p.a.dev, 1024, rw.PollerConfig{})
	require.NoError(t, err)
	own := *p.a
	own.poller = poller
	q := &pair{a: &own, b: p.b, listen: p.listen}
	conn, err := p.a.dev.Resolve(within(t, time.Minute), p.listen.Addr())
	require.NoError(t, err)
	ep, err := poller.NewEndpoint(conn, rw.EndpointConfig{Pool: p.a.pool, DrainTimeout: time.Hour})
	require.NoError(t, err)
	var recv rw.Context
	ended := make(chan error, 1)
	recv.OnDone = func(c *rw.Context) { ended <- c.Err() }
	require.NoError(t, ep.PrepareRecv(&recv, []transport.Piece{q.a.region.Piece(0, 64)}))
	require.NoError(t, ep.PostRecv(&recv))

	broken := errors.New("the queue's descriptor was closed")
	rw.BreakWait(poller, broken)
	require.ErrorIs(t, poller.Run(within(t, time.Minute), nil), broken)
	require.ErrorIs(t, <-ended, broken)
	require.ErrorIs(t, ep.Err(), broken)
	require.NoError(t, ep.Close())
	require.NoError(t, poller.Close())
}

// endpointOn makes an endpoint of a poller with a receive posted, and no connection yet.
func endpointOn(t *testing.T, p *pair, poller *rw.Poller, recv *rw.Context, wrap func(transport.Conn) transport.Conn) *rw.Endpoint {
	conn, err := p.a.dev.Resolve(within(t, time.Minute), p.listen.Addr())
	require.NoError(t, err)
	ep, err := poller.NewEndpoint(wrap(conn), rw.EndpointConfig{Pool: p.a.pool, DrainTimeout: time.Hour, QueueCaps: transport.QueueCaps{MaxSendWR: 8, MaxRecvWR: 8}})
	require.NoError(t, err)
	require.NoError(t, ep.PrepareRecv(recv, []transport.Piece{p.a.region.Piece(0, 64)}))
	require.NoError(t, ep.PostRecv(recv))
	return ep
}

// ownConn makes queue pairs with the device's own queue, where that is broken for others.
type ownConn struct{ transport.Conn }

func (c ownConn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	cfg.SendCQ, cfg.RecvCQ = rw.DeviceCQ(cfg.SendCQ), rw.DeviceCQ(cfg.RecvCQ)
	return c.Conn.CreateQP(cfg)
}

// An endpoint that is made while a poller runs down is at its end at once, too: Run
// doesn't go on for it.
func TestRunEndsThoughEndpointsAreMade(t *testing.T) {
	for _, exclusive := range []bool{false, true} {
		p := connect(t, testbeds[0], rw.EndpointConfig{})
		poller, err := rw.NewPoller(p.a.dev, 1024, rw.PollerConfig{Exclusive: exclusive})
		require.NoError(t, err)
		same := func(c transport.Conn) transport.Conn { return ownConn{c} }
		var first, second rw.Context
		var eps []*rw.Endpoint
		var errs []error
		first.OnDone = func(c *rw.Context) {
			errs = append(errs, c.Err())
			eps = append(eps, endpointOn(t, p, poller, &second, same))
		}
		second.OnDone = func(c *rw.Context) { errs = append(errs, c.Err()) }
		eps = append(eps, endpointOn(t, p, poller, &first, same))
		broken := errors.New("the queue's descriptor was closed")
		rw.BreakWait(poller, broken)
		require.ErrorIs(t, poller.Run(within(t, 10*time.Second), nil), broken)
		require.Len(t, errs, 2)
		for i, ep := range eps {
			require.ErrorIs(t, errs[i], broken)
			ep.StartClose()
			for open := true; open; {
				_, err := poller.Poll(nil)
				require.NoError(t, err)
				select {
				case <-ep.Closed():
					open = false
				case <-time.After(time.Millisecond):
				}
			}
		}
		require.NoError(t, poller.Close())
	}
}

// slowConn takes its time to close.
type slowConn struct {
	transport.Conn
	closing, closed chan struct{}
}

func (c *slowConn) Close() error {
	close(c.closing)
	<-c.closed
	return c.Conn.Close()
}

// A revocation that waits for its endpoint's end is under way as well: Run ends after it.
func TestRunEndsAfterRevocationsThatWait(t *testing.T) {
	p := connect(t, simBed("fmr"), rw.EndpointConfig{})
	poller, err := rw.NewPoller(p.a.dev, 1024, rw.PollerConfig{})
	require.NoError(t, err)
	slow := &slowConn{closing: make(chan struct{}), closed: make(chan struct{})}
	var recv rw.Context
	recv.OnDone = func(*rw.Context) {}
	ep := endpointOn(t, p, poller, &recv, func(c transport.Conn) transport.Conn { slow.Conn = c; return slow })
	var x rw.Exposure
	require.NoError(t, ep.Expose(&x, []transport.Piece{p.a.region.Piece(4096, 100)}, mrpool.ReadSource))
	ended := make(chan error, 1)
	x.Revoke.OnDone = func(c *rw.Context) { ended <- c.Err() }
	ep.StartClose()
	for closing := false; !closing; {
		poller.Poll(nil)
		select {
		case <-slow.closing:
			closing = true
		case <-time.After(time.Millisecond):
		}
	}
	require.NoError(t, ep.Submit(&x.Revoke))
	broken := errors.New("the queue's descriptor was closed")
	rw.BreakWait(poller, broken)
	ran := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() { ran <- poller.Run(ctx, nil) }()
	select {
	case <-ran:
		close(slow.closed)
		t.Fatal("what was under way isn't back")
	case <-time.After(50 * time.Millisecond):
	}
	require.Empty(t, ended)
	close(slow.closed)
	require.ErrorIs(t, <-ran, broken)
	require.Len(t, ended, 1)
	<-ep.Closed()
	require.NoError(t, poller.Close())
}
