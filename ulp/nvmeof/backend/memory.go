package backend

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Memory keeps blocks in anonymous memory: it takes up space as it is written to,
// gives it back on Discard, and forgets everything when it is closed. Requests are
// over when Submit returns.
type Memory struct {
	geometry Geometry
	bytes    []byte
	// locks guard stripes of the memory, so that a block is read or written whole.
	locks  [64]sync.RWMutex
	users  sync.RWMutex // Close waits for requests
	closed atomic.Bool
}

// stripeShift is the log2 of the size of a stripe in bytes. Blocks don't cross
// stripes.
const stripeShift = 16

// NewMemory makes a backend of size bytes in memory, in blocks of 512 or 4096 bytes
// (zero: 512). What doesn't fill a block is left out.
func NewMemory(size int64, blockSize int) (*Memory, error) {
	shift, err := checkBlockSize(blockSize)
	if err != nil {
		return nil, err
	}
	if size < 1<<shift {
		return nil, fmt.Errorf("memory of %d bytes: not even a block of %d", size, 1<<shift)
	}
	b, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", size, err)
	}
	return &Memory{
		geometry: Geometry{Blocks: uint64(size) >> shift, BlockShift: shift, Discards: true, DiscardZeroes: true},
		bytes:    b,
	}, nil
}

// Geometry describes the memory. It is not volatile: there is nothing that a Flush
// could save it to.
func (m *Memory) Geometry() Geometry { return m.geometry }

// Submit carries a request out.
func (m *Memory) Submit(r *Request) {
	r.Done(r, m.do(r))
}

func (m *Memory) do(r *Request) error {
	if err := m.geometry.Check(r); err != nil {
		return err
	}
	m.users.RLock()
	defer m.users.RUnlock()
	if m.closed.Load() {
		return ErrClosed
	}
	if r.Op == Flush {
		return nil
	}
	at := r.LBA << m.geometry.BlockShift
	end := at + uint64(r.Blocks)<<m.geometry.BlockShift
	data := r.Data
	for at < end {
		n := min(end, (at>>stripeShift+1)<<stripeShift) - at
		lock := &m.locks[at>>stripeShift%uint64(len(m.locks))]
		switch r.Op {
		case Read:
			lock.RLock()
			copy(data[:n], m.bytes[at:])
			lock.RUnlock()
			data = data[n:]
		case Write:
			lock.Lock()
			copy(m.bytes[at:at+n], data)
			lock.Unlock()
			data = data[n:]
		default:
			lock.Lock()
			zero(m.bytes[at : at+n : at+n])
			lock.Unlock()
		}
		at += n
	}
	return nil
}

// zero clears memory; whole stripes by giving them back to the system.
func zero(b []byte) {
	if len(b) < 1<<stripeShift || unix.Madvise(b, unix.MADV_DONTNEED) != nil {
		clear(b)
	}
}

// Close frees the memory.
func (m *Memory) Close() error {
	m.users.Lock()
	defer m.users.Unlock()
	if m.closed.Swap(true) {
		return nil
	}
	err := unix.Munmap(m.bytes)
	m.bytes = nil
	if err != nil {
		return errors.Join(errors.New("memory"), err)
	}
	return nil
}
