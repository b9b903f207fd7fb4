package target

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/require"
)

// frail is a device whose completion queues can be broken, as a CQ error does it.
type frail struct {
	transport.Device
	mu  sync.Mutex
	cqs []*frailCQ
}

type frailCQ struct {
	transport.CQ
	broken atomic.Bool
}

func (c *frailCQ) Poll(dst []transport.Completion) (int, error) {
	if c.broken.Load() {
		return 0, transport.ErrCQOverrun
	}
	return c.CQ.Poll(dst)
}

func (d *frail) NewCQ(n int) (transport.CQ, error) {
	cq, err := d.Device.NewCQ(n)
	if err != nil {
		return nil, err
	}
	f := &frailCQ{CQ: cq}
	d.mu.Lock()
	d.cqs = append(d.cqs, f)
	d.mu.Unlock()
	return f, nil
}

func (d *frail) breakAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.cqs {
		c.broken.Store(true)
		c.Wake()
	}
}

type frailListener struct{ transport.Listener }

func (l frailListener) Next(ctx context.Context) (transport.Conn, error) {
	c, err := l.Listener.Next(ctx)
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

func frailRig(t *testing.T) (*rig, *frail, *Target, chan error) {
	r := newRig(t, "rxe", Config{})
	dev := &frail{Device: r.open("frail")}
	tgt, err := New(Config{Pollers: 1, HandshakeTimeout: 300 * time.Millisecond, Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: memory512(t, 4<<20)}}}}})
	require.NoError(t, err)
	l, err := dev.Listen("frail:4420")
	require.NoError(t, err)
	r.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- tgt.Serve(context.Background(), dev, frailListener{l}) }()
	return r, dev, tgt, served
}

// A completion queue fails while a host has an asynchronous event request with the target,
// as every Linux host has. The target can still be shut down.
func TestShutdownAfterCQError(t *testing.T) {
	r, dev, tgt, served := frailRig(t)
	s := r.host().admin(testNQN, 0)
	held := <-s.admin.free
	cmd := nvme.Command{Opcode: nvme.AsyncEvent, Flags: nvme.FlagSGL, SGL: nvme.Descriptor{Type: nvme.SGLKeyed}}
	require.NoError(t, held.start(&cmd, 0))
	s.must(s.admin, nvme.Command{Opcode: nvme.KeepAlive}, nvme.NoData, nil)
	dev.breakAll()
	time.Sleep(200 * time.Millisecond)
	go tgt.Shutdown(context.Background())
	select {
	case err := <-served:
		t.Log("Serve:", err)
	case <-time.After(10 * time.Second):
		t.Fatalf("Serve doesn't end: %d queues are left", tgt.Stats().Queues)
	}
}

// After a completion queue has failed, hosts that come are served, or rejected; they
// aren't given to a poller that nobody polls.
func TestHostsAfterCQError(t *testing.T) {
	r, dev, tgt, served := frailRig(t)
	h := r.host()
	h.admin(testNQN, 0)
	dev.breakAll()
	require.Eventually(t, func() bool { return tgt.Stats().Queues == 0 }, 10*time.Second, time.Millisecond)
	l, err := h.dial(0, dialConfig{})
	if err == nil {
		connect := nvme.Connect{SQSize: 31}
		answered := make(chan error, 1)
		go func() {
			_, err := l.do(connect.Command(), nvme.HostToTarget, h.connectData(nvme.AnyController, testNQN))
			answered <- err
		}()
		select {
		case err := <-answered:
			t.Log("Connect:", err)
		case <-time.After(5 * time.Second):
			t.Errorf("the connection was accepted, and its Connect is not answered; %d queues", tgt.Stats().Queues)
		}
	}
	go tgt.Shutdown(context.Background())
	select {
	case <-served:
	case <-time.After(10 * time.Second):
		t.Fatalf("Serve doesn't end: %d queues are left", tgt.Stats().Queues)
	}
}
