package host

import (
	"context"
	"errors"
	"fmt"
	stdio "io"
	"sync/atomic"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// Namespace is a namespace of a controller: blocks, numbered from zero. Its methods may
// be called from any goroutine.
//
// Methods that take a ctx move data straight to and from the pieces' memory, wait, and
// split what one command can't move. Pieces are of regions that the controller knows
// ([Controller.NewRegion], [Controller.AddRegion]). Where the device exposes memory by
// fast registration one command takes a whole list; elsewhere one contiguous run, so
// that pieces that don't touch each other have to be whole blocks there.
//
// If the connection is lost meanwhile they wait for another and send their commands
// again: what was not answered may have been carried out already, and a controller that
// is slow to notice may still be at it, as with any NVMe host.
//
// When a connection was made anew, the controller is asked whether the namespace is still
// the same before any command goes to it: the same UUID, NGUID and EUI64, as far as it has
// them; blocks of the same size; and not fewer of them. If not, the Namespace is at its end
// ([ErrChanged]), for calls that were waiting, too: what they meant isn't there any more.
// Without identifiers another disk of the same geometry, or a larger one, passes for the
// same. A namespace that has grown is as large as it says now.
type Namespace struct {
	c        *Controller
	id       uint32
	identity identity
	info     atomic.Pointer[nvme.Namespace] // the newest
	err      atomic.Pointer[error]          // why it is at its end
}

// Namespace asks the controller about a namespace. As long as that is the same, so is what
// is returned; and if it is another, the Namespace that there was is at its end
// ([ErrChanged]). It matches [ErrUnsupported] if its blocks have metadata, or a size that
// isn't 512 bytes to 64 KiB.
func (c *Controller) Namespace(ctx context.Context, id uint32) (ns *Namespace, err error) {
	err = c.again(ctx, func(a *association) error {
		s, err := a.identify(ctx, id)
		if err == nil {
			ns, err = c.handOut(a, id, s)
		}
		return err
	})
	return ns, err
}

// ID returns the namespace's id.
func (ns *Namespace) ID() uint32 { return ns.id }

// Info returns what the controller says about the namespace: as it was asked when it was
// last connected, or by [Controller.Namespace].
func (ns *Namespace) Info() nvme.Namespace { return *ns.info.Load() }

// Err returns why the namespace is at its end, which matches [ErrChanged], or nil.
func (ns *Namespace) Err() error {
	if err := ns.err.Load(); err != nil {
		return *err
	}
	return nil
}

// BlockSize is in bytes.
func (ns *Namespace) BlockSize() int { return 1 << ns.identity.shift }

// Size is in bytes. It never gets smaller.
func (ns *Namespace) Size() int64 { return int64(ns.info.Load().Size) << ns.identity.shift }

// Op is an operation on a namespace. Zero is none: NVMe's own opcode 0 is Flush, and an
// operation that was forgotten is not to pass for that.
type Op uint8

// Operations.
const (
	Read Op = iota + 1
	Write
	// Compare compares blocks with memory: nvme.CompareFailure if they differ.
	Compare
	// WriteZeroes zeroes blocks without sending any.
	WriteZeroes
	// Flush makes all that was written, by commands that were answered, durable.
	Flush
)

// ops are the operations' names and opcodes.
var ops = [...]struct {
	name   string
	opcode nvme.Opcode
}{
	Read: {"read", nvme.Read}, Write: {"write", nvme.Write}, Compare: {"compare", nvme.Compare},
	WriteZeroes: {"write zeroes", nvme.WriteZeroes}, Flush: {"flush", nvme.Flush},
}

// String returns the operation's name.
func (o Op) String() string {
	if o.valid() {
		return ops[o].name
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

func (o Op) valid() bool { return o != 0 && int(o) < len(ops) }

// IO is one command to a namespace.
type IO struct {
	// Op must be given.
	Op Op
	// LBA is the first block.
	LBA uint64
	// Data is the memory of a Read, Write or Compare: whole blocks in all.
	Data []transport.Piece
	// Blocks is the number of blocks of a WriteZeroes, 1 to 65,536.
	Blocks uint32
	// FUA: a Write or WriteZeroes is durable when it is answered.
	FUA bool
}

// Prepare readies a request for one command; submit it with [Controller.Submit]. It
// posts nothing. Data is kept until the request is over.
//
// Errors match [ErrInUse], [ErrUnaligned], [ErrTooLarge] for what one command can't do,
// [ErrChanged], nvme.LBAOutOfRange, or transport.ErrInvalid for no Op, nothing to move, or
// data of an operation that has none.
func (ns *Namespace) Prepare(r *Request, io IO) error {
	if err := ns.Err(); err != nil {
		return err
	}
	switch {
	case io.Op == 0:
		return fmt.Errorf("an IO without Op, such as host.Read: %w", transport.ErrInvalid)
	case !io.Op.valid():
		return fmt.Errorf("an IO with Op %d: %w", io.Op, transport.ErrInvalid)
	case io.Op == Flush && (len(io.Data) > 0 || io.Blocks != 0 || io.LBA != 0 || io.FUA):
		return fmt.Errorf("flush is of everything: it has no Data, LBA, Blocks or FUA: %w", transport.ErrInvalid)
	case io.Op == WriteZeroes && len(io.Data) > 0:
		return fmt.Errorf("write zeroes has Blocks, and no Data: %w", transport.ErrInvalid)
	}
	name := ops[io.Op].name
	cmd := nvme.Command{Opcode: ops[io.Op].opcode, NSID: ns.id}
	if io.Op == Flush {
		return r.prepare(ns, name, cmd, nil, 0)
	}
	var bytes uint64
	blocks := uint64(io.Blocks)
	if io.Op != WriteZeroes {
		bytes = length(io.Data)
		if bytes%uint64(ns.BlockSize()) != 0 {
			return fmt.Errorf("%s of %d bytes, blocks have %d: %w", name, bytes, ns.BlockSize(), ErrUnaligned)
		}
		blocks = bytes >> ns.identity.shift
		if n, _ := ns.reach(io.Data, bytes); n != bytes {
			return fmt.Errorf("%s of %d bytes in %d pieces, of which one command moves %d: %w", name, bytes, len(io.Data), n, ErrTooLarge)
		}
	}
	switch {
	case blocks == 0:
		return fmt.Errorf("%s of nothing: %w", name, transport.ErrInvalid)
	case blocks > 1<<16:
		return fmt.Errorf("%s of %d blocks: %w", name, blocks, ErrTooLarge)
	}
	if err := ns.within(name, io.LBA, blocks); err != nil {
		return err
	}
	cmd.SetBlocks(io.LBA, uint32(blocks))
	if io.FUA && (io.Op == Write || io.Op == WriteZeroes) {
		cmd.CDW12 |= nvme.FUA
	}
	return r.prepare(ns, name, cmd, io.Data, bytes)
}

// within refuses blocks that there aren't.
func (ns *Namespace) within(name string, lba, blocks uint64) error {
	if size := ns.info.Load().Size; blocks > size || lba > size-blocks {
		return fmt.Errorf("%s of %d blocks at %d, there are %d: %w", name, blocks, lba, size, nvme.LBAOutOfRange)
	}
	return nil
}

// limit is the reach of one command, which counts blocks in 16 bits.
func (ns *Namespace) limit() reach {
	lim := ns.c.limit()
	lim.most = min(lim.most, 1<<16<<ns.identity.shift)
	return lim
}

// reach returns how many bytes of a list one command moves: all of them if it can.
func (ns *Namespace) reach(list []transport.Piece, bytes uint64) (n uint64, next transport.Cursor) {
	lim := ns.limit()
	return lim.covers(list, transport.Cursor{}, uint64(ns.BlockSize()))
}

// Read reads whole blocks, from lba on, into memory.
//
// Errors match an [nvme.Status], nvme.LBAOutOfRange among them, [ErrUnaligned],
// [ErrLost] if there is no connection and none can be made, [ErrChanged], [ErrClosed], or
// ctx's. When
// ctx ends, a command that isn't answered within CancelGrace costs the connection: there
// is no other way to get its memory back.
func (ns *Namespace) Read(ctx context.Context, lba uint64, list ...transport.Piece) error {
	return ns.transfer(ctx, IO{Op: Read, LBA: lba, Data: list})
}

// Write writes whole blocks. What it wrote is durable after a Flush. See
// [Namespace.Read].
func (ns *Namespace) Write(ctx context.Context, lba uint64, list ...transport.Piece) error {
	return ns.transfer(ctx, IO{Op: Write, LBA: lba, Data: list})
}

// WriteDurably writes whole blocks, which are durable when it returns (FUA).
func (ns *Namespace) WriteDurably(ctx context.Context, lba uint64, list ...transport.Piece) error {
	return ns.transfer(ctx, IO{Op: Write, LBA: lba, Data: list, FUA: true})
}

// Compare compares blocks with memory: nvme.CompareFailure if they differ. Optional:
// nvme.InvalidOpcode.
func (ns *Namespace) Compare(ctx context.Context, lba uint64, list ...transport.Piece) error {
	return ns.transfer(ctx, IO{Op: Compare, LBA: lba, Data: list})
}

func (ns *Namespace) transfer(ctx context.Context, io IO) error {
	c := calls.Get().(*call)
	defer c.free()
	list := io.Data
	lim := ns.limit()
	left := length(list)
	if left == 0 || left%uint64(ns.BlockSize()) != 0 {
		return ns.Prepare(&c.Request, io) // says what is wrong
	}
	// What can't be moved whole isn't begun.
	if err := ns.within(io.Op.String(), io.LBA, left>>ns.identity.shift); err != nil {
		return err
	}
	for from, rest := (transport.Cursor{}), left; rest > 0; {
		n, next, err := ns.cut(&lim, io.Op, list, from)
		if err != nil {
			return err
		}
		rest -= n
		from = next
	}
	for from := (transport.Cursor{}); left > 0; {
		n, next, err := ns.cut(&lim, io.Op, list, from)
		if err != nil {
			return err
		}
		c.list = slice(c.list[:0], list, from, n)
		io.Data = c.list
		if err := ns.do(ctx, c, io); err != nil {
			// Meanwhile there may be another connection, whose commands move less.
			if now := ns.limit(); errors.Is(err, ErrTooLarge) && now != lim {
				lim = now
				continue
			}
			return err
		}
		io.LBA += n >> ns.identity.shift
		left -= n
		from = next
	}
	return nil
}

// cut returns how many bytes of a list, from a position on, the next command moves, and
// where the one behind it goes on.
func (ns *Namespace) cut(lim *reach, op Op, list []transport.Piece, from transport.Cursor) (n uint64, next transport.Cursor, err error) {
	n, next = lim.covers(list, from, uint64(ns.BlockSize()))
	switch {
	case n > 0:
	case lim.most < uint64(ns.BlockSize()):
		err = fmt.Errorf("%s: a command moves %d bytes, blocks have %d: %w", op, lim.most, ns.BlockSize(), ErrTooLarge)
	default:
		err = fmt.Errorf("%s: piece %d ends inside a block, and on this device a command takes one run of memory: %w", op, from.Piece, ErrUnaligned)
	}
	return n, next, err
}

// do carries out one command, as often as connections are lost.
func (ns *Namespace) do(ctx context.Context, c *call, io IO) error {
	return ns.c.again(ctx, func(a *association) error {
		if err := ns.Prepare(&c.Request, io); err != nil {
			return err
		}
		return a.doIO(ctx, c)
	})
}

// Flush makes all that was written, by commands that were answered, durable.
func (ns *Namespace) Flush(ctx context.Context) error {
	c := calls.Get().(*call)
	defer c.free()
	return ns.do(ctx, c, IO{Op: Flush})
}

// WriteZeroes zeroes blocks without sending any. Optional: nvme.InvalidOpcode.
func (ns *Namespace) WriteZeroes(ctx context.Context, lba, blocks uint64) error {
	c := calls.Get().(*call)
	defer c.free()
	if err := ns.within("write zeroes", lba, blocks); err != nil {
		return err
	}
	for blocks > 0 {
		n := min(blocks, 1<<16)
		if err := ns.do(ctx, c, IO{Op: WriteZeroes, LBA: lba, Blocks: uint32(n)}); err != nil {
			return err
		}
		lba, blocks = lba+n, blocks-n
	}
	return nil
}

// Discard tells that the content of up to 256 ranges is of no use any more. Optional:
// nvme.InvalidOpcode.
func (ns *Namespace) Discard(ctx context.Context, ranges ...nvme.Range) error {
	if len(ranges) == 0 || len(ranges) > nvme.MaxRanges {
		return fmt.Errorf("discard of %d ranges, 1 to %d are possible: %w", len(ranges), nvme.MaxRanges, transport.ErrInvalid)
	}
	cmd := nvme.Command{Opcode: nvme.DatasetManagement, NSID: ns.id, CDW10: uint32(len(ranges) - 1), CDW11: nvme.DSMDeallocate}
	put := func(b []byte) {
		for i := range ranges {
			ranges[i].Encode(b[i*nvme.RangeLen:])
		}
	}
	return ns.c.again(ctx, func(a *association) error {
		if err := ns.Err(); err != nil {
			return err
		}
		q := a.io[int(a.next.Add(1))%len(a.io)]
		_, err := a.transact(ctx, q, "discard", cmd, len(ranges)*nvme.RangeLen, put, nil)
		return err
	})
}

// ReadAt reads like any io.ReaderAt, from any byte on, through a buffer of the
// controller's. It waits for as long as it takes.
func (ns *Namespace) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d: %w", off, transport.ErrInvalid)
	}
	if off >= ns.Size() {
		return 0, stdio.EOF
	}
	var end error
	if left := ns.Size() - off; int64(len(p)) > left {
		p, end = p[:left], stdio.EOF
	}
	ctx := context.Background()
	for n < len(p) {
		k, err := ns.c.copies.with(ctx, ns.c, func(r *transport.Region, at, size int) (int, error) {
			skip := int(off & int64(ns.BlockSize()-1))
			k := min(len(p)-n, size-skip)
			whole := (skip + k + ns.BlockSize() - 1) &^ (ns.BlockSize() - 1)
			if err := ns.Read(ctx, uint64(off)>>ns.identity.shift, r.Piece(uint64(at), uint32(whole))); err != nil {
				return 0, err
			}
			return copy(p[n:n+k], r.Bytes()[at+skip:]), nil
		})
		if err != nil {
			return n, err
		}
		n, off = n+k, off+int64(k)
	}
	return n, end
}

// WriteAt writes like any io.WriterAt, but whole blocks only ([ErrUnaligned]), through a
// buffer of the controller's. It waits for as long as it takes.
func (ns *Namespace) WriteAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off > ns.Size()-int64(len(p)) {
		return 0, fmt.Errorf("write of %d bytes at %d, there are %d: %w", len(p), off, ns.Size(), nvme.LBAOutOfRange)
	}
	if (off|int64(len(p)))&int64(ns.BlockSize()-1) != 0 {
		return 0, fmt.Errorf("write of %d bytes at %d, blocks have %d: %w", len(p), off, ns.BlockSize(), ErrUnaligned)
	}
	ctx := context.Background()
	for n < len(p) {
		k, err := ns.c.copies.with(ctx, ns.c, func(r *transport.Region, at, size int) (int, error) {
			k := copy(r.Bytes()[at:at+size], p[n:])
			return k, ns.Write(ctx, uint64(off)>>ns.identity.shift, r.Piece(uint64(at), uint32(k)))
		})
		if err != nil {
			return n, err
		}
		n, off = n+k, off+int64(k)
	}
	return n, nil
}
