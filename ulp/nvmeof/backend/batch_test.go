package backend

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// doAll submits requests together, and returns their errors when all are over. If one is
// over twice, that panics.
func doAll(b Backend, rs ...*Request) []error {
	errs := make([]error, len(rs))
	var wg sync.WaitGroup
	wg.Add(len(rs))
	for i, r := range rs {
		r.Done = func(_ *Request, err error) {
			errs[i] = err
			wg.Done()
		}
	}
	SubmitAll(b, slices.Clone(rs))
	wg.Wait()
	return errs
}

// call is io_uring_enter.
type call func(fd, n int) syscall.Errno

// openRing opens a file of a MiB with a ring for 8 parts, of up to limit bytes (zero: any
// number), and has change put something before its system call.
func openRing(t *testing.T, limit int, change func(kernel call) call) *File {
	b, err := OpenFile(filepath.Join(t.TempDir(), "f"), FileConfig{Size: size})
	require.NoError(t, err)
	if !b.Ring() {
		require.NoError(t, b.Close())
		t.Skip("no io_uring")
	}
	require.NoError(t, b.ring.stop())
	b.ring = newRing(b, 8, limit)
	require.NotNil(t, b.ring)
	if change != nil {
		b.ring.ring.Call = change(b.ring.ring.Call)
	}
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

// TestBatch: more requests in a batch than a ring or the workers take, some of which are
// refused.
func TestBatch(t *testing.T) {
	for name, b := range open(t, 512) {
		t.Run(name, func(t *testing.T) {
			const n = 600
			buf := aligned(t, n*512)
			rs := make([]*Request, n)
			for i := range rs {
				rs[i] = &Request{Op: Write, LBA: uint64(i), Blocks: 1, Data: buf[i*512:][:512], FUA: i == 300}
				rs[i].Data[i%512] = byte(i)
				switch i % 100 {
				case 97:
					rs[i].LBA = b.Geometry().Blocks
				case 98:
					*rs[i] = Request{Op: Flush}
				case 99:
					*rs[i] = Request{Op: WriteZeroes, LBA: 1000, Blocks: 1}
				}
			}
			for i, err := range doAll(b, rs...) {
				if i%100 == 97 {
					assert.ErrorIs(t, err, ErrRange)
				} else {
					assert.NoError(t, err)
				}
			}
			clear(buf)
			for i := range rs {
				rs[i] = &Request{Op: Read, LBA: uint64(i), Blocks: 1, Data: buf[i*512:][:512]}
			}
			for _, err := range doAll(b, rs...) {
				assert.NoError(t, err)
			}
			for i := range rs {
				want := make([]byte, 512)
				if i%100 < 97 {
					want[i%512] = byte(i)
				}
				require.Equal(t, want, rs[i].Data, i)
			}
			SubmitAll(b, nil)
			require.NoError(t, b.Close())
			for _, err := range doAll(b, rs[:3]...) {
				assert.ErrorIs(t, err, ErrClosed)
			}
		})
	}
}

// TestOneCall: a batch is one system call; so is a request, whatever its parts.
func TestOneCall(t *testing.T) {
	if !durable {
		t.Skip("flushes do nothing")
	}
	calls, parts := 0, 0
	b := openRing(t, 1024, func(kernel call) call {
		return func(fd, n int) syscall.Errno {
			calls, parts = calls+1, parts+n
			return kernel(fd, n)
		}
	})
	buf := aligned(t, 17*512)
	var rs []*Request
	for i := range 8 {
		rs = append(rs, &Request{Op: Write, LBA: uint64(i), Blocks: 1, Data: buf[i*512:][:512]})
	}
	rs[3].Op, rs[5] = Read, &Request{Op: Flush}
	for _, err := range doAll(b, rs...) {
		assert.NoError(t, err)
	}
	assert.Equal(t, [2]int{1, 8}, [2]int{calls, parts})
	for op, want := range map[Op]int{Read: 7, Write: 7, Flush: 1} {
		calls, parts = 0, 0
		require.NoError(t, do(b, Request{Op: op, Blocks: 13, Data: buf[:13*512]}))
		assert.Equal(t, [2]int{1, want}, [2]int{calls, parts}, op)
	}
	calls = 0
	doAll(b, &Request{Op: Discard, Blocks: 1}, &Request{Op: Write, LBA: ^uint64(0)})
	assert.Zero(t, calls, "nothing for the ring")
	require.NoError(t, do(b, Request{Op: Read, Blocks: 17, Data: buf}))
	assert.Zero(t, calls, "9 parts, there is room for 8")
}

// TestBatchModel does random batches on a file, of which the kernel takes some, and compares
// with plain memory.
func TestBatchModel(t *testing.T) {
	for _, limit := range []int{0, 512, 2560} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { testBatchModel(t, limit) })
	}
}

func testBatchModel(t *testing.T, limit int) {
	const blocks, most, room = 128, 24, 16
	var takes []int // how many operations each system call takes
	b := openRing(t, limit, func(kernel call) call {
		return func(fd, n int) syscall.Errno {
			if len(takes) == 0 {
				return kernel(fd, n)
			}
			k := takes[0]
			if takes = takes[1:]; k == 0 {
				return unix.EAGAIN
			}
			return kernel(fd, min(n, k))
		}
	})
	buf := aligned(t, room*most*512)
	rapid.Check(t, func(t *rapid.T) {
		file, err := os.ReadFile(b.f.Name())
		require.NoError(t, err)
		model := file[:blocks*512]
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			var rs []*Request
			var used [blocks]Op // by this batch
			takes = rapid.SliceOfN(rapid.IntRange(0, 8), 0, 3).Draw(t, "takes")
			fill := rapid.Byte().Draw(t, "fill")
			for i := range rapid.IntRange(1, room).Draw(t, "requests") {
				r := &Request{Op: rapid.SampledFrom([]Op{Read, Read, Read, Write, Write, Write, Write, Flush, WriteZeroes}).Draw(t, "op")}
				r.LBA = rapid.Uint64Range(0, blocks-1).Draw(t, "lba")
				r.Blocks = rapid.Uint32Range(0, uint32(min(most, blocks-r.LBA))).Draw(t, "blocks")
				r.FUA = rapid.IntRange(0, 15).Draw(t, "fua") == 15
				if r.Op == Flush {
					r.Blocks = 0
				}
				mine := used[r.LBA:][:r.Blocks]
				if slices.ContainsFunc(mine, func(o Op) bool { return o != 0 && (o != Read || r.Op != Read) }) {
					continue // what comes of it is open
				}
				for k := range mine {
					mine[k] = r.Op
				}
				r.Data = buf[i*most*512:][:r.Blocks*512]
				for k := range r.Data {
					r.Data[k] = fill + byte(i) + byte(k>>9) // in a read, too: it isn't there already
				}
				rs = append(rs, r)
			}
			for i, err := range doAll(b, rs...) {
				require.NoError(t, err, "%v", rs[i].Op)
				r, at := rs[i], model[rs[i].LBA*512:][:rs[i].Blocks*512]
				switch r.Op {
				case Read:
					require.True(t, bytes.Equal(at, r.Data), "read of %d at %d", r.Blocks, r.LBA)
				case Write:
					copy(at, r.Data)
				case WriteZeroes:
					clear(at)
				}
			}
		}
	})
}

// TestBatchesAtOnce: several goroutines submit batches to one ring, whose kernel doesn't take
// all parts of their requests.
func TestBatchesAtOnce(t *testing.T) {
	b := openRing(t, 1024, func(kernel call) call {
		rng := rand.New(rand.NewPCG(1, 2)) // used under the ring's lock
		return func(fd, n int) syscall.Errno {
			if k := rng.IntN(20); k < n {
				n = k
			}
			return kernel(fd, n)
		}
	})
	var wg sync.WaitGroup
	for w := range 4 {
		const n, each = 10, 2560 // 3 parts
		buf := aligned(t, n*each)
		rs := make([]*Request, n)
		wg.Go(func() {
			for round := range 50 {
				for i := range rs {
					rs[i] = &Request{Op: Write, LBA: uint64(w*n+i) * each / 512, Blocks: each / 512, Data: buf[i*each:][:each]}
					rs[i].Data[0], rs[i].Data[each-1] = byte(round+i), byte(w)
				}
				for _, err := range doAll(b, rs...) {
					assert.NoError(t, err)
				}
				clear(buf)
				for _, r := range rs {
					r.Op = Read
				}
				for i, err := range doAll(b, rs...) {
					assert.NoError(t, err)
					assert.Equal(t, [2]byte{byte(round + i), byte(w)}, [2]byte{rs[i].Data[0], rs[i].Data[each-1]})
				}
			}
		})
	}
	wg.Wait()
}

// TestCloseWaits: Close waits for all parts that are under way, and for what has to be done
// again when they are back.
func TestCloseWaits(t *testing.T) {
	for _, enough := range []bool{true, false} {
		b := openRing(t, 1024, nil)
		from, to := pipe(t, b)
		buf := aligned(t, 8*512)
		r := &Request{Op: Read, Blocks: 8, Data: buf}
		over := make(chan error)
		go func() { over <- doAll(b, r)[0] }()
		require.Eventually(t, func() bool { return b.ring.used() == 4 }, 10*time.Second, time.Millisecond)
		closed := make(chan error)
		go func() { closed <- b.Close() }()
		_, err := to.Write(bytes.Repeat([]byte{1}, 3*1024))
		require.NoError(t, err)
		select {
		case err := <-over:
			t.Fatalf("over with a part under way: %v", err)
		case <-closed:
			t.Fatal("closed with a part under way")
		case <-time.After(20 * time.Millisecond):
		}
		if enough {
			_, err := to.Write(bytes.Repeat([]byte{1}, 1024))
			require.NoError(t, err)
			assert.NoError(t, <-over)
			assert.Equal(t, bytes.Repeat([]byte{1}, len(buf)), buf)
		} else { // a short part, and a worker that tries in vain to read from a pipe
			require.NoError(t, to.Close())
			assert.ErrorIs(t, <-over, ErrRead)
		}
		require.NoError(t, <-closed)
		require.NoError(t, from.Close())
	}
}

// used counts the parts under way.
func (q *ring) used() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.parts) - len(q.free)
}

// TestPartFails: a request of which parts fail ends with the error, after all of them; others
// of its batch are done.
func TestPartFails(t *testing.T) {
	if !durable {
		t.Skip("flushes do nothing")
	}
	b := openRing(t, 1024, nil)
	require.NoError(t, os.Truncate(b.f.Name(), 8192+1536)) // within the second part of some
	buf := aligned(t, 3*4096)
	at := func(lba uint64, op Op, i int) *Request {
		return &Request{Op: op, LBA: lba, Blocks: 8, Data: buf[i*4096:][:4096]}
	}
	for range 20 {
		errs := doAll(b, at(0, Read, 0), at(16, Read, 1))
		assert.NoError(t, errs[0])
		assert.ErrorIs(t, errs[1], ErrRead)
		assert.ErrorIs(t, errs[1], io.ErrUnexpectedEOF)
		assert.ErrorIs(t, do(b, *at(24, Read, 0)), ErrRead, "all beyond the end")
		assert.Zero(t, b.ring.used())
	}
	require.NoError(t, do(b, *at(16, Write, 1)), "it grows again")
	require.NoError(t, do(b, *at(16, Read, 1)))

	fd := b.fd
	pipe(t, b) // its end for reading
	errs := doAll(b, at(0, Write, 0), at(8, Write, 1), &Request{Op: Flush})
	b.fd = fd
	for _, err := range errs {
		assert.ErrorIs(t, err, ErrWrite)
	}
	assert.Zero(t, b.ring.used())
}

// TestDoneAgainAtOnce: a request that a worker has to do again doesn't wait for the Done of
// another one that came back together with it. Close relies on that.
func TestDoneAgainAtOnce(t *testing.T) {
	b := openRing(t, 0, nil)
	_, to := pipe(t, b)
	buf := aligned(t, 1024)
	release, failed, over := make(chan struct{}), make(chan error, 1), make(chan struct{}, 2)
	done := func(_ *Request, err error) {
		if err != nil {
			failed <- err
		} else {
			<-release
		}
		over <- struct{}{}
	}
	SubmitAll(b, []*Request{{Op: Read, Blocks: 1, Data: buf[:512], Done: done}, {Op: Read, Blocks: 1, Data: buf[512:], Done: done}})
	require.Equal(t, 2, b.ring.used())
	b.ring.mu.Lock() // so that they are found together
	_, err := to.Write(make([]byte, 512))
	require.NoError(t, err)
	require.NoError(t, to.Close())
	time.Sleep(20 * time.Millisecond)
	b.ring.mu.Unlock()
	var lookers sync.WaitGroup
	assert.Eventually(t, func() bool {
		// If only one was found, and it is the one that stays in Done, somebody has to look
		// for the other.
		lookers.Go(func() { doAll(b, &Request{Op: Discard}) })
		return len(failed) == 1
	}, 10*time.Second, 10*time.Millisecond)
	close(release)
	<-over
	<-over
	lookers.Wait()
	assert.ErrorIs(t, <-failed, ErrRead)
}

// pipe has a file read from a pipe: reads are under way until something is written to it.
func pipe(t *testing.T, b *File) (from, to *os.File) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	b.fd = int(from.Fd())
	t.Cleanup(func() { from.Close(); to.Close() })
	return from, to
}

// onlySubmit is a backend that takes one request at a time.
type onlySubmit struct {
	Backend
	got []*Request
}

func (o *onlySubmit) Submit(r *Request) { o.got = append(o.got, r) }

func TestSubmitAll(t *testing.T) {
	rs := []*Request{{}, {}, {}}
	var o onlySubmit
	SubmitAll(&o, rs)
	require.Len(t, o.got, 3)
	for i := range rs {
		assert.Same(t, rs[i], o.got[i])
	}
}
