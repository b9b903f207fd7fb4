//go:build ibverbs && linux && cgo

package ibverbs

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

// ended waits for a connection's end and returns the reason.
func (e *end) ended() error {
	e.t.Helper()
	select {
	case <-e.conn.Done():
	case <-time.After(patience):
		require.FailNow(e.t, "the connection does not end")
	}
	require.Equal(e.t, transport.QPError, e.qp.State())
	return e.conn.Err()
}

func TestPrivateDataAndDepths(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host,
			transport.ConnParams{PrivateData: []byte("request"), InitiatorDepth: 3, ResponderResources: 5},
			transport.ConnParams{PrivateData: []byte("answer"), InitiatorDepth: 50, ResponderResources: 2, AckTimeout: time.Second})
		req := b.conn.Request()
		require.Equal(t, "request", string(req.PrivateData[:7]))
		require.Equal(t, "answer", string(a.info.PrivateData[:6]))
		t.Logf("request: initiator %d, responder %d", req.InitiatorDepth, req.ResponderResources)
		for name, e := range map[string]*end{"active": a, "passive": b} {
			ini, resp, ok := e.conn.(*conn).qp.depths()
			t.Logf("%s: in force %d, %d; the device says %d, %d %v", name, e.info.InitiatorDepth, e.info.ResponderResources, ini, resp, ok)
		}
		require.Equal(t, 5, req.InitiatorDepth)
		require.Equal(t, 3, req.ResponderResources)
		if d.info.driver == driverSIW {
			// The kernel overrules the 2 that was accepted.
			require.Equal(t, 3, a.info.InitiatorDepth)
		} else {
			require.Equal(t, 2, a.info.InitiatorDepth)
		}
		require.Equal(t, 5, a.info.ResponderResources)
		require.Equal(t, 5, b.info.InitiatorDepth)
		require.Equal(t, 2, b.info.ResponderResources)
		la, _, err := net.SplitHostPort(a.conn.LocalAddr())
		require.NoError(t, err)
		require.Equal(t, host, la)
		require.Equal(t, a.conn.RemoteAddr(), b.conn.LocalAddr())
		require.Equal(t, a.conn.LocalAddr(), b.conn.RemoteAddr())
	})
}

func TestReadDepthZero(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host, transport.ConnParams{InitiatorDepth: -1})
		reg, remote := b.expose(0, 100, transport.LocalWrite|transport.RemoteRead)
		n, err := a.qp.PostSend([]transport.WR{{Op: transport.OpRead, RemoteAddr: remote.Addr, RKey: remote.Key}}, nil)
		require.Zero(t, n)
		require.ErrorIs(t, err, transport.ErrReadDepth)
		require.NoError(t, reg.Close())
	})
}

func TestRejected(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		ctx := testContext(t)
		a := newEnd(t, d)
		defer a.close()
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		a.conn, err = d.Resolve(ctx, l.Addr())
		require.NoError(t, err)
		a.createQP(nil)
		require.NoError(t, a.conn.Connect(transport.ConnParams{}))
		require.ErrorIs(t, a.conn.Connect(transport.ConnParams{}), transport.ErrBadState)
		b, err := l.Next(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, b.Accept(transport.ConnParams{}), transport.ErrBadState, "no queue pair")
		require.NoError(t, b.Reject([]byte("no room")))
		require.ErrorIs(t, b.Reject(nil), transport.ErrBadState)
		_, err = a.conn.Established(ctx)
		require.ErrorIs(t, err, transport.ErrRejected)
		var re *transport.RejectedError
		require.ErrorAs(t, err, &re)
		t.Log(err)
		require.Equal(t, "no room", string(re.PrivateData[:7]))
		require.ErrorIs(t, a.ended(), transport.ErrRejected)
		require.NoError(t, b.Close())
	})
}

func TestClosedUnanswered(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		for _, close := range []func(l transport.Listener){
			func(l transport.Listener) { // one that was taken
				c, err := l.Next(testContext(t))
				require.NoError(t, err)
				require.NoError(t, c.Close())
			},
			func(l transport.Listener) { // one that was not
				require.Eventually(t, func() bool { return len(l.(*listener).queue) > 0 }, patience, time.Millisecond)
				require.NoError(t, l.Close())
			},
		} {
			a := newEnd(t, d)
			l, err := d.Listen(net.JoinHostPort(host, "0"))
			require.NoError(t, err)
			a.conn, err = d.Resolve(testContext(t), l.Addr())
			require.NoError(t, err)
			a.createQP(nil)
			require.NoError(t, a.conn.Connect(transport.ConnParams{}))
			close(l)
			_, err = a.conn.Established(testContext(t))
			require.ErrorIs(t, err, transport.ErrRejected)
			require.NoError(t, l.Close())
			a.close()
		}
	})
}

// Giving up before the peer has answered.
func TestClosedWhileConnecting(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a := newEnd(t, d)
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		a.conn, err = d.Resolve(testContext(t), l.Addr())
		require.NoError(t, err)
		a.createQP(nil)
		require.NoError(t, a.conn.Connect(transport.ConnParams{}))
		b, err := l.Next(testContext(t))
		require.NoError(t, err)
		short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err = a.conn.Established(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no answer: ")
		start := time.Now()
		require.NoError(t, a.conn.Disconnect())
		require.Less(t, time.Since(start), patience/4, "it does not wait")
		require.ErrorIs(t, a.ended(), transport.ErrDisconnected)
		_, err = a.conn.Established(testContext(t))
		require.ErrorIs(t, err, transport.ErrDisconnected)
		require.NoError(t, a.conn.Close())
		t.Logf("closed after %v", time.Since(start))
		require.NoError(t, b.Close())
		require.NoError(t, l.Close())
		a.close()
	})
}

func TestNobodyListens(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		ctx := testContext(t)
		a := newEnd(t, d)
		defer a.close()
		var err error
		a.conn, err = d.Resolve(ctx, net.JoinHostPort(host, "9"))
		require.NoError(t, err)
		a.createQP(nil)
		err = a.conn.Connect(transport.ConnParams{})
		if err == nil {
			_, err = a.conn.Established(ctx)
		}
		require.ErrorIs(t, err, transport.ErrUnreachable)
		t.Log(err)
		require.ErrorIs(t, a.ended(), transport.ErrUnreachable)
	})
}

func TestResolveFails(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		for _, addr := range []string{"", "nonsense", ":1"} {
			c, err := d.Resolve(testContext(t), addr)
			require.Error(t, err, "%q", addr)
			require.Nil(t, c)
			t.Log(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := d.Resolve(ctx, "10.99.0.1:1")
		require.ErrorIs(t, err, context.Canceled)
	})
}

// An address that nobody has is asked for until ctx ends.
func TestResolveWithoutAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	c := &conn{step: make(chan struct{}), done: make(chan struct{})}
	err := c.await(ctx, "resolve address", netip.MustParseAddrPort("10.77.0.9:7174"), 0)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "resolve address 10.77.0.9:7174: no answer: context deadline exceeded")
}

// An address of another device is refused, whichever device it is that gives its name for
// the message.
func TestListenOnAnothersAddress(t *testing.T) {
	infos, err := Devices()
	require.NoError(t, err)
	onDevices(t, func(t *testing.T, d *device, host string) {
		tried := false
		for _, other := range infos {
			if other.Name == d.name || len(other.Addrs) == 0 {
				continue
			}
			for range 20 { // memory that was freed may still hold what it did
				_, err := d.Listen(net.JoinHostPort(other.Addrs[0].String(), "0"))
				require.ErrorIs(t, err, transport.ErrInvalid)
				require.ErrorContains(t, err, "an address of another device, "+other.Name)
			}
			tried = true
		}
		if !tried {
			t.Skip("no other device here")
		}
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	})
}

// What a rejection's reason is called depends on the protocol.
func TestRejectedReasons(t *testing.T) {
	for _, test := range []struct {
		protocol transport.Protocol
		status   int
		data     string
		want     string
	}{
		{transport.IWARP, -104, "", "reason 104, 0 bytes of private data): ECONNRESET: mostly nobody listens there"},
		{transport.IWARP, -104, "no", "reason 104, 2 bytes of private data): ECONNRESET"},
		{transport.IWARP, -110, "", "reason 110, 0 bytes of private data): ETIMEDOUT"},
		{transport.RoCE, 104, "", "reason 104, 0 bytes of private data)"},
		{transport.IWARP, 5000, "", "reason 5000, 0 bytes of private data)"},
	} {
		err := rejected(test.protocol, test.status, []byte(test.data))
		require.ErrorIs(t, err, transport.ErrRejected)
		require.NotErrorIs(t, err, transport.ErrUnreachable)
		require.True(t, strings.HasSuffix(err.Error(), test.want), err)
		var r *transport.RejectedError
		require.ErrorAs(t, err, &r)
		require.Equal(t, test.data, string(r.PrivateData))
	}
	require.ErrorIs(t, rejected(transport.IWARP, -111, nil), transport.ErrUnreachable)
	require.ErrorIs(t, rejected(transport.RoCE, 8, nil), transport.ErrUnreachable)
}

func TestListenerNextAndClose(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		l, err := d.Listen(":0")
		require.NoError(t, err)
		t.Log(l.Addr())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err = l.Next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, d.Close(), transport.ErrBusy)
		go func() {
			time.Sleep(10 * time.Millisecond)
			l.Close()
		}()
		_, err = l.Next(testContext(t))
		require.ErrorIs(t, err, transport.ErrClosed)
		require.NoError(t, l.Close())
	})
}

func TestPeerDisconnects(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		called := make(chan error, 1)
		b.conn.AfterDone(func() { called <- b.conn.Err() })
		require.NoError(t, b.conn.Err())
		require.NoError(t, a.conn.Disconnect())
		require.NoError(t, a.conn.Disconnect())
		require.ErrorIs(t, a.ended(), transport.ErrDisconnected)
		require.ErrorIs(t, b.ended(), transport.ErrDisconnected)
		require.ErrorIs(t, <-called, transport.ErrDisconnected)
		b.conn.AfterDone(func() { called <- nil })
		<-called
		for _, e := range []*end{a, b} {
			for _, c := range e.complete(queueSize) {
				require.Equal(t, transport.StatusFlushed, c.Status)
			}
			n, err := e.qp.PostSend([]transport.WR{{Op: transport.OpSend}}, nil)
			require.Zero(t, n)
			require.ErrorIs(t, err, transport.ErrBadState)
			n, err = e.qp.PostRecv([]transport.RecvWR{{}}, nil)
			require.Zero(t, n)
			require.ErrorIs(t, err, transport.ErrBadState)
		}
	})
}

// Everything accepted completes after Fail, also what was not signaled.
func TestFailFlushes(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		n, err := a.qp.PostSend([]transport.WR{{Op: transport.OpSend}}, nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		b.completeOK(recvCookie)
		reg, remote := b.expose(0, 1<<16, transport.LocalWrite|transport.RemoteRead)
		wrs := make([]transport.WR, 32)
		at := a.sge(0, 1<<16)
		for i := range wrs {
			wrs[i] = transport.WR{Cookie: uint64(i), Op: transport.OpRead, FirstSGE: at, NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key}
		}
		wrs[len(wrs)-1].Flags = transport.Signaled
		n, err = a.qp.PostSend(wrs, a.sges)
		require.NoError(t, err)
		require.Equal(t, len(wrs), n)
		require.NoError(t, a.qp.Fail())
		require.Equal(t, transport.QPError, a.qp.State())
		// Unsignaled requests that were done before Fail leave nothing. The last one does,
		// done or not: it may be, if somebody else got the CPU in between.
		deadline := time.Now().Add(patience)
		recvs, last := 0, false
		for recvs < queueSize || !last {
			require.True(t, time.Now().Before(deadline), "%d receives, last send %v", recvs, last)
			var buf [16]transport.Completion
			n, err := a.cq.Poll(buf[:])
			require.NoError(t, err)
			for _, c := range buf[:n] {
				isLast := c.Cookie == uint64(len(wrs)-1)
				if !isLast || c.Status != transport.StatusOK {
					require.Equal(t, transport.StatusFlushed, c.Status)
				}
				if c.Cookie >= recvCookie {
					recvs++
				} else {
					last = isLast
				}
			}
		}
		require.NoError(t, reg.Close())
	})
}

func TestPostBeforeConnected(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a := newEnd(t, d)
		defer a.close()
		l, err := d.Listen(net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		defer l.Close()
		a.conn, err = d.Resolve(testContext(t), l.Addr())
		require.NoError(t, err)
		require.Nil(t, a.conn.QP())
		require.ErrorIs(t, a.conn.Connect(transport.ConnParams{}), transport.ErrBadState)
		a.createQP(nil)
		require.Equal(t, a.qp, a.conn.QP())
		_, err = a.conn.CreateQP(a.config())
		require.ErrorIs(t, err, transport.ErrBadState)
		n, err := a.qp.PostSend([]transport.WR{{Op: transport.OpSend}}, nil)
		require.Zero(t, n)
		require.ErrorIs(t, err, transport.ErrBadState)
		a.recv(queueSize)
		require.ErrorIs(t, a.cq.Close(), transport.ErrBusy)
		require.ErrorIs(t, a.pd.Close(), transport.ErrBusy)
		require.ErrorIs(t, a.mem.Close(), transport.ErrBusy)
		t.Log(d.Close())
	})
}
