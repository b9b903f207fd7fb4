//go:build linux

package uring

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLayout: sizes are those of the kernel's header.
func TestLayout(t *testing.T) {
	assert.Equal(t, uintptr(120), unsafe.Sizeof(params{}))
	assert.Equal(t, uintptr(40), unsafe.Offsetof(params{}.sq))
	assert.Equal(t, uintptr(80), unsafe.Offsetof(params{}.cq))
	assert.Equal(t, uintptr(sizeofSQE), unsafe.Sizeof(sqe{}))
	assert.Equal(t, uintptr(28), unsafe.Offsetof(sqe{}.opFlags))
	assert.Equal(t, uintptr(32), unsafe.Offsetof(sqe{}.userData))
	assert.Equal(t, uintptr(sizeofC), unsafe.Sizeof(cqe{}))
}

func newRing(t *testing.T) *Ring {
	r, err := New(8)
	if err != nil {
		require.ErrorIs(t, err, ErrUnavailable)
		t.Skip(err)
	}
	t.Cleanup(func() { assert.NoError(t, r.Close()) })
	return r
}

// wait polls, and waits for events in between.
func (r *Ring) wait(t *testing.T) (tag uint64, res int32) {
	r.Quiet(false)
	for {
		tag, res, ok := r.Poll()
		if ok {
			r.Quiet(true)
			return tag, res
		}
		require.NoError(t, r.Event())
	}
}

func TestRing(t *testing.T) {
	r, f := newRing(t), create(t)
	require.Equal(t, 8, r.Capacity())
	fd := int(f.Fd())
	for i := range uint64(20) { // the queues wrap around
		data := heap([]byte{byte(i), 1, 2, 3})
		r.Write(fd, data, int64(i)*4, i%2 == 0, i)
		require.Zero(t, r.Enter())
		tag, res := r.wait(t)
		assert.Equal(t, i, tag)
		assert.Equal(t, int32(4), res)
		r.Sync(fd, 100+i)
		require.Zero(t, r.Enter())
		tag, res = r.wait(t)
		assert.Equal(t, 100+i, tag)
		assert.Zero(t, res)
		got := heap(make([]byte, 8))
		r.Read(fd, got, int64(i)*4, 200+i)
		require.Zero(t, r.Enter())
		tag, res = r.wait(t)
		assert.Equal(t, 200+i, tag)
		assert.Equal(t, int32(4), res, "a short read is one")
		assert.Equal(t, data, got[:4])
	}
	r.Read(-1, heap(make([]byte, 4)), 0, 7)
	require.Zero(t, r.Enter())
	_, res := r.wait(t)
	assert.Equal(t, -int32(unix.EBADF), res)
}

// create makes an empty file.
func create(t *testing.T) *os.File {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	return f
}

// results waits for n operations, and returns their results by tag. None comes twice.
func (r *Ring) results(t *testing.T, n int) map[uint64]int32 {
	all := map[uint64]int32{}
	for range n {
		tag, res := r.wait(t)
		require.NotContains(t, all, tag)
		all[tag] = res
	}
	_, _, ok := r.Poll()
	require.False(t, ok, "more than was submitted")
	return all
}

// TestBatch: a full queue is entered by one call, whichever place it begins at.
func TestBatch(t *testing.T) {
	r, f := newRing(t), create(t)
	calls := 0
	r.Call = func(fd, n int) syscall.Errno {
		calls++
		assert.Equal(t, r.Capacity(), n)
		return enter(fd, n)
	}
	var want []byte
	for round := range 5 {
		for i := range r.Capacity() - 1 {
			b := byte(round*16 + i)
			want = append(want, b)
			r.Write(int(f.Fd()), heap([]byte{b}), int64(len(want)-1), false, uint64(i))
		}
		r.Sync(int(f.Fd()), 99)
		assert.Zero(t, r.Enter())
		assert.Equal(t, round+1, calls)
		for tag, res := range r.results(t, r.Capacity()) {
			assert.Equal(t, tag != 99, res == 1, "%d: %d", tag, res)
		}
		got, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	assert.Zero(t, r.Enter())
	assert.Equal(t, 5, calls, "nothing was added")
}

// TestNonsense: the kernel stops at an operation that it doesn't know. It comes back with an
// error, and those behind it are carried out.
func TestNonsense(t *testing.T) {
	r, f := newRing(t), create(t)
	for i := range uint64(8) {
		if i == 2 || i == 7 {
			r.add(sqe{opcode: 255, userData: i})
		} else {
			r.Write(int(f.Fd()), heap([]byte{1}), int64(i), false, i)
		}
	}
	require.Zero(t, r.Enter())
	for tag, res := range r.results(t, 8) {
		if tag == 2 || tag == 7 {
			assert.Equal(t, -int32(unix.EINVAL), res)
		} else {
			assert.Equal(t, int32(1), res)
		}
	}
}

// TestNotTaken: what the kernel doesn't take is forgotten, and only that; whatever the
// reason is, and wherever in the queue it happens.
func TestNotTaken(t *testing.T) {
	for _, errno := range []syscall.Errno{0, unix.EAGAIN, unix.EBUSY, unix.ENOMEM} {
		r, f := newRing(t), create(t)
		for takes := range 8 {
			calls := 0
			r.Call = func(fd, n int) syscall.Errno {
				switch calls++; {
				case calls == 1:
					return unix.EINTR
				case calls == 2 && takes > 0:
					return enter(fd, takes)
				}
				return errno
			}
			for i := range 8 {
				r.Write(int(f.Fd()), heap([]byte{byte(takes + 1)}), int64(i), false, uint64(i))
			}
			require.Equal(t, 8-takes, r.Enter())
			for tag := range r.results(t, takes) {
				assert.Less(t, tag, uint64(takes))
			}
			r.Call = enter
			r.Sync(int(f.Fd()), 50)
			require.Zero(t, r.Enter())
			require.Equal(t, map[uint64]int32{50: 0}, r.results(t, 1))
			got, err := os.ReadFile(f.Name())
			require.NoError(t, err)
			for i, b := range got {
				assert.Equal(t, i < takes, b == byte(takes+1), "%d, %d taken", i, takes)
			}
		}
	}
}

// TestWake: who waits for an event can be woken.
func TestWake(t *testing.T) {
	r := newRing(t)
	done := make(chan error, 1)
	go func() { done <- r.Event() }()
	require.NoError(t, r.Wake())
	require.NoError(t, <-done)
}

var kept [][]byte

// heap keeps memory where it is, until the test is over: on a stack it may move, and what
// the kernel alone knows of is garbage.
func heap(b []byte) []byte {
	kept = append(kept, b)
	return b
}
