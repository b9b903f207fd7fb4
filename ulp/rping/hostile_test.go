package rping

import (
	"context"
	"errors"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// peer is an end that does as a test tells it, right or wrong.
type peer struct {
	*link
	t *testing.T
	x rw.Exposure
}

const peerData = 8192

func newPeer(t *testing.T, dev transport.Device, conn transport.Conn) *peer {
	t.Helper()
	poller, stop, err := startPoller(dev, 1)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stop()) })
	l, err := newLink(dev, poller, conn, peerData)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.close()) })
	require.NoError(t, l.postReceive())
	return &peer{link: l, t: t}
}

// connect makes a client.
func connect(t *testing.T, dev transport.Device, addr string) *peer {
	t.Helper()
	conn, err := dev.Resolve(timeout(t), addr)
	require.NoError(t, err)
	p := newPeer(t, dev, conn)
	require.NoError(t, establish(timeout(t), p.ep.Connect))
	return p
}

// expose lets the other end at n bytes of the peer's memory.
func (p *peer) expose(n uint32, ops mrpool.RemoteOps) transport.Remote {
	p.t.Helper()
	if p.x.Plan().Bytes > 0 {
		require.NoError(p.t, p.ep.Do(timeout(p.t), &p.x.Revoke))
	}
	require.NoError(p.t, p.ep.Expose(&p.x, []transport.Piece{p.region.Piece(0, n)}, ops))
	require.NoError(p.t, p.ep.Do(timeout(p.t), &p.x.Grant))
	return p.x.Remotes()[0]
}

// say sends a message of n bytes, which need not be a message. That it arrives is
// not checked.
func (p *peer) say(r transport.Remote, n uint32) error {
	b := make([]byte, messageLen)
	putMessage(b, r)
	copy(p.region.Bytes(), b)
	if err := p.ep.PrepareSend(&p.send, rw.Message{Local: []transport.Piece{p.region.Piece(0, n)}}); err != nil {
		return err
	}
	return p.ep.Do(timeout(p.t), &p.send)
}

// hear waits for a message.
func (p *peer) hear() transport.Remote {
	p.t.Helper()
	r, err := p.receive(timeout(p.t))
	require.NoError(p.t, err)
	require.NoError(p.t, p.postReceive())
	return r
}

// toSink plays a good client up to the go-ahead.
func (p *peer) toSink() {
	p.t.Helper()
	source := p.expose(4096, mrpool.ReadSource)
	require.NoError(p.t, p.say(source, messageLen))
	p.hear()
}

// errReceive stands for what a message that is too long ends with: a local length
// error, or rxe's local queue pair operation error.
var errReceive = errors.New("the receive failed")

// errRefused stands for what comes of a key that doesn't grant what is done with
// it. Mostly a remote access error. On iWARP the end of the connection, of which
// siw also makes a local queue pair operation error; a WRITE has mostly completed by
// then, so that only the client can say what became of it. And some devices don't look: rxe checks what is done through a window against the
// region below it, siw lets any memory be READ that it has a key of. What is not
// refused must do no harm: the session goes on, and ends when the client leaves.
var errRefused = errors.New("the peer's device refused")

func TestHostileClient(t *testing.T) {
	tests := []struct {
		name string
		do   func(p *peer)
		want error // nil: the session ends as it should
		text string
	}{
		{"leaves at once", func(p *peer) {}, nil, ""},
		{"short message", func(p *peer) { p.say(transport.Remote{}, 8) }, ErrMessage, "8 bytes"},
		{"empty message", func(p *peer) { p.say(transport.Remote{}, 0) }, ErrMessage, "0 bytes"},
		{"long message", func(p *peer) { p.say(transport.Remote{}, 17) }, errReceive, ""},
		{"no key", func(p *peer) { p.say(transport.Remote{Addr: 4096, Len: 64}, messageLen) }, ErrMessage, "no key"},
		{"no bytes", func(p *peer) { p.say(transport.Remote{Addr: 4096, Key: 1}, messageLen) }, ErrSize, ""},
		{"absurd size", func(p *peer) { p.say(transport.Remote{Addr: 4096, Key: 1, Len: 1<<32 - 1}, messageLen) }, ErrSize, ""},
		{"address wraps", func(p *peer) { p.say(transport.Remote{Addr: ^uint64(0), Key: 1, Len: 64}, messageLen) }, ErrMessage, "wraps"},
		{"wrong key", func(p *peer) {
			r := p.expose(64, mrpool.ReadSource)
			r.Key ^= 0x5500
			p.say(r, messageLen)
			p.receive(timeout(p.t))
		}, errRefused, ""},
		{"source not readable", func(p *peer) {
			p.say(p.expose(64, mrpool.WriteSink), messageLen)
			p.receive(timeout(p.t))
		}, errRefused, ""},
		{"source too short", func(p *peer) {
			r := p.expose(64, mrpool.ReadSource)
			r.Len++
			p.say(r, messageLen)
			p.receive(timeout(p.t))
		}, errRefused, ""},
		{"leaves after the READ", func(p *peer) { p.toSink() }, transport.ErrDisconnected, ""},
		{"sink too small", func(p *peer) {
			p.toSink()
			p.say(p.expose(4095, mrpool.WriteSink), messageLen)
		}, ErrSize, "4095"},
		{"sink of the source's dead key", func(p *peer) {
			p.toSink()
			r := p.x.Remotes()[0]
			require.NoError(p.t, p.ep.Do(timeout(p.t), &p.x.Revoke))
			p.say(r, messageLen)
			p.receive(timeout(p.t))
		}, errRefused, ""},
	}
	for _, at := range places(t) {
		for _, test := range tests {
			t.Run(at.name+"/"+test.name, func(t *testing.T) {
				dev, other, addr := at.open(t)
				addr, ends := serve(t, Server{Device: dev}, addr)
				p := connect(t, other, addr)
				test.do(p)
				switch test.want {
				case nil, transport.ErrDisconnected, errRefused:
					require.NoError(t, p.close())
				}
				e := next(t, ends)
				t.Logf("%d pings, %v", e.pings, e.err)
				switch test.want {
				case nil:
					assert.NoError(t, e.err)
				case errReceive:
					assert.True(t, errors.Is(e.err, transport.StatusLocalLength) || errors.Is(e.err, transport.StatusLocalQPOp), "%v", e.err)
				case errRefused:
					if e.err != nil {
						assert.True(t, errors.Is(e.err, transport.StatusRemoteAccess) || errors.Is(e.err, transport.ErrDisconnected) ||
							errors.Is(e.err, transport.StatusLocalQPOp), "%v", e.err)
					}
					return
				default:
					assert.ErrorIs(t, e.err, test.want)
					assert.ErrorContains(t, e.err, test.text)
				}
				assert.Zero(t, e.pings)
			})
		}
	}
}

// TestSilentClient: somebody who connects and says nothing costs one slot, and
// doesn't keep the server from ending.
func TestSilentClient(t *testing.T) {
	for _, at := range places(t) {
		t.Run(at.name, func(t *testing.T) {
			dev, other, addr := at.open(t)
			addr, ends := serve(t, Server{Device: dev}, addr)
			connect(t, other, addr)
			pings, err := (&Client{Device: other, Count: 3}).Ping(timeout(t), addr)
			require.NoError(t, err)
			assert.Equal(t, 3, pings)
			assert.Equal(t, end{pings: 3}, next(t, ends))
		})
	}
}

func TestHostileServer(t *testing.T) {
	tests := []struct {
		name string
		do   func(p *peer)
		want error
	}{
		{"leaves at once", func(p *peer) {}, transport.ErrDisconnected},
		{"leaves after the source", func(p *peer) { p.hear() }, transport.ErrDisconnected},
		{"short answer", func(p *peer) {
			p.hear()
			p.say(transport.Remote{}, 15)
			p.receive(timeout(p.t))
		}, ErrMessage},
		{"leaves after the go-ahead", func(p *peer) {
			p.hear()
			p.say(transport.Remote{}, messageLen)
			p.hear()
		}, transport.ErrDisconnected},
		{"writes nothing", func(p *peer) {
			p.hear()
			p.say(transport.Remote{}, messageLen)
			p.hear()
			p.say(transport.Remote{}, messageLen)
			p.receive(timeout(p.t))
		}, ErrData},
		{"writes to the source", func(p *peer) {
			source := p.hear()
			// On iWARP a WRITE completes when it is sent; what becomes of it is seen by
			// the client, whose data doesn't change and whose connection ends.
			err := p.ep.Write(timeout(p.t), []transport.Piece{p.region.Piece(0, 64)}, source)
			if p.ep.Limits().Caps.Protocol != transport.IWARP {
				assert.ErrorIs(p.t, err, transport.StatusRemoteAccess)
			}
			p.receive(timeout(p.t))
		}, nil},
		{"reads the source once more", func(p *peer) {
			source := p.hear()
			require.NoError(p.t, p.ep.Read(timeout(p.t), []transport.Piece{p.region.Piece(0, 64)}, source))
			p.say(transport.Remote{}, messageLen)
			p.hear() // the client revoked the source's key before it sent this
			assert.Error(p.t, p.ep.Read(timeout(p.t), []transport.Piece{p.region.Piece(0, 64)}, source))
		}, nil},
		{"reads the sink", func(p *peer) {
			p.hear()
			p.say(transport.Remote{}, messageLen)
			sink := p.hear()
			err := p.ep.Read(timeout(p.t), []transport.Piece{p.region.Piece(0, 64)}, sink)
			if p.ep.Limits().Caps.Protocol != transport.IWARP { // siw doesn't look at the right
				assert.ErrorIs(p.t, err, transport.StatusRemoteAccess)
			}
		}, nil},
	}
	for _, at := range places(t) {
		for _, test := range tests {
			t.Run(at.name+"/"+test.name, func(t *testing.T) {
				dev, other, addr := at.open(t)
				l, err := dev.Listen(addr)
				require.NoError(t, err)
				defer func() { assert.NoError(t, l.Close()) }()
				ended := make(chan error, 1)
				go func() {
					_, err := (&Client{Device: other, Verify: true}).Ping(timeout(t), l.Addr())
					ended <- err
				}()
				conn, err := l.Next(timeout(t))
				require.NoError(t, err)
				p := newPeer(t, dev, conn)
				require.NoError(t, establish(timeout(t), p.ep.Accept))
				test.do(p)
				require.NoError(t, p.close())
				select {
				case err := <-ended:
					t.Log(err)
					require.Error(t, err)
					if test.want != nil {
						assert.ErrorIs(t, err, test.want)
					}
					assert.NotErrorIs(t, err, context.DeadlineExceeded)
				case <-time.After(30 * time.Second):
					t.Fatal("the client does not end")
				}
			})
		}
	}
}
