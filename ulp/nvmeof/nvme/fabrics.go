package nvme

import (
	"fmt"
	"strings"
)

// DiscoveryNQN is the well-known name of discovery subsystems.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// MaxNQN is the longest NVMe Qualified Name in bytes.
const MaxNQN = 223

// CheckNQN refuses what is no NVMe Qualified Name, and says why.
func CheckNQN(nqn string) error {
	switch {
	case len(nqn) > MaxNQN:
		return fmt.Errorf("NQN of %d bytes; at most %d are possible", len(nqn), MaxNQN)
	case !strings.HasPrefix(nqn, "nqn.") || len(nqn) < 12:
		return fmt.Errorf("%q is no NQN: it must look like nqn.2014-08.org.example:name", nqn)
	case strings.ContainsFunc(nqn, func(r rune) bool { return r <= ' ' || r == 0x7F }):
		return fmt.Errorf("%q is no NQN: it has blanks or control characters", nqn)
	}
	return nil
}

// AnyController is the controller id with which the Connect of an admin queue asks
// for any controller (the dynamic controller model).
const AnyController = 0xFFFF

// Connect is the Connect command, the first on any queue. [ConnectData] is its data.
type Connect struct {
	RecordFormat uint16
	// QueueID is 0 for the admin queue.
	QueueID uint16
	// SQSize is the size of the submission queue, zero-based.
	SQSize uint16
	// Attributes holds ConnectNoFlowControl.
	Attributes uint8
	// KeepAlive is the keep alive timeout in milliseconds; zero: none. Admin queue
	// only.
	KeepAlive uint32
}

// ConnectNoFlowControl disables the flow control of the submission queue.
const ConnectNoFlowControl = 1 << 2

// Offsets of fields in the command and the data of a Connect: for [InvalidParam].
const (
	ConnectAtRecordFormat = 40
	ConnectAtQueueID      = 42
	ConnectAtSQSize       = 44
	ConnectAtKeepAlive    = 48
	ConnectAtHostID       = 0
	ConnectAtController   = 16
	ConnectAtSubsystem    = 256
	ConnectAtHost         = 512
)

// InvalidParam is the result of a Connect that fails with [ConnectInvalidParam]:
// where the field is, and whether it is in the data or in the command.
func InvalidParam(offset uint16, inData bool) uint64 {
	if inData {
		return uint64(offset) | 1<<16
	}
	return uint64(offset)
}

// ParamName says in words which field the result of a failed Connect is about: what
// [InvalidParam] was told. It has a name for anything.
func ParamName(result uint64) string {
	offset, place := uint16(result), "command"
	names := map[uint16]string{
		ConnectAtRecordFormat: "record format", ConnectAtQueueID: "queue id", ConnectAtSQSize: "queue size", ConnectAtKeepAlive: "keep alive timeout",
	}
	if result>>16&1 != 0 {
		place = "data"
		names = map[uint16]string{
			ConnectAtHostID: "host id", ConnectAtController: "controller id", ConnectAtSubsystem: "subsystem NQN", ConnectAtHost: "host NQN",
		}
	}
	if name := names[offset]; name != "" {
		return name
	}
	return fmt.Sprintf("byte %d of the %s", offset, place)
}

// Command returns the command, without CID and SGL.
func (c *Connect) Command() Command {
	return Command{
		Opcode: Fabrics, Flags: FlagSGL, NSID: uint32(ConnectType),
		CDW10: uint32(c.RecordFormat) | uint32(c.QueueID)<<16,
		CDW11: uint32(c.SQSize) | uint32(c.Attributes)<<16,
		CDW12: c.KeepAlive,
	}
}

// Parse reads the command.
func (c *Connect) Parse(cmd *Command) {
	c.RecordFormat, c.QueueID = uint16(cmd.CDW10), uint16(cmd.CDW10>>16)
	c.SQSize, c.Attributes = uint16(cmd.CDW11), uint8(cmd.CDW11>>16)
	c.KeepAlive = cmd.CDW12
}

// ConnectDataLen is the length of a Connect's data in bytes.
const ConnectDataLen = 1024

// ConnectData is the data of a Connect.
type ConnectData struct {
	// HostID is the host's 128-bit identifier.
	HostID [16]byte
	// ControllerID is AnyController for the admin queue, else what its Connect
	// returned.
	ControllerID uint16
	// Subsystem and Host are NQNs.
	Subsystem, Host string
}

// Encode writes the data. Names longer than 255 bytes are cut.
func (d *ConnectData) Encode(b []byte) {
	b = b[:ConnectDataLen]
	clear(b)
	copy(b, d.HostID[:])
	le.PutUint16(b[16:], d.ControllerID)
	copy(b[256:511], d.Subsystem)
	copy(b[512:767], d.Host)
}

// Decode reads the data.
func (d *ConnectData) Decode(b []byte) error {
	if err := short("connect data", b, ConnectDataLen); err != nil {
		return err
	}
	copy(d.HostID[:], b)
	d.ControllerID = le.Uint16(b[16:])
	d.Subsystem = cString(b[256:512])
	d.Host = cString(b[512:768])
	return nil
}

// Property names a controller property by its offset.
type Property uint32

// Properties.
const (
	PropCAP  Property = 0x00
	PropVS   Property = 0x08
	PropCC   Property = 0x14
	PropCSTS Property = 0x1C
	PropNSSR Property = 0x20
	PropCRTO Property = 0x68
)

// PropertyAccess is a Property Get or Set.
type PropertyAccess struct {
	// Wide tells that the property has 8 bytes rather than 4.
	Wide     bool
	Property Property
	// Value is to be set. Not for Get, whose value is the completion's result.
	Value uint64
}

// Command returns the command, without CID. It has the empty SGL of commands without
// data.
func (p *PropertyAccess) Command(typ FabricsType) Command {
	c := Command{Opcode: Fabrics, Flags: FlagSGL, NSID: uint32(typ), SGL: Descriptor{Type: SGLKeyed}, CDW11: uint32(p.Property)}
	if p.Wide {
		c.CDW10 = 1
	}
	if typ == PropertySet {
		c.CDW12, c.CDW13 = uint32(p.Value), uint32(p.Value>>32)
	}
	return c
}

// Parse reads the command. It fails with [InvalidField] if the size is neither 4
// nor 8 bytes.
func (p *PropertyAccess) Parse(cmd *Command) error {
	size := cmd.CDW10 & 7
	if size > 1 {
		return InvalidField | DNR
	}
	p.Wide = size == 1
	p.Property = Property(cmd.CDW11)
	p.Value = uint64(cmd.CDW13)<<32 | uint64(cmd.CDW12)
	return nil
}
