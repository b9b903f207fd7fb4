package backend

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 1 << 20

// open makes one backend of each kind, of a MiB.
func open(t *testing.T, blockSize int) map[string]Backend {
	t.Helper()
	memory, err := NewMemory(size+100, blockSize)
	require.NoError(t, err)
	direct, err := OpenFile(filepath.Join(t.TempDir(), "direct"), FileConfig{BlockSize: blockSize, Size: size})
	require.NoError(t, err)
	buffered, err := OpenFile(filepath.Join(t.TempDir(), "buffered"), FileConfig{BlockSize: blockSize, Size: size, Buffered: true, Workers: 2})
	require.NoError(t, err)
	workers, err := OpenFile(filepath.Join(t.TempDir(), "workers"), FileConfig{BlockSize: blockSize, Size: size, Workers: 4})
	require.NoError(t, err)
	require.False(t, workers.Ring())
	t.Logf("direct I/O: %v, io_uring: %v", direct.Direct(), direct.Ring())
	require.False(t, buffered.Direct())
	all := map[string]Backend{"memory": memory, "direct": direct, "buffered": buffered, "workers": workers}
	t.Cleanup(func() {
		for _, b := range all {
			assert.NoError(t, b.Close())
			assert.NoError(t, b.Close())
		}
	})
	return all
}

// aligned is memory as the target has it.
func aligned(t testing.TB, n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Munmap(b)) })
	return b
}

func do(b Backend, r Request) error {
	done := make(chan error, 1)
	r.Done = func(_ *Request, err error) { done <- err }
	b.Submit(&r)
	return <-done
}

// TestModel does random operations on each backend and on plain memory, and compares.
func TestModel(t *testing.T) {
	for _, blockSize := range []int{512, 4096} {
		for name, b := range open(t, blockSize) {
			t.Run(name, func(t *testing.T) {
				g := b.Geometry()
				require.Equal(t, uint64(size/blockSize), g.Blocks)
				rng := rand.New(rand.NewPCG(1, uint64(blockSize)))
				model := make([]byte, size)
				buf := aligned(t, size)
				for range 300 {
					lba := rng.Uint64N(g.Blocks)
					n := uint32(1 + rng.Uint64N(min(g.Blocks-lba, 300)))
					from, to := lba<<g.BlockShift, (lba+uint64(n))<<g.BlockShift
					data := buf[:to-from]
					r := Request{LBA: lba, Blocks: n, FUA: rng.IntN(50) == 0}
					switch rng.IntN(6) {
					case 0, 1:
						r.Op, r.Data = Write, data
						for i := range data {
							data[i] = byte(rng.Uint32())
						}
						copy(model[from:to], data)
					case 2, 3:
						r.Op, r.Data = Read, data
					case 4:
						r.Op, r.Deallocate = WriteZeroes, rng.IntN(2) == 0
						clear(model[from:to])
					case 5:
						r.Op = Discard
						if !g.DiscardZeroes {
							r.Op = Flush
							break
						}
						clear(model[from:to])
					}
					require.NoError(t, do(b, r))
					if r.Op == Read {
						require.True(t, bytes.Equal(model[from:to], data), "read of %d at %d", n, lba)
					}
				}
			})
		}
	}
}

func TestRefused(t *testing.T) {
	for name, b := range open(t, 512) {
		t.Run(name, func(t *testing.T) {
			g := b.Geometry()
			buf := aligned(t, 4096)
			for _, r := range []Request{
				{Op: Read, LBA: g.Blocks, Blocks: 1, Data: buf[:512]},
				{Op: Write, LBA: g.Blocks - 1, Blocks: 2, Data: buf[:1024]},
				{Op: Read, LBA: ^uint64(0), Blocks: 2, Data: buf[:1024]},
				{Op: Read, LBA: 1 << 55, Blocks: 1, Data: buf[:512]}, // wraps in bytes
				{Op: Discard, LBA: 1, Blocks: ^uint32(0)},
				{Op: Read, LBA: 0, Blocks: 2, Data: buf[:512]},
				{Op: Write, LBA: 0, Blocks: 1, Data: buf[:1024]},
			} {
				assert.ErrorIs(t, do(b, r), ErrRange, "%+v", r)
			}
			assert.Error(t, do(b, Request{Op: 77}))
			require.NoError(t, b.Close())
			assert.ErrorIs(t, do(b, Request{Op: Read, Blocks: 1, Data: buf[:512]}), ErrClosed)
		})
	}
	_, err := NewMemory(511, 512)
	assert.Error(t, err)
	_, err = NewMemory(size, 1024)
	assert.Error(t, err)
}

// TestReadOnly: what is opened for reading stays as it is.
func TestReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	b, err := OpenFile(path, FileConfig{ReadOnly: true, Size: 1 << 20})
	require.NoError(t, err)
	defer b.Close()
	assert.Equal(t, uint64(16), b.Geometry().Blocks, "a file that is read doesn't grow")
	buf := aligned(t, 512)
	assert.NoError(t, do(b, Request{Op: Read, Blocks: 1, Data: buf}))
	for _, op := range []Op{Write, WriteZeroes, Discard} {
		assert.ErrorIs(t, do(b, Request{Op: op, Blocks: 1, Data: buf}), ErrReadOnly)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenFile(dir, FileConfig{ReadOnly: true})
	assert.ErrorContains(t, err, "neither a file nor a block device")
	_, err = OpenFile(filepath.Join(dir, "none"), FileConfig{})
	assert.ErrorIs(t, err, os.ErrNotExist)
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, err = OpenFile(empty, FileConfig{})
	assert.ErrorContains(t, err, "say what size")
	_, err = OpenFile("/dev/null", FileConfig{})
	assert.Error(t, err)
}

// TestKeeps: a file has what was written after it is opened again, and grows when it
// is told to.
func TestKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	b, err := OpenFile(path, FileConfig{Size: 4096})
	require.NoError(t, err)
	buf := aligned(t, 4096)
	copy(buf, "kept")
	require.NoError(t, do(b, Request{Op: Write, LBA: 7, Blocks: 1, Data: buf[:512]}))
	require.NoError(t, do(b, Request{Op: Flush}))
	require.NoError(t, b.Close())
	b, err = OpenFile(path, FileConfig{Size: 8192, BlockSize: 512})
	require.NoError(t, err)
	defer b.Close()
	require.Equal(t, uint64(16), b.Geometry().Blocks)
	clear(buf)
	require.NoError(t, do(b, Request{Op: Read, LBA: 7, Blocks: 1, Data: buf[:512]}))
	assert.Equal(t, "kept", string(buf[:4]))
}

// TestWholeBlocks: blocks that are read while others write them are one or the other.
func TestWholeBlocks(t *testing.T) {
	b, err := NewMemory(size, 512)
	require.NoError(t, err)
	defer b.Close()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			data := bytes.Repeat([]byte{byte(w)}, 4096)
			for range 500 {
				assert.NoError(t, do(b, Request{Op: Write, LBA: 126, Blocks: 8, Data: data}))
			}
		})
	}
	got := make([]byte, 4096)
	for range 1000 {
		require.NoError(t, do(b, Request{Op: Read, LBA: 126, Blocks: 8, Data: got}))
		for block := range 8 {
			one := got[block*512 : block*512+512]
			require.True(t, bytes.Count(one, one[:1]) == 512, "torn block")
		}
	}
	wg.Wait()
}

// TestMany: more requests at a time than a ring or the workers take; all come back, with
// the data of their blocks.
func TestMany(t *testing.T) {
	for name, b := range open(t, 512) {
		t.Run(name, func(t *testing.T) {
			const n = 1000
			buf := aligned(t, n*1024)
			reqs := make([]Request, n)
			var wg sync.WaitGroup
			run := func(op Op) {
				wg.Add(n)
				for i := range reqs {
					data := buf[i*1024 : i*1024+1024]
					if op == Write {
						data[0], data[1023] = byte(i), byte(i>>8)
					} else {
						clear(data)
					}
					reqs[i] = Request{Op: op, LBA: uint64(i) * 2, Blocks: 2, Data: data, FUA: i%100 == 0, Done: func(_ *Request, err error) {
						assert.NoError(t, err)
						wg.Done()
					}}
					b.Submit(&reqs[i])
				}
				wg.Wait()
			}
			run(Write)
			run(Read)
			for i := range reqs {
				require.Equal(t, [2]byte{byte(i), byte(i >> 8)}, [2]byte{reqs[i].Data[0], reqs[i].Data[1023]}, i)
			}
		})
	}
}

// TestCutFile: a file that was cut behind the backend's back fails reads, rather than
// return what was in the buffer.
func TestCutFile(t *testing.T) {
	for _, workers := range []int{0, 2} {
		path := filepath.Join(t.TempDir(), "f")
		b, err := OpenFile(path, FileConfig{Size: 8192, Workers: workers})
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, 4096))
		buf := aligned(t, 4096)
		assert.NoError(t, do(b, Request{Op: Read, Blocks: 8, Data: buf}))
		assert.ErrorIs(t, do(b, Request{Op: Read, LBA: 4, Blocks: 8, Data: buf}), ErrRead)
		assert.ErrorIs(t, do(b, Request{Op: Read, LBA: 8, Blocks: 8, Data: buf}), ErrRead)
		require.NoError(t, b.Close())
	}
}

// TestNoAllocations: requests cost none.
func TestNoAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	all := open(t, 512)
	if all["direct"].(*File).Ring() {
		all["parts"] = openRing(t, 512, nil)
	}
	for name, b := range all {
		if name != "buffered" {
			buf := aligned(t, 4096)
			done := make(chan error, 9)
			r := Request{Done: func(_ *Request, err error) { done <- err }, Blocks: 8, Data: buf}
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				r.Op = Write
				b.Submit(&r)
				<-done
				r.Op = Read
				b.Submit(&r)
				<-done
			}), name)
			batch := make([]*Request, 9)
			for i := range batch {
				batch[i] = &Request{Op: Read, LBA: uint64(i), Blocks: 1, Data: buf[:512], Done: r.Done}
			}
			batch[8].Op = Flush
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				SubmitAll(b, batch)
				for range batch {
					<-done
				}
			}), "%s, a batch", name)
		}
	}
}
