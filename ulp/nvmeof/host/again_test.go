package host_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommandThatCostsConnections: a command that costs one connection after the other isn't
// sent for ever; and others go on.
func TestCommandThatCostsConnections(t *testing.T) {
	s := newStepped(t, "mlx5-kernel", sim.Config{})
	cfg := s.config()
	cfg.CommandTimeout, cfg.LossTimeout, cfg.KeepAlive = time.Second, 10*time.Second, -1
	c, ns := s.connect(cfg)
	m := region(t, c, 64<<10)
	s.answer = func(cmd *nvme.Command, _ *fakeAnswer) bool { return cmd.Opcode != nvme.Read || cmd.LBA() != 7 }
	begun := s.now()
	err := ns.Read(context.Background(), 7, m.Piece(0, 8192))
	assert.ErrorIs(t, err, host.ErrLost)
	assert.ErrorIs(t, err, host.ErrTimeout)
	took := s.now().Sub(begun)
	assert.GreaterOrEqual(t, took, 10*time.Second)
	assert.LessOrEqual(t, took, 30*time.Second)
	assert.NoError(t, ns.Read(context.Background(), 8, m.Piece(0, 8192)))
	assert.NoError(t, c.Err())
}

// TestCloseWhileConnecting: who waits for a connection to be made anew, and sees the
// controller closed instead, is told that.
func TestCloseWhileConnecting(t *testing.T) {
	for _, delay := range []time.Duration{time.Nanosecond, time.Hour} {
		r := newRig(t, simulated(t, "mlx5-kernel"), target.Config{})
		c, err := r.dial(host.Config{ReconnectDelay: delay})
		require.NoError(t, err)
		ns, err := c.Namespace(timeout(t), 1)
		require.NoError(t, err)
		r.shutdown()
		ended := make(chan error, 1)
		go func() {
			_, err := ns.ReadAt(make([]byte, 512), 0)
			ended <- err
		}()
		time.Sleep(20 * time.Millisecond)
		require.NoError(t, c.Close())
		err = <-ended
		assert.ErrorIs(t, err, host.ErrClosed)
		assert.NotErrorIs(t, err, context.Canceled, "nobody's ctx was")
		assert.ErrorIs(t, ns.Flush(timeout(t)), host.ErrClosed)
	}
}

// TestSmallerTransfersBehindReconnect: a call goes on when one command on the connection that
// it waited for moves less than on the one that was lost.
func TestSmallerTransfersBehindReconnect(t *testing.T) {
	r := newRig(t, simulated(t, "rxe"), target.Config{MaxTransfer: 1 << 20})
	c := r.connect(host.Config{ReconnectDelay: 10 * time.Millisecond})
	ns, err := c.Namespace(timeout(t), 1)
	require.NoError(t, err)
	m := region(t, c, 1<<20)
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(i ^ i>>8 ^ i>>16)
	}
	want := bytes.Clone(m.Bytes())
	r.shutdown()
	written := make(chan error, 1)
	go func() { written <- ns.Write(timeout(t), 0, m.Piece(0, 1<<20)) }()
	time.Sleep(20 * time.Millisecond)
	r.cfg.MaxTransfer = 64 << 10
	r.serve()
	require.NoError(t, <-written)
	require.Equal(t, 64<<10, c.MaxTransfer())
	clear(m.Bytes())
	require.NoError(t, ns.Read(timeout(t), 0, m.Piece(0, 1<<20)))
	assert.True(t, bytes.Equal(want, m.Bytes()))
}

// TestTransfersBelowBlockBehindReconnect: where that is less than a block, the call ends.
func TestTransfersBelowBlockBehindReconnect(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	mdts := byte(4)
	s.data = func(cmd *nvme.Command, page []byte) {
		if nvme.CNS(cmd.CDW10) == nvme.CNSController {
			page[77] = mdts
		}
		identified(func(info *nvme.Namespace) { info.Size, info.Formats[0].Shift = 16, 16 })(cmd, page)
	}
	cfg := s.config()
	cfg.CommandTimeout = time.Second
	c, ns := s.connect(cfg)
	m := region(t, c, 64<<10)
	require.NoError(t, ns.Write(context.Background(), 0, m.Piece(0, 64<<10)))
	s.answer = func(cmd *nvme.Command, _ *fakeAnswer) bool { return cmd.Opcode != nvme.Write }
	mdts = 3
	err := ns.Write(context.Background(), 0, m.Piece(0, 64<<10))
	assert.ErrorIs(t, err, host.ErrTooLarge)
	assert.ErrorContains(t, err, "a command moves 32768 bytes, blocks have 65536")
}

// TestStepFails: a call that ends because Step does leaves nothing to the next one.
func TestStepFails(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	broken := errors.New("no more steps")
	fails := false
	cfg := s.config()
	cfg.Step = func() error {
		if fails {
			return broken
		}
		return s.move()
	}
	c, ns := s.connect(cfg)
	m := region(t, c, 64<<10)
	for i := range 8192 {
		m.Bytes()[i] = byte(i / 3)
	}
	want := bytes.Clone(m.Bytes()[:8192])
	require.NoError(t, ns.Write(context.Background(), 0, m.Piece(0, 8192)))
	for range 5 {
		fails = true
		assert.ErrorIs(t, ns.Read(context.Background(), 0, m.Piece(8192, 8192)), broken)
		fails = false
		clear(m.Bytes())
		require.NoError(t, ns.Read(context.Background(), 0, m.Piece(0, 8192)))
		require.True(t, bytes.Equal(want, m.Bytes()[:8192]), "ended before it was over")
	}
}
