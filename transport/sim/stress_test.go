package sim

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

// Several connections at work at once, each side in a goroutine of its own, and
// the connections torn down under them: for the race detector, and for
// deadlocks.
func TestManyGoroutines(t *testing.T) {
	for _, name := range []string{"rxe", "siw"} {
		a, b, c := strangers(t, name, func(c *pairConfig) { c.cfg.Stepped = false })
		l, err := b.dev.Listen("b:1")
		require.NoError(t, err)
		const conns, rounds = 4, 50 // rounds: as many receives are posted
		var all sync.WaitGroup
		for i := range uint64(conns) {
			x, y := *a, *b
			x.cq, _ = a.dev.NewCQ(1024)
			y.cq, _ = b.dev.NewCQ(1024)
			x.rcq, y.rcq = x.cq, y.cq
			x.dial("b:1", c, transport.ConnParams{})
			in, err := l.Next(t.Context())
			require.NoError(t, err)
			y.create(in, c)
			key := y.expose(i*64, 64, remoteRW).RKey(0)
			for j := range uint64(rounds) {
				y.recv(j, y.sge(4096+i*64, 64))
			}
			require.NoError(t, y.conn.Accept(transport.ConnParams{}))
			_, err = x.conn.Established(t.Context())
			require.NoError(t, err)
			all.Go(func() {
				for j := range uint64(rounds) {
					fill(x.mem(int(i*64), 64), byte(j))
					x.post([]transport.WR{
						{Op: transport.OpWrite, RemoteAddr: b.region.Addr() + i*64, RKey: key, NumSGE: 1},
						{Op: transport.OpSend, NumSGE: 1},
						{Op: transport.OpRead, RemoteAddr: b.region.Addr() + i*64, RKey: key, FirstSGE: 1, NumSGE: 1, Flags: transport.Signaled},
					}, x.sge(i*64, 64), x.sge(8192+i*64, 64))
					if done := x.wait(x.cq); done.Status != transport.StatusOK {
						t.Errorf("status %v", done.Status)
						return
					}
					if !bytes.Equal(x.mem(int(i*64), 64), x.mem(int(8192+i*64), 64)) {
						t.Error("other data")
					}
				}
				if err := x.conn.Close(); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				for range rounds {
					if done := y.wait(y.cq); done.Status != transport.StatusOK {
						t.Errorf("status %v", done.Status)
						return
					}
				}
				<-y.conn.Done()
				if err := y.conn.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		require.NoError(t, a.dev.fabric.Err())
	}
}

func TestClosingTheFabricReleasesEveryoneAtAnyTime(t *testing.T) {
	for i := range 20 {
		a, b := newPair(t, "rxe", func(c *pairConfig) { c.cfg.Stepped = false })
		var all sync.WaitGroup
		all.Go(func() {
			for range 1000 {
				if n, err := a.qp.PostSend(write(1), nil); n == 0 || err != nil {
					return
				}
			}
		})
		all.Go(func() {
			for b.cq.Wait(t.Context()) == nil {
			}
		})
		time.Sleep(time.Duration(i) * 20 * time.Microsecond)
		require.NoError(t, a.dev.fabric.Close())
		all.Wait()
	}
}
