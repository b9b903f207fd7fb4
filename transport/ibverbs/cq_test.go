//go:build ibverbs && linux && cgo

package ibverbs

import (
	"context"
	"testing"
	"time"

	"rdmarw/transport"

	"github.com/stretchr/testify/require"
)

func TestWait(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		for i := range 20 {
			require.NoError(t, b.cq.Arm())
			n, err := b.cq.Poll(make([]transport.Completion, 4))
			require.NoError(t, err)
			require.Zero(t, n)
			go func() {
				time.Sleep(time.Millisecond)
				a.qp.PostSend([]transport.WR{{Op: transport.OpSend, Flags: transport.Signaled}}, nil)
			}()
			for n == 0 {
				require.NoError(t, b.cq.Wait(testContext(t)))
				n, err = b.cq.Poll(make([]transport.Completion, 4))
				require.NoError(t, err)
			}
			require.Equal(t, 1, n, "round %d", i)
			a.completeOK(0)
		}
		// An event that nobody waits for doesn't survive the next Arm.
		require.NoError(t, b.cq.Arm())
		a.post(transport.WR{Op: transport.OpSend, Flags: transport.Signaled})
		b.complete(1)
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, b.cq.Arm())
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.cq.Wait(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, b.cq.Wait(ctx), context.DeadlineExceeded)
	})
}

func TestWake(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		q, err := d.NewCQ(10)
		require.NoError(t, err)
		ctx := testContext(t)
		for range 100 {
			q.Wake() // before
			require.NoError(t, q.Wait(ctx))
			go q.Wake() // about at the same time
			require.NoError(t, q.Wait(ctx))
		}
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		for q.Wait(short) == nil { // the last Wake may be on its way still
		}
		require.ErrorIs(t, q.Wait(short), context.DeadlineExceeded)
		done := make(chan error)
		go func() {
			for {
				if err := q.Wait(context.Background()); err != nil {
					done <- err
					return
				}
			}
		}()
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, q.Close())
		require.ErrorIs(t, <-done, transport.ErrClosed)
		require.ErrorIs(t, q.Wait(ctx), transport.ErrClosed)
		require.ErrorIs(t, q.Arm(), transport.ErrClosed)
		_, err = q.Poll(make([]transport.Completion, 1))
		require.ErrorIs(t, err, transport.ErrClosed)
		q.Wake()
		require.NoError(t, q.Close())
	})
}

func TestOverrun(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		a, b := newEnd(t, d), newEnd(t, d)
		small, err := d.NewCQ(1)
		require.NoError(t, err)
		connectWith(t, a, b, host, func(c *transport.QPConfig) {
			if c.PD == a.pd {
				c.SendCQ = small
			}
		})
		wrs := make([]transport.WR, 20)
		for i := range wrs {
			wrs[i] = transport.WR{Op: transport.OpWrite, Flags: transport.Signaled}
		}
		if _, err := a.qp.PostSend(wrs, nil); err != nil {
			t.Log(err)
		}
		select {
		case ev := <-d.Events():
			t.Logf("%+v", ev)
			require.Equal(t, transport.EventCQError, ev.Kind)
		case <-time.After(patience):
			require.Fail(t, "no event")
		}
		require.Eventually(t, func() bool {
			_, err := small.Poll(make([]transport.Completion, 4))
			return err != nil
		}, patience, time.Millisecond)
		_, err = small.Poll(make([]transport.Completion, 4))
		require.ErrorIs(t, err, transport.ErrCQOverrun)
		a.close()
		b.close()
		require.NoError(t, small.Close())
	})
}

func TestSRQ(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		if d.caps.MaxSRQWR == 0 {
			require.NotContains(t, []driverID{driverRXE, driverSIW}, d.info.driver, "they have shared receive queues")
			t.Skip("no shared receive queues")
		}
		b, b2 := newEnd(t, d), newEnd(t, d)
		s, err := b.pd.NewSRQ(16, 1)
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.Granted().MaxRecvWR, 16)
		var wrs []transport.RecvWR
		for i := range 4 {
			wrs = append(wrs, transport.RecvWR{Cookie: uint64(i), FirstSGE: uint32(i), NumSGE: 1})
			b.sge(i*100, 100)
		}
		n, err := s.PostRecv(wrs, b.sges)
		require.NoError(t, err)
		require.Equal(t, 4, n)

		// Two connections to one queue.
		var active [2]*end
		var passive [2]*end
		for i := range active {
			active[i] = newEnd(t, d)
			p := *b
			passive[i] = &p
			ctx := testContext(t)
			l, err := d.Listen(host + ":0")
			require.NoError(t, err)
			active[i].conn, err = d.Resolve(ctx, l.Addr())
			require.NoError(t, err)
			active[i].createQP(nil)
			require.NoError(t, active[i].conn.Connect(transport.ConnParams{}))
			p.conn, err = l.Next(ctx)
			require.NoError(t, err)
			passive[i].createQP(func(c *transport.QPConfig) { c.SRQ = s })
			_, err = p.qp.PostRecv(wrs, b.sges)
			require.ErrorIs(t, err, transport.ErrInvalid)
			require.NoError(t, p.conn.Accept(transport.ConnParams{}))
			_, err = active[i].conn.Established(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Close())
		}
		require.ErrorIs(t, s.Close(), transport.ErrBusy)
		for round := range 2 {
			for i := range active {
				fill(active[i].mem.Bytes()[:50], byte(round*2+i))
				active[i].post(transport.WR{Op: transport.OpSend, Flags: transport.Signaled, FirstSGE: active[i].sge(0, 50), NumSGE: 1})
				active[i].completeOK(0)
				c := b.complete(1)[0]
				require.Equal(t, transport.StatusOK, c.Status)
				require.Equal(t, passive[i].qp.Num(), c.QPN)
				require.EqualValues(t, round*2+i, c.Cookie)
				require.Equal(t, active[i].mem.Bytes()[:50], b.mem.Bytes()[c.Cookie*100:][:50])
			}
		}
		for i := range active {
			active[i].close()
			require.NoError(t, passive[i].conn.Close())
		}
		require.NoError(t, s.Close())
		_, err = s.PostRecv(wrs, b.sges)
		require.ErrorIs(t, err, transport.ErrClosed)
		b.close()
		b2.close()
	})
}

// In steady state nothing is allocated, and a chain or a batch of completions is one
// call into C, whatever its length.
// A message that finds no receive is sent again soon after there is one, not after the 655 ms
// that the CM's timer of 0 means.
func TestMessageWithoutReceive(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, host string) {
		if d.caps.Protocol == transport.IWARP {
			t.Skip("the connection would end")
		}
		a, b := pair(t, d, host)
		for _, e := range []*end{a, b} {
			q := e.qp.(*qp)
			q.control.Lock()
			attr, ok := q.query()
			q.control.Unlock()
			require.True(t, ok)
			require.EqualValues(t, 12, attr.min_rnr_timer)
		}
		send := transport.WR{Cookie: 1, Op: transport.OpSend, Flags: transport.Signaled}
		for range queueSize {
			a.post(send)
			a.completeOK(1)
		}
		b.complete(queueSize)

		begun := time.Now()
		a.post(send)
		time.Sleep(20 * time.Millisecond)
		n, err := a.cq.Poll(make([]transport.Completion, 1))
		require.NoError(t, err)
		require.Zero(t, n, "there was no receive")
		b.recv(1)
		a.completeOK(1)
		b.completeOK(recvCookie)
		require.Less(t, time.Since(begun), 300*time.Millisecond)
	})
}

func TestOneCallAndNoAllocations(t *testing.T) {
	eachWay(t, func(t *testing.T, d *device, host string) {
		a, b := pair(t, d, host)
		reg, remote := b.expose(0, 100, transport.LocalWrite|transport.RemoteWrite)
		sges := []transport.SGE{{Addr: a.mem.Addr(), Len: 100, LKey: a.lkey()}}
		wrs := make([]transport.WR, 16)
		for i := range wrs {
			wrs[i] = transport.WR{Op: transport.OpWrite, NumSGE: 1, RemoteAddr: remote.Addr, RKey: remote.Key}
		}
		wrs[15] = transport.WR{Op: transport.OpSend, Flags: transport.Signaled}
		recv := []transport.RecvWR{{NumSGE: 1}, {NumSGE: 1}}
		recvSGE := []transport.SGE{{Addr: b.mem.Addr() + recvAt, Len: 16, LKey: b.lkey()}}
		var dst [16]transport.Completion
		var posts, recvs, polls uint64
		await := func(q transport.CQ, want int) {
			for start := time.Now(); want > 0; {
				n, err := q.Poll(dst[:])
				polls++
				if err != nil {
					t.Fatal(err)
				}
				if want -= n; want > 0 {
					time.Sleep(10 * time.Microsecond)
				}
				if time.Since(start) > patience {
					t.Fatalf("%d completions are missing", want)
				}
			}
		}
		calls := func() [3]uint64 {
			q, p := a.qp.(*qp), b.qp.(*qp)
			return [3]uint64{uint64(q.c.calls), uint64(p.c.recv.calls), uint64(q.scq.c.calls + p.rcq.c.calls)}
		}
		before := calls()
		allocs := testing.AllocsPerRun(20, func() {
			for range 2 {
				if n, err := a.qp.PostSend(wrs, sges); n != len(wrs) || err != nil {
					t.Fatal(n, err)
				}
				posts++
			}
			await(a.cq, 2)
			await(b.cq, 2)
			if n, err := b.qp.PostRecv(recv, recvSGE); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			recvs++
		})
		require.Zero(t, allocs)
		after := calls()
		require.Equal(t, [3]uint64{posts, recvs, polls}, [3]uint64{after[0] - before[0], after[1] - before[1], after[2] - before[2]})
		require.NoError(t, reg.Close())
	})
}

// Queues can be made wherever in a context their mapping lies: enough of one page each to
// cover twice the page that libsiw takes for none (see quirk.keyTaken).
func TestManyQueuesOfOneContext(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		var all []transport.CQ
		for i := range 2 * 0x90 {
			q, err := d.NewCQ(2)
			require.NoError(t, err, "queue %d", i)
			all = append(all, q)
		}
		for _, q := range all {
			require.NoError(t, q.Close())
		}
	})
}

// A Wait ends with its own context, whether that is the one of the Wait before or not, and the
// one before ends it no more.
func TestWaitMindsItsContext(t *testing.T) {
	onDevices(t, func(t *testing.T, d *device, _ string) {
		q, err := d.NewCQ(10)
		require.NoError(t, err)
		defer q.Close()
		until := func(ctx context.Context) (times int) {
			for ctx.Err() == nil {
				if err := q.Wait(ctx); err != nil {
					require.ErrorIs(t, err, ctx.Err())
				}
				times++
			}
			return times
		}
		for range 20 {
			first, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			until(first)
			require.ErrorIs(t, q.Wait(first), context.DeadlineExceeded)
			other, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond)
			defer cancel()
			require.LessOrEqual(t, until(other), 3) // the first one's end may be on its way still
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		require.Zero(t, testing.AllocsPerRun(20, func() { q.Wake(); q.Wait(ctx) }))
	})
}
