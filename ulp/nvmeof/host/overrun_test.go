package host_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// frail is a device whose completion queues can be made to fail.
type frail struct {
	transport.Device
	mu  sync.Mutex
	cqs []*frailCQ
}

type frailCQ struct {
	transport.CQ
	broken atomic.Bool
}

func (q *frailCQ) Poll(dst []transport.Completion) (int, error) {
	if q.broken.Load() {
		return 0, transport.ErrCQOverrun
	}
	return q.CQ.Poll(dst)
}

func (d *frail) NewCQ(entries int) (transport.CQ, error) {
	cq, err := d.Device.NewCQ(entries)
	if err != nil {
		return nil, err
	}
	q := &frailCQ{CQ: cq}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cqs = append(d.cqs, q)
	return q, nil
}

// fail has the completion queues fail that there are.
func (d *frail) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.cqs {
		q.broken.Store(true)
		q.Wake()
	}
	d.cqs = nil
}

func (d *frail) Resolve(ctx context.Context, addr string) (transport.Conn, error) {
	c, err := d.Device.Resolve(ctx, addr)
	if err != nil {
		return nil, err
	}
	return frailConn{c}, nil
}

type frailConn struct{ transport.Conn }

func (c frailConn) CreateQP(cfg transport.QPConfig) (transport.QP, error) {
	cfg.SendCQ, cfg.RecvCQ = cfg.SendCQ.(*frailCQ).CQ, cfg.RecvCQ.(*frailCQ).CQ
	return c.Conn.CreateQP(cfg)
}

// TestCompletionsLost: the completion queue fails while requests are on their way, again and
// again. All of them end, a new connection is made each time, and the controller is closed.
func TestCompletionsLost(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, simulated(t, profile), target.Config{})
			dev := &frail{Device: r.dev}
			c := r.connect(host.Config{Device: dev, ReconnectDelay: time.Millisecond, KeepAlive: 100 * time.Millisecond})
			ns, err := c.Namespace(timeout(t), 1)
			require.NoError(t, err)
			m := region(t, c, 64<<10)
			for range rounds(t, "HOST_OVERRUNS", 5) {
				require.NoError(t, ns.Flush(timeout(t)), "a connection")
				before := c.Stats().Reconnects
				var under sync.WaitGroup
				for i := range uint64(4) {
					ended := make(chan error, 1)
					request := host.Request{OnDone: func(r *host.Request) { ended <- r.Err() }}
					under.Go(func() {
						for {
							err := ns.Prepare(&request, host.IO{Op: host.Read, Data: []transport.Piece{m.Piece(i*8192, 8192)}})
							if !assert.NoError(t, err) {
								return
							}
							if err = c.Submit(&request); err == nil {
								err = <-ended
							}
							if err != nil {
								assert.ErrorIs(t, err, host.ErrLost)
								return
							}
						}
					})
				}
				time.Sleep(time.Millisecond)
				dev.fail()
				under.Wait()
				eventually(t, "a new connection", func() bool { return c.Stats().Reconnects > before })
			}
			assert.NoError(t, ns.Read(timeout(t), 0, m.Piece(0, 8192)))
			assert.NoError(t, ns.Err())
		})
	}
}
