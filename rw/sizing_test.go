package rw_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// An endpoint and a pool of exactly the computed sizes carry the whole workload at
// once: nothing waits for send queue slots or registrations, whatever the lists
// look like.
func TestSizesSufficeForTheWorstCase(t *testing.T) {
	for _, profile := range sim.Profiles() {
		for seed := range uint64(4) {
			w := rw.Workload{Reads: 3, Writes: 3, Bytes: 64 << 10, Pieces: 20, Remotes: 3, Sends: 2, Recvs: 2, Aligned: seed%2 == 0}
			t.Run(fmt.Sprintf("%s, %d", profile.Name, seed), func(t *testing.T) { sizesSuffice(t, profile.Name, w, seed) })
		}
	}
}

func sizesSuffice(t *testing.T, profile string, w rw.Workload, seed uint64) {
	devA, devB, addr := simBed(profile).open(t)
	sizes, err := rw.Size(w, devA.Caps(), rw.Policy{}, 0)
	require.NoError(t, err)
	p := &pair{a: newSide(t, devA), b: newSide(t, devB)}
	p.listen, err = devB.Listen(addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.listen.Close()) })
	pool, err := mrpool.New(p.a.pd, sizes.Pool())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	a, b := p.dial(t, rw.EndpointConfig{Pool: pool, QueueCaps: sizes.Queues()},
		rw.EndpointConfig{})
	var x rw.Exposure
	remote := p.b.expose(b, &x, []transport.Piece{p.b.region.Piece(0, 64<<10)}, mrpool.ReadSource|mrpool.WriteSink)

	_, depth := a.Credits()
	rng := rand.New(rand.NewPCG(seed, 1))
	cs := make([]rw.Context, w.Reads+w.Writes)
	ended := make(chan *rw.Context, len(cs))
	reads := 0
	for i := range cs {
		op := rw.Write
		if i < w.Reads {
			op = rw.Read
		}
		list := pieces(p.a.region, rng, w)
		require.NoError(t, a.Prepare(&cs[i], rw.Transfer{Op: op, Local: list, Remote: cut([]transport.Remote{remote[0]}, 1+rng.IntN(w.Remotes))}))
		cs[i].OnDone = func(c *rw.Context) { ended <- c }
		if reads += cs[i].Plan().Cost.Reads; reads <= depth {
			require.NoError(t, a.Submit(&cs[i]))
			require.False(t, rw.Queued(a), "%v waits: %+v of %+v", op, cs[i].Plan(), sizes)
		} else {
			require.NoError(t, a.Submit(&cs[i])) // waits for READ depth, which the device limits
		}
	}
	for range cs {
		select {
		case c := <-ended:
			require.NoError(t, c.Err())
		case <-time.After(time.Minute):
			t.Fatal("a transfer never ended")
		}
	}
	p.b.revoke(b, &x)
}

// pieces makes a list within the workload, as bad as that allows.
func pieces(r *transport.Region, rng *rand.Rand, w rw.Workload) (list []transport.Piece) {
	n := 1 + rng.IntN(w.Pieces)
	for i := range n {
		at := uint64(i) * 8192 * 2
		size := uint32(w.Bytes) / uint32(w.Pieces)
		if w.Aligned {
			size = 4096 * max(1, size/8192)
			if i == 0 && n > 1 {
				at, size = at+4000, 96
			}
		} else {
			at += uint64(1 + rng.IntN(4000))
		}
		list = append(list, r.Piece(at, size))
	}
	return list
}

func TestSizesAreCutToTheDevice(t *testing.T) {
	caps := transport.Caps{MaxSendSGE: 4, MaxSGERead: 4, MaxSendWR: 50, MaxRecvWR: 10, MaxCQE: 100, InitiatorDepth: 5}
	s, err := rw.Size(rw.Workload{Reads: 100, Recvs: 100, Bytes: 4096, Pieces: 16}, &caps, rw.Policy{}, 0)
	require.NoError(t, err)
	require.Equal(t, rw.Sizes{MaxSendWR: 50, MaxRecvWR: 10, CQEntries: 100, ReadDepth: 5}, s)
	_, err = rw.Size(rw.Workload{Writes: 1, Bytes: 1 << 20, Pieces: 256}, &caps, rw.Policy{}, 0)
	require.ErrorIs(t, err, rw.ErrTooLarge, "64 requests in a queue of 50")
	_, err = rw.Size(rw.Workload{Reads: 1, Bytes: 1 << 20, Pieces: 256}, &caps, rw.Policy{FeedReads: true}, 0)
	require.NoError(t, err, "fed a part at a time")
}

func TestSizesOfNonsenseAreRefused(t *testing.T) {
	siw, _ := sim.LookupProfile("siw")
	for _, w := range []rw.Workload{{Reads: -1}, {Pieces: 1 << 40, Remotes: 1 << 40}, {Reads: 1, Bytes: 1 << 63}} {
		_, err := rw.Size(w, &siw.Caps, rw.Policy{}, 0)
		require.ErrorIs(t, err, transport.ErrInvalid)
	}
}

// The worked numbers of the kernel's ULPs: siw, 256 pages, 6 SGEs takes 43 requests
// for a WRITE that rdma_rw_mr_factor budgets 3 for.
func TestSizeOfAWriteOnSIW(t *testing.T) {
	siw, ok := sim.LookupProfile("siw-kernel")
	require.True(t, ok)
	s, err := rw.Size(rw.Workload{Writes: 1, Bytes: 1 << 20, Pieces: 256}, &siw.Caps, rw.Policy{}, 6)
	require.NoError(t, err)
	require.Equal(t, 43+1, s.MaxSendWR)
	s, err = rw.Size(rw.Workload{Reads: 128, Bytes: 1 << 20, Pieces: 256, Aligned: true}, &siw.Caps, rw.Policy{}, 6)
	require.NoError(t, err)
	require.Equal(t, 128*2, s.FastMRs, "two when the list doesn't start on a page border")
}
