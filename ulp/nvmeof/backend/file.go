package backend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FileConfig says how to open a [File].
type FileConfig struct {
	// BlockSize is 512 or 4096 bytes. Zero: what the block device has, 512 for a file.
	BlockSize int
	// Size is the size in bytes to give to a regular file that is shorter, or that
	// doesn't exist yet. Zero: the file must exist, and its size is the backend's.
	Size int64
	// ReadOnly opens it for reading only.
	ReadOnly bool
	// Buffered goes through the page cache instead of direct I/O.
	Buffered bool
	// Workers is how many operations that block may be under way at a time, each of them
	// on a thread of its own. Zero: reads, writes and flushes go by io_uring, where the
	// kernel has it, and 32 workers do the rest.
	Workers int
}

var _ Batcher = (*File)(nil)

// File keeps blocks in a file or on a block device, by direct I/O where that is
// possible. Flush and FUA are as durable as fdatasync makes things, which for block
// devices includes a flush of their cache.
type File struct {
	geometry Geometry
	direct   bool
	f        *os.File
	fd       int
	pool     workers
	ring     *ring // nil: workers do everything
}

// OpenFile opens a file or a block device.
func OpenFile(path string, cfg FileConfig) (_ *File, err error) {
	flags := os.O_RDWR
	if cfg.ReadOnly {
		flags = os.O_RDONLY
	} else if cfg.Size > 0 {
		flags |= os.O_CREATE
	}
	b := &File{direct: !cfg.Buffered}
	if b.direct {
		b.f, err = os.OpenFile(path, flags|unix.O_DIRECT, 0o600)
		if errors.Is(err, syscall.EINVAL) { // a file system without
			b.direct = false
		}
	}
	if !b.direct {
		b.f, err = os.OpenFile(path, flags, 0o600)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.f.Close()
		}
	}()
	size, blockSize, err := b.measure(&cfg)
	if err != nil {
		return nil, err
	}
	shift, err := checkBlockSize(blockSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if size < 1<<shift {
		return nil, fmt.Errorf("%s: %d bytes are not even a block of %d; say what size the file shall have", path, size, 1<<shift)
	}
	b.geometry = Geometry{
		Blocks: uint64(size) >> shift, BlockShift: shift, Volatile: true, ReadOnly: cfg.ReadOnly, Discards: !cfg.ReadOnly,
	}
	b.fd = int(b.f.Fd())
	n := cfg.Workers
	if n <= 0 {
		n = 32
		limit := 0
		if b.direct {
			limit = transferLimit(b.fd)
		}
		b.ring = newRing(b, 256, limit)
	}
	b.pool.start(n, b.do)
	return b, nil
}

// measure finds the size and the block size, and makes a regular file long enough.
func (b *File) measure(cfg *FileConfig) (size int64, blockSize int, err error) {
	info, err := b.f.Stat()
	if err != nil {
		return 0, 0, err
	}
	blockSize = cfg.BlockSize
	switch mode := info.Mode(); {
	case mode.IsRegular():
		size = info.Size()
		if size < cfg.Size && !cfg.ReadOnly {
			size = cfg.Size
			err = b.f.Truncate(size)
		}
	case mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0:
		size, err = b.f.Seek(0, io.SeekEnd)
		if err != nil {
			break
		}
		var logical int
		logical, err = unix.IoctlGetInt(int(b.f.Fd()), unix.BLKSSZGET)
		switch {
		case err != nil:
		case blockSize == 0:
			blockSize = logical
		case blockSize < logical:
			err = fmt.Errorf("%s has blocks of %d bytes, %d are too small", b.f.Name(), logical, blockSize)
		}
	default:
		err = fmt.Errorf("%s is neither a file nor a block device", b.f.Name())
	}
	return size, blockSize, err
}

// Geometry describes the file.
func (b *File) Geometry() Geometry { return b.geometry }

// Ring reports whether it uses io_uring.
func (b *File) Ring() bool { return b.ring != nil }

// Direct reports whether it goes around the page cache.
func (b *File) Direct() bool { return b.direct }

// Submit starts the request: by io_uring, or by a worker.
func (b *File) Submit(r *Request) {
	one := [...]*Request{r}
	b.SubmitAll(one[:])
}

// SubmitAll starts requests: those that io_uring takes by one system call, the others by
// workers.
func (b *File) SubmitAll(rs []*Request) {
	if b.ring != nil {
		b.ring.submit(rs)
		return
	}
	for _, r := range rs {
		b.work(r)
	}
}

// work has a worker carry a request out, if it can be.
func (b *File) work(r *Request) {
	err := b.geometry.Check(r)
	if err == nil && b.pool.put(r) {
		return
	}
	if err == nil {
		err = ErrClosed
	}
	r.Done(r, err)
}

// Close waits for the requests under way, and closes the file.
func (b *File) Close() error {
	if b.ring != nil {
		if err := b.ring.stop(); err != nil {
			return err
		}
	}
	b.pool.stop()
	if err := b.f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// do carries a request out. A worker runs it.
func (b *File) do(r *Request) error {
	at := int64(r.LBA << b.geometry.BlockShift)
	n := int64(r.Blocks) << b.geometry.BlockShift
	var err error
	switch r.Op {
	case Read:
		return failed(ErrRead, b.read(r.Data, at))
	case Write:
		err = b.write(r.Data, at)
	case Flush:
		return failed(ErrWrite, b.sync())
	case WriteZeroes:
		err = b.zero(at, n, r.Deallocate)
	case Discard:
		err = b.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
		if errors.Is(err, errors.ErrUnsupported) {
			err = nil // it is a hint
		}
	}
	if err == nil && r.FUA {
		err = b.sync()
	}
	return failed(ErrWrite, err)
}

func failed(what, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		what = ErrFull
	}
	return fmt.Errorf("%w: %w", what, err)
}

func (b *File) read(data []byte, at int64) error {
	for len(data) > 0 {
		n, err := unix.Pread(b.fd, data, at)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0: // the file was cut meanwhile
			return io.ErrUnexpectedEOF
		}
		data, at = data[n:], at+int64(n)
	}
	return nil
}

func (b *File) write(data []byte, at int64) error {
	for len(data) > 0 {
		n, err := unix.Pwrite(b.fd, data, at)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrShortWrite
		}
		data, at = data[n:], at+int64(n)
	}
	return nil
}

func (b *File) sync() error {
	if !durable {
		return nil
	}
	for {
		if err := unix.Fdatasync(b.fd); err != unix.EINTR {
			return err
		}
	}
}

func (b *File) fallocate(mode uint32, at, n int64) error {
	for n > 0 { // nothing is an error to the kernel
		if err := unix.Fallocate(b.fd, mode, at, n); err != unix.EINTR {
			return err
		}
	}
	return nil
}

// zero makes a range read as zeros: by the file system or the device where it can,
// else by writing them.
func (b *File) zero(at, n int64, deallocate bool) error {
	mode := uint32(unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE)
	if deallocate {
		mode = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	}
	err := b.fallocate(mode, at, n)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	for zeros := zeroPages(); n > 0; {
		k := min(n, int64(len(zeros)))
		if err := b.write(zeros[:k], at); err != nil {
			return err
		}
		at, n = at+k, n-k
	}
	return nil
}
