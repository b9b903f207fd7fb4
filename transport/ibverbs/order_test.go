package ibverbs

import (
	"math/rand/v2"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func cookies(list []transport.Completion) (all []uint64) {
	for _, c := range list {
		all = append(all, c.Cookie)
	}
	return all
}

func TestWhatIsBehindAReadWaitsForIt(t *testing.T) {
	o := newOrder(4)
	signaled := func(op transport.Opcode, cookie uint64) transport.WR {
		return transport.WR{Op: op, Cookie: cookie, Flags: transport.Signaled}
	}
	o.posting([]transport.WR{
		signaled(transport.OpRead, 1),
		{Op: transport.OpWrite, Cookie: 2},
		signaled(transport.OpWrite, 3),
		{Op: transport.OpRead, Cookie: 4},
		signaled(transport.OpSend, 5),
	})
	tell := func(c transport.Completion) []uint64 { return cookies(o.completed(&c, nil)) }
	require.Empty(t, tell(transport.Completion{Cookie: 3}))
	require.Empty(t, tell(transport.Completion{Cookie: 5}))
	require.Equal(t, []uint64{1, 3}, tell(transport.Completion{Cookie: 1}))
	require.Equal(t, []uint64{5}, tell(transport.Completion{Cookie: 4}), "nobody asked for the READ's own")
	require.Equal(t, o.head, o.tail)
	require.Equal(t, []uint64{9}, tell(transport.Completion{Cookie: 9, Flags: transport.Receive}))
	require.Equal(t, []uint64{9}, tell(transport.Completion{Cookie: 9, Status: transport.StatusFlushed}), "a receive's, or of a queue pair before")
}

func TestCookiesOfUnsignaledRequestsMayRepeat(t *testing.T) {
	o := newOrder(4)
	o.posting([]transport.WR{{Op: transport.OpWrite}, {Op: transport.OpWrite}, {Op: transport.OpSend, Flags: transport.Signaled}})
	require.Len(t, o.completed(&transport.Completion{}, nil), 1)
	require.Equal(t, o.head, o.tail)
}

func TestFlushedRequestsAreInOrderToo(t *testing.T) {
	o := newOrder(1)
	var wrs []transport.WR
	for i := range 40 { // it grows
		wrs = append(wrs, transport.WR{Op: []transport.Opcode{transport.OpRead, transport.OpWrite}[i%2], Cookie: uint64(i)})
	}
	o.posting(wrs)
	o.refused(4)
	o.posting(wrs[36:38])
	var got []transport.Completion
	// The first READ and two WRITEs were done; the READs from 6 on are forgotten.
	got = o.completed(&transport.Completion{Cookie: 0}, got)
	require.Empty(t, got)
	for _, i := range []uint64{2, 4} {
		got = o.completed(&transport.Completion{Cookie: i, Status: transport.StatusFlushed}, got)
	}
	for i := uint64(5); i < 38; i += 2 {
		got = o.completed(&transport.Completion{Cookie: i, Status: transport.StatusFlushed}, got)
	}
	want := []uint64{2}
	for i := range uint64(34) {
		want = append(want, i+4)
	}
	require.Equal(t, want, cookies(got))
	for _, c := range got {
		require.Equal(t, transport.StatusFlushed, c.Status)
	}
}

// Against a model: two classes, each in order, interleaved at random.
func TestOrderOfRandomQueues(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		o := newOrder(8)
		all := orders{byQPN: map[uint32]*order{7: o}, buf: make([]transport.Completion, 1+r.IntN(5))}
		var wrs []transport.WR
		var classes [2][]transport.Completion // as the device completes them
		var want []uint64
		n := 1 + r.IntN(60)
		for i := range n {
			w := transport.WR{Op: transport.OpWrite, Cookie: uint64(i)}
			if r.IntN(2) == 0 {
				w.Op = transport.OpRead
			}
			if r.IntN(2) == 0 || i == n-1 {
				w.Flags = transport.Signaled
				want = append(want, w.Cookie)
			}
			wrs = append(wrs, w)
			switch c := (transport.Completion{Cookie: w.Cookie, QPN: 7}); {
			case w.Op == transport.OpRead:
				classes[0] = append(classes[0], c)
			case w.Flags != 0:
				classes[1] = append(classes[1], c)
			}
		}
		o.posting(wrs)
		device := func(dst []transport.Completion) (n int) {
			for n < len(dst) && len(classes[0])+len(classes[1]) > 0 {
				k := r.IntN(2)
				if len(classes[k]) == 0 {
					continue
				}
				dst[n], classes[k] = classes[k][0], classes[k][1:]
				n++
			}
			return n
		}
		var got []transport.Completion
		for {
			dst := make([]transport.Completion, 1+r.IntN(5))
			n := all.poll(dst, device)
			got = append(got, dst[:n]...)
			if n < len(dst) {
				break // there were no more
			}
		}
		require.Equal(t, want, cookies(got), "seed %d", seed)
	}
}

// TestSignsThatNobodyAskedFor: requests that are signaled only so that their memory is
// free when it is said to be.
func TestSignsThatNobodyAskedFor(t *testing.T) {
	o := newOrder(4)
	o.signals = ops(transport.OpWrite)
	o.posting([]transport.WR{
		{Op: transport.OpWrite, Cookie: 1},
		{Op: transport.OpWrite, Cookie: 1},
		{Op: transport.OpSend, Cookie: 2, Flags: transport.Signaled},
		{Op: transport.OpWrite, Cookie: 3},
	})
	tell := func(c transport.Completion) []uint64 { return cookies(o.completed(&c, nil)) }
	require.Empty(t, tell(transport.Completion{Cookie: 1}))
	require.Empty(t, tell(transport.Completion{Cookie: 1}))
	require.Equal(t, []uint64{2}, tell(transport.Completion{Cookie: 2}))
	require.Empty(t, tell(transport.Completion{Cookie: 3}))
	require.Equal(t, o.head, o.tail)
	o.posting([]transport.WR{{Op: transport.OpWrite, Cookie: 4}})
	require.Equal(t, []uint64{4}, tell(transport.Completion{Cookie: 4, Status: transport.StatusRemoteAccess}), "failures are always told")
}
