//go:build linux

package uring

import (
	"os"
	"path/filepath"
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
	r := newRing(t)
	require.Equal(t, 8, r.Capacity())
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	fd := int(f.Fd())
	for i := range uint64(20) { // the queues wrap around
		data := heap([]byte{byte(i), 1, 2, 3})
		require.NoError(t, r.Write(fd, data, int64(i)*4, i%2 == 0, i))
		tag, res := r.wait(t)
		assert.Equal(t, i, tag)
		assert.Equal(t, int32(4), res)
		require.NoError(t, r.Sync(fd, 100+i))
		tag, res = r.wait(t)
		assert.Equal(t, 100+i, tag)
		assert.Zero(t, res)
		got := heap(make([]byte, 8))
		require.NoError(t, r.Read(fd, got, int64(i)*4, 200+i))
		tag, res = r.wait(t)
		assert.Equal(t, 200+i, tag)
		assert.Equal(t, int32(4), res, "a short read is one")
		assert.Equal(t, data, got[:4])
	}
	require.NoError(t, r.Read(-1, heap(make([]byte, 4)), 0, 7))
	_, res := r.wait(t)
	assert.Equal(t, -int32(unix.EBADF), res)
}

// TestWake: who waits for an event can be woken.
func TestWake(t *testing.T) {
	r := newRing(t)
	done := make(chan error, 1)
	go func() { done <- r.Event() }()
	require.NoError(t, r.Wake())
	require.NoError(t, <-done)
}

var sink []byte

// heap keeps memory from being on a stack, which may move.
func heap(b []byte) []byte {
	sink = b
	return b
}
