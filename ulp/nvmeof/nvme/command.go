package nvme

// CommandLen is the length of a command (a submission queue entry) in bytes. A
// command capsule is a SEND of it, with in-capsule data behind it.
const CommandLen = 64

// Opcode is the opcode of a command. The same value means different things on
// the admin queue and on I/O queues.
type Opcode uint8

// Fabrics is the opcode of all fabrics commands, on any queue; see [FabricsType].
const Fabrics Opcode = 0x7F

// Opcodes of the admin queue.
const (
	GetLogPage       Opcode = 0x02
	Identify         Opcode = 0x06
	Abort            Opcode = 0x08
	SetFeatures      Opcode = 0x09
	GetFeatures      Opcode = 0x0A
	AsyncEvent       Opcode = 0x0C
	KeepAlive        Opcode = 0x18
	FormatNVM        Opcode = 0x80
	AdminVendorFirst Opcode = 0xC0
)

// Opcodes of I/O queues.
const (
	Flush             Opcode = 0x00
	Write             Opcode = 0x01
	Read              Opcode = 0x02
	WriteUncorrect    Opcode = 0x04
	Compare           Opcode = 0x05
	WriteZeroes       Opcode = 0x08
	DatasetManagement Opcode = 0x09
)

// Direction tells which way the data of a command goes: the lowest two bits of its
// opcode, but for fabrics commands, where those of the [FabricsType] tell.
type Direction uint8

// Directions.
const (
	NoData        Direction = 0
	HostToTarget  Direction = 1
	TargetToHost  Direction = 2
	Bidirectional Direction = 3
)

// Direction returns the way the data of a command with this opcode goes.
func (o Opcode) Direction() Direction { return Direction(o & 3) }

// FabricsType is the kind of a fabrics command.
type FabricsType uint8

// Fabrics command types.
const (
	PropertySet    FabricsType = 0x00
	ConnectType    FabricsType = 0x01
	PropertyGet    FabricsType = 0x04
	AuthSend       FabricsType = 0x05
	AuthReceive    FabricsType = 0x06
	DisconnectType FabricsType = 0x08
)

// FlagSGL is what [Command.Flags] holds over fabrics: data is described by an SGL
// (PSDT 01b), and the command is not fused.
const FlagSGL = 0x40

// AllNamespaces is the NSID that means every namespace.
const AllNamespaces = 0xFFFFFFFF

// Command is a submission queue entry.
type Command struct {
	Opcode Opcode
	Flags  uint8
	// CID is the host's name for the command, returned in its [Completion].
	CID uint16
	// NSID is the namespace. Fabrics commands have their type in its lowest byte.
	NSID uint32
	CDW2 uint32
	CDW3 uint32
	// MPTR is the metadata pointer, which fabrics don't use.
	MPTR uint64
	// SGL describes the data.
	SGL Descriptor

	CDW10, CDW11, CDW12, CDW13, CDW14, CDW15 uint32
}

// Encode writes the command.
func (c *Command) Encode(b []byte) {
	b = b[:CommandLen]
	b[0] = byte(c.Opcode)
	b[1] = c.Flags
	le.PutUint16(b[2:], c.CID)
	le.PutUint32(b[4:], c.NSID)
	le.PutUint32(b[8:], c.CDW2)
	le.PutUint32(b[12:], c.CDW3)
	le.PutUint64(b[16:], c.MPTR)
	c.SGL.Encode(b[24:])
	le.PutUint32(b[40:], c.CDW10)
	le.PutUint32(b[44:], c.CDW11)
	le.PutUint32(b[48:], c.CDW12)
	le.PutUint32(b[52:], c.CDW13)
	le.PutUint32(b[56:], c.CDW14)
	le.PutUint32(b[60:], c.CDW15)
}

// Decode reads a command.
func (c *Command) Decode(b []byte) error {
	if err := short("command", b, CommandLen); err != nil {
		return err
	}
	b = b[:CommandLen]
	c.Opcode = Opcode(b[0])
	c.Flags = b[1]
	c.CID = le.Uint16(b[2:])
	c.NSID = le.Uint32(b[4:])
	c.CDW2 = le.Uint32(b[8:])
	c.CDW3 = le.Uint32(b[12:])
	c.MPTR = le.Uint64(b[16:])
	c.SGL.decode(b[24:])
	c.CDW10 = le.Uint32(b[40:])
	c.CDW11 = le.Uint32(b[44:])
	c.CDW12 = le.Uint32(b[48:])
	c.CDW13 = le.Uint32(b[52:])
	c.CDW14 = le.Uint32(b[56:])
	c.CDW15 = le.Uint32(b[60:])
	return nil
}

// FabricsType returns the kind of a fabrics command.
func (c *Command) FabricsType() FabricsType { return FabricsType(c.NSID) }

// Direction returns the way the command's data goes.
func (c *Command) Direction() Direction {
	if c.Opcode == Fabrics {
		return Direction(c.NSID & 3)
	}
	return c.Opcode.Direction()
}

// Bits of CDW12 of Read, Write, Compare and Write Zeroes. Its lower half is NLB,
// the number of blocks, zero-based.
const (
	// Deallocate (Write Zeroes): the blocks need not keep their place.
	Deallocate = 1 << 25
	// FUA, force unit access: durable when the command completes.
	FUA = 1 << 30
	// LimitedRetry asks not to try too hard.
	LimitedRetry = 1 << 31
	// ProtectionInfo is the mask of PRINFO, meaningless without metadata.
	ProtectionInfo = 0xF << 26
)

// LBA returns the first block of a Read, Write, Compare or Write Zeroes.
func (c *Command) LBA() uint64 { return uint64(c.CDW11)<<32 | uint64(c.CDW10) }

// Blocks returns how many blocks such a command is about: 1 to 65,536.
func (c *Command) Blocks() uint32 { return c.CDW12&0xFFFF + 1 }

// SetBlocks names the blocks of such a command. n is 1 to 65,536.
func (c *Command) SetBlocks(lba uint64, n uint32) {
	c.CDW10, c.CDW11 = uint32(lba), uint32(lba>>32)
	c.CDW12 = c.CDW12&^0xFFFF | (n-1)&0xFFFF
}

// Dataset Management: CDW10 holds the number of ranges, zero-based, in its lowest
// byte; CDW11 what to do.
const (
	// DSMDeallocate: the ranges are no longer needed (trim, discard).
	DSMDeallocate = 1 << 2
	// RangeLen is the length of a [Range] in bytes, MaxRanges the most of one command.
	RangeLen  = 16
	MaxRanges = 256
)

// Ranges returns how many ranges a Dataset Management is about: 1 to 256.
func (c *Command) Ranges() int { return int(c.CDW10&0xFF) + 1 }

// Range is one range of a Dataset Management's data.
type Range struct {
	Attributes uint32
	Blocks     uint32 // from one: zero is an empty range
	LBA        uint64
}

// Encode writes the range.
func (r *Range) Encode(b []byte) {
	le.PutUint32(b, r.Attributes)
	le.PutUint32(b[4:], r.Blocks)
	le.PutUint64(b[8:], r.LBA)
}

// Decode reads a range.
func (r *Range) Decode(b []byte) error {
	if err := short("range", b, RangeLen); err != nil {
		return err
	}
	r.Attributes, r.Blocks, r.LBA = le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:])
	return nil
}
