package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFieldsThatMeanNothing: what a completion says of the submission queue is of no use to
// this host, and may be anything.
func TestFieldsThatMeanNothing(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	s.answer = func(_ *nvme.Command, a *fakeAnswer) bool {
		a.SQHead, a.SQID = uint16(rng.Uint32()), uint16(rng.Uint32())
		return true
	}
	c, ns := s.connect(s.config())
	m := region(t, c, 64<<10)
	for i := range uint64(100) {
		require.NoError(t, ns.Write(context.Background(), i, m.Piece(0, 8192)))
		require.NoError(t, ns.Read(context.Background(), i, m.Piece(0, 8192)))
	}
	assert.Zero(t, c.Stats().Reconnects)
}

// TestEndlessNamespaces: a list of namespaces that goes round is noticed.
func TestEndlessNamespaces(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	asked := 0
	s.data = func(cmd *nvme.Command, page []byte) {
		if nvme.CNS(cmd.CDW10) != nvme.CNSActiveList {
			return
		}
		asked++
		require.Less(t, asked, 10, "it goes on and on")
		for i := range nvme.MaxActive - 1 {
			binary.LittleEndian.PutUint32(page[4*i:], uint32(100+i))
		}
		binary.LittleEndian.PutUint32(page[4*(nvme.MaxActive-1):], 1)
	}
	c, _ := s.connect(s.config())
	_, err := c.Namespaces(context.Background())
	assert.ErrorIs(t, err, host.ErrProtocol)
}

// TestNonsense: identify data of random bytes here and there. The host may refuse it, or
// take it; it doesn't panic or hang, and no command that it would send is beyond what it was
// told.
func TestNonsense(t *testing.T) {
	for seed := range uint64(90) {
		rng := rand.New(rand.NewPCG(seed, 5))
		func() {
			s := newStepped(t, []string{"rxe", "siw", "mlx5-kernel"}[seed%3], sim.Config{Seed: seed})
			places := []int{77, 78, 240, 512, 513, 514, 515, 516, 520, 536, 1792, 1793, 1794, 1795, 1800, 0, 1, 6, 7, 15, 25, 26, 27, 29, 128, 130, 131, 132, 134}
			s.data = func(cmd *nvme.Command, page []byte) {
				for range rng.IntN(4) {
					page[places[rng.IntN(len(places))]] = byte(rng.Uint32())
				}
				if cmd.CDW10 == uint32(nvme.CNSController) {
					binary.LittleEndian.PutUint16(page[78:], 1)
				}
			}
			cfg := s.config()
			cfg.LossTimeout = -1
			c, err := host.Connect(context.Background(), "target:4420", nqn, cfg)
			if err != nil {
				require.True(t, errors.Is(err, host.ErrUnsupported) || errors.Is(err, host.ErrProtocol), "seed %d: %v", seed, err)
				return
			}
			defer func() { assert.NoError(t, c.Close()) }()
			require.GreaterOrEqual(t, c.MaxTransfer(), 4096)
			if _, err := c.Namespaces(context.Background()); err != nil {
				require.ErrorIs(t, err, host.ErrProtocol)
			}
			ns, err := c.Namespace(context.Background(), 1)
			if err != nil {
				return
			}
			require.Positive(t, ns.Size())
			m := region(t, c, 256<<10)
			var r host.Request
			for _, n := range []uint32{512, 4096, 65536, 256 << 10} {
				for _, lba := range []uint64{0, uint64(ns.Size())/uint64(ns.BlockSize()) - 1, ^uint64(0)} {
					if err := ns.Prepare(&r, host.IO{Op: host.Read, LBA: lba, Data: []transport.Piece{m.Piece(0, n)}}); err == nil {
						require.LessOrEqual(t, lba*uint64(ns.BlockSize())+uint64(n), uint64(ns.Size()))
					}
				}
			}
		}()
	}
}
