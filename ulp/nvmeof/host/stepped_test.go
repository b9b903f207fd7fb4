package host_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *stepped) config() host.Config {
	return host.Config{Device: s.host, HostID: [16]byte{1}, Depth: 8, Step: s.move, Now: s.now}
}

func (s *stepped) connect(cfg host.Config) (*host.Controller, *host.Namespace) {
	c, err := host.Connect(context.Background(), "target:4420", nqn, cfg)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, c.Close()) })
	ns, err := c.Namespace(context.Background(), 1)
	require.NoError(s.t, err)
	return c, ns
}

// TestStepped: all of it in one goroutine, in virtual time, and the same each time: the
// fabric's log of two runs is the same to the byte.
func TestStepped(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			var logs [2]bytes.Buffer
			for i := range logs {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					s := newStepped(t, profile, sim.Config{Seed: 7, Log: &logs[i]})
					c, ns := s.connect(s.config())
					ctx := context.Background()
					m := region(t, c, 64<<10)
					for range 6 { // which Close takes out
						left, err := c.NewRegion(4096)
						require.NoError(t, err)
						defer func() {
							require.NoError(t, c.Close())
							require.NoError(t, left.Close())
						}()
					}
					for k := range 10 {
						n := 512 << (k % 7)
						for j := range n {
							m.Bytes()[j] = byte(j*k + 1)
						}
						want := bytes.Clone(m.Bytes()[:n])
						require.NoError(t, ns.Write(ctx, uint64(k), m.Piece(0, uint32(n))))
						clear(m.Bytes())
						require.NoError(t, ns.Read(ctx, uint64(k), m.Piece(1024, uint32(n))))
						require.Equal(t, want, m.Bytes()[1024:1024+n])
					}
					got := make([]byte, 100)
					_, err := ns.ReadAt(got, 700)
					require.NoError(t, err)
					require.NoError(t, ns.Flush(ctx))
				})
			}
			assert.NotEmpty(t, logs[0].Bytes())
			assert.True(t, bytes.Equal(logs[0].Bytes(), logs[1].Bytes()), "two runs of one seed differ")
		})
	}
}

// TestKeepAliveInTime: keep alives go out when virtual time says so, and an hour of
// silence is noticed within KATO.
func TestKeepAliveInTime(t *testing.T) {
	s := newStepped(t, "mlx5-kernel", sim.Config{})
	cfg := s.config()
	cfg.KeepAlive, cfg.LossTimeout = 10*time.Second, -1
	sent := 0
	s.answer = func(cmd *nvme.Command, _ *fakeAnswer) bool {
		if cmd.Opcode == nvme.KeepAlive {
			sent++
		}
		return true
	}
	c, ns := s.connect(cfg)
	for end := s.now().Add(time.Minute); s.now().Before(end); {
		require.NoError(t, c.Poll())
		require.NoError(t, s.move())
	}
	assert.InDelta(t, 12, sent, 1, "every 5 s")

	s.answer = func(*nvme.Command, *fakeAnswer) bool { return false }
	silent := s.now()
	for c.Err() == nil && s.now().Before(silent.Add(time.Hour)) {
		if err := ns.Flush(context.Background()); err != nil {
			assert.ErrorIs(t, err, host.ErrLost)
			assert.ErrorIs(t, err, host.ErrTimeout)
		}
	}
	assert.LessOrEqual(t, s.now().Sub(silent), 16*time.Second)
}

// TestLossTimeout: a controller that is lost is given up when LossTimeout says so, however
// long an attempt to connect may take.
func TestLossTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		connect time.Duration
		silent  func(*fake) // from when the connection is lost
	}{
		"no answer":               {0, func(f *fake) { f.ignore = true }},
		"no answer to its end":    {time.Hour, func(f *fake) { f.ignore = true }},
		"attempts that are short": {100 * time.Millisecond, func(f *fake) { f.ignore = true }},
		"nobody listens":          {0, func(f *fake) { f.ignore = true; f.listen.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStepped(t, "mlx5-kernel", sim.Config{})
			cfg := s.config()
			cfg.KeepAlive, cfg.LossTimeout, cfg.ConnectTimeout = time.Second, 5*time.Second, test.connect
			c, ns := s.connect(cfg)
			m := region(t, c, 8192)
			test.silent(s.fake)
			begun := s.now()
			assert.ErrorIs(t, ns.Read(context.Background(), 0, m.Piece(0, 8192)), host.ErrLost)
			took := s.now().Sub(begun)
			assert.ErrorIs(t, c.Err(), host.ErrLost)
			t.Log(took, c.Err())
			// The connection counts as lost 1 to 1.5 s after the last keep alive.
			assert.GreaterOrEqual(t, took, 4*time.Second, "attempts are made")
			assert.LessOrEqual(t, took, 7*time.Second)
		})
	}
}

// TestStatesOfRequest: what Submit says of a request that isn't prepared, is under way, or is
// over.
func TestStatesOfRequest(t *testing.T) {
	s := newStepped(t, "mlx5-kernel", sim.Config{})
	c, ns := s.connect(s.config())
	m := region(t, c, 8192)
	io := host.IO{Op: host.Read, Data: []transport.Piece{m.Piece(0, 8192)}}
	over := false
	r := host.Request{OnDone: func(*host.Request) { over = true }}
	assert.ErrorIs(t, c.Submit(&r), host.ErrNotPrepared)
	require.NoError(t, ns.Prepare(&r, io))
	require.NoError(t, c.Submit(&r))
	assert.ErrorIs(t, c.Submit(&r), host.ErrInUse)
	assert.ErrorIs(t, ns.Prepare(&r, io), host.ErrInUse)
	for !over {
		require.NoError(t, c.Poll())
		require.NoError(t, s.move())
	}
	require.NoError(t, r.Err())
	assert.ErrorIs(t, c.Submit(&r), host.ErrNotPrepared)
	require.NoError(t, ns.Prepare(&r, io))
	require.NoError(t, c.Submit(&r))
}

// TestDiscoverWithoutKeepAlive: who asks once and goes doesn't ask for a connection that
// stays, which older discovery controllers refuse.
func TestDiscoverWithoutKeepAlive(t *testing.T) {
	s := newStepped(t, "mlx5-kernel", sim.Config{})
	connects := 0
	s.answer = func(cmd *nvme.Command, a *fakeAnswer) bool {
		if cmd.Opcode == nvme.Fabrics && cmd.FabricsType() == nvme.ConnectType {
			connects++
			assert.Zero(t, cmd.CDW12, "KATO")
		}
		return true
	}
	cfg := s.config()
	cfg.KeepAlive = 5 * time.Second
	_, err := host.Discover(context.Background(), "target:4420", cfg)
	require.NoError(t, err)
	assert.Equal(t, 1, connects)
}

// TestMisbehaviour: what a controller mustn't do ends the connection, whatever it is.
// Nothing hangs, and no memory stays exposed.
func TestMisbehaviour(t *testing.T) {
	otherKey := transport.RKey(0)
	for _, test := range []struct {
		name string
		// on the second I/O command
		answer func(a *fakeAnswer) bool
		want   error
		only   string // profile
	}{
		{name: "no such command", want: host.ErrProtocol, answer: func(a *fakeAnswer) bool { a.CID ^= 0x8000; return true }},
		{name: "answered twice", want: host.ErrProtocol, answer: func(a *fakeAnswer) bool { a.twice = true; return true }},
		{name: "half an answer", want: host.ErrProtocol, answer: func(a *fakeAnswer) bool { a.bytes = 7; return true }},
		{name: "too long an answer", want: host.ErrLost, answer: func(a *fakeAnswer) bool { a.bytes = 64; return true }},
		{name: "silence", want: host.ErrTimeout, answer: func(a *fakeAnswer) bool { return false }},
		{name: "the key of another command", want: host.ErrProtocol, only: "mlx5-kernel", answer: func(a *fakeAnswer) bool {
			a.invalidate = otherKey
			return true
		}},
		{name: "no key at all", want: host.ErrLost, only: "mlx5-kernel", answer: func(a *fakeAnswer) bool {
			a.invalidate ^= 0x12345600
			return true
		}},
	} {
		for _, profile := range profiles {
			if test.only != "" && test.only != profile {
				continue
			}
			t.Run(test.name+"/"+profile, func(t *testing.T) {
				s := newStepped(t, profile, sim.Config{})
				cfg := s.config()
				cfg.LossTimeout = -1
				c, ns := s.connect(cfg)
				m := region(t, c, 64<<10)
				require.NoError(t, ns.Write(context.Background(), 0, m.Piece(0, 8192)))
				var requests [2]host.Request
				ended := 0
				for i := range requests {
					requests[i].OnDone = func(*host.Request) { ended++ }
					require.NoError(t, ns.Prepare(&requests[i], host.IO{Op: host.Read, Data: []transport.Piece{m.Piece(uint64(i)*8192, 8192)}}))
				}
				n := 0
				s.answer = func(cmd *nvme.Command, a *fakeAnswer) bool {
					if cmd.Opcode != nvme.Read {
						return true
					}
					if n++; n == 1 { // isn't answered while the test lasts
						otherKey = a.invalidate
						return false
					}
					return test.answer(a)
				}
				require.NoError(t, c.Submit(&requests[0]))
				require.NoError(t, c.Submit(&requests[1]))
				err := ns.Flush(context.Background())
				for ended < 2 {
					require.NoError(t, c.Poll())
					require.NoError(t, s.move())
				}
				assert.ErrorIs(t, requests[0].Err(), host.ErrLost)
				if err == nil {
					err = ns.Flush(context.Background())
				}
				assert.ErrorIs(t, err, host.ErrLost)
				assert.ErrorIs(t, c.Err(), test.want)
			})
		}
	}
}

// TestNotInvalidated: a controller that is asked to invalidate and doesn't is within its
// rights: the key is revoked here.
func TestNotInvalidated(t *testing.T) {
	s := newStepped(t, "mlx5-kernel", sim.Config{})
	c, ns := s.connect(s.config())
	s.answer = func(_ *nvme.Command, a *fakeAnswer) bool { a.invalidates = false; return true }
	m := region(t, c, 64<<10)
	before := c.Stats()
	for range 20 {
		require.NoError(t, ns.Read(context.Background(), 0, m.Piece(0, 8192)))
	}
	after := c.Stats()
	assert.EqualValues(t, 20, after.Exposed-before.Exposed)
	assert.Equal(t, before.RemoteInvalidated, after.RemoteInvalidated)
	assert.NoError(t, c.Err())
}

// TestCanceled: a command whose ctx ends, and that isn't answered, costs the connection:
// and the memory is the caller's again.
func TestCanceled(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	cfg := s.config()
	cfg.CancelGrace = 20 * time.Millisecond
	c, ns := s.connect(cfg)
	m := region(t, c, 64<<10)
	ctx, cancel := context.WithCancel(context.Background())
	s.answer = func(cmd *nvme.Command, _ *fakeAnswer) bool {
		if cmd.Opcode == nvme.Read && ctx.Err() == nil {
			cancel()
			return false
		}
		return true
	}
	assert.ErrorIs(t, ns.Read(ctx, 0, m.Piece(0, 8192)), context.Canceled)
	assert.NoError(t, ns.Read(context.Background(), 0, m.Piece(0, 8192)), "by another connection")
	assert.EqualValues(t, 1, c.Stats().Reconnects)
}

// TestFaults: devices that fail now and then, from many seeds. Commands end, with or
// without success; what was read without an error is right.
func TestFaults(t *testing.T) {
	for _, profile := range profiles {
		t.Run(profile, func(t *testing.T) {
			for seed := range uint64(20) {
				s := newStepped(t, profile, sim.Config{Seed: seed, Faults: sim.Faults{Chances: sim.Chances{Error: 0.004, Loss: 0.002}}})
				cfg := s.config()
				cfg.ReconnectDelay, cfg.LossTimeout = 10*time.Millisecond, time.Minute
				c, err := host.Connect(context.Background(), "target:4420", nqn, cfg)
				if err != nil {
					continue // that can happen as well
				}
				ns, err := c.Namespace(context.Background(), 1)
				if err != nil {
					assert.NoError(t, c.Close())
					continue
				}
				m, err := c.NewRegion(64 << 10)
				require.NoError(t, err)
				for k := range 30 {
					fill := bytes.Repeat([]byte{byte(k + 1)}, 8192)
					copy(m.Bytes(), fill)
					if ns.Write(context.Background(), uint64(k), m.Piece(0, 8192)) != nil {
						break
					}
					clear(m.Bytes())
					if ns.Read(context.Background(), uint64(k), m.Piece(0, 8192)) != nil {
						break
					}
					require.Equal(t, fill, m.Bytes()[:8192], "seed %d", seed)
				}
				assert.NoError(t, c.Close())
				assert.NoError(t, m.Close())
			}
		})
	}
}
