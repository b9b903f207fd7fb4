package nvme

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type encoder interface{ Encode([]byte) }

// fact says where a structure with one field set has bytes other than zero.
type fact struct {
	field string
	v     encoder
	at    int
	want  string
}

// TestOffsets holds every field against where the specification has it: one field is
// set, and nothing but its bytes may change. Fields that are padded with spaces are
// in TestText.
func TestOffsets(t *testing.T) {
	structures := []struct {
		name  string
		len   int
		facts []fact
	}{
		{"command", CommandLen, []fact{
			{"opcode", &Command{Opcode: 0x7F}, 0, "\x7f"},
			{"flags", &Command{Flags: 0x40}, 1, "\x40"},
			{"cid", &Command{CID: 0x0102}, 2, "\x02\x01"},
			{"nsid", &Command{NSID: 0x01020304}, 4, "\x04\x03\x02\x01"},
			{"cdw2", &Command{CDW2: 0x01020304}, 8, "\x04\x03\x02\x01"},
			{"cdw3", &Command{CDW3: 0x01020304}, 12, "\x04\x03\x02\x01"},
			{"mptr", &Command{MPTR: 0x0102030405060708}, 16, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"sgl", &Command{SGL: Descriptor{Addr: 0x0102030405060708, Len: 0x0A0B0C, Key: 0x11121314, Type: SGLKeyed}}, 24,
				"\x08\x07\x06\x05\x04\x03\x02\x01\x0c\x0b\x0a\x14\x13\x12\x11\x40"},
			{"cdw10", &Command{CDW10: 0x01020304}, 40, "\x04\x03\x02\x01"},
			{"cdw11", &Command{CDW11: 0x01020304}, 44, "\x04\x03\x02\x01"},
			{"cdw12", &Command{CDW12: 0x01020304}, 48, "\x04\x03\x02\x01"},
			{"cdw13", &Command{CDW13: 0x01020304}, 52, "\x04\x03\x02\x01"},
			{"cdw14", &Command{CDW14: 0x01020304}, 56, "\x04\x03\x02\x01"},
			{"cdw15", &Command{CDW15: 0x01020304}, 60, "\x04\x03\x02\x01"},
		}},
		{"SGL descriptor", DescriptorLen, []fact{
			{"address", &Descriptor{Addr: 0x0102030405060708}, 0, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"keyed length has 24 bits", &Descriptor{Len: 0xFF123456, Type: SGLKeyed}, 8, "\x56\x34\x12\x00\x00\x00\x00\x40"},
			{"key", &Descriptor{Key: 0x01020304, Type: SGLKeyedInvalidate}, 11, "\x04\x03\x02\x01\x4f"},
			{"in-capsule length has 32", &Descriptor{Len: 0x01020304, Type: SGLOffset}, 8, "\x04\x03\x02\x01\x00\x00\x00\x01"},
			{"no key there", &Descriptor{Key: 0x01020304, Type: SGLOffset}, 15, "\x01"},
		}},
		{"completion", CompletionLen, []fact{
			{"result", &Completion{Result: 0x0102030405060708}, 0, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"sqhd", &Completion{SQHead: 0x0102}, 8, "\x02\x01"},
			{"sqid", &Completion{SQID: 0x0102}, 10, "\x02\x01"},
			{"cid", &Completion{CID: 0x0102}, 12, "\x02\x01"},
			{"status is shifted by one", &Completion{Status: InvalidField}, 14, "\x04\x00"},
			{"status code type", &Completion{Status: ConnectInvalidParam}, 14, "\x04\x03"},
			{"DNR is bit 15", &Completion{Status: InvalidField | DNR}, 14, "\x04\x80"},
		}},
		{"connect data", ConnectDataLen, []fact{
			{"hostid", &ConnectData{HostID: [16]byte{1, 15: 2}}, 0, "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"},
			{"cntlid", &ConnectData{ControllerID: 0x0102}, 16, "\x02\x01"},
			{"subnqn", &ConnectData{Subsystem: "nqn.s"}, 256, "nqn.s"},
			{"hostnqn", &ConnectData{Host: "nqn.h"}, 512, "nqn.h"},
		}},
		{"dataset management range", RangeLen, []fact{
			{"attributes", &Range{Attributes: 0x01020304}, 0, "\x04\x03\x02\x01"},
			{"length", &Range{Blocks: 0x01020304}, 4, "\x04\x03\x02\x01"},
			{"start", &Range{LBA: 0x0102030405060708}, 8, "\x08\x07\x06\x05\x04\x03\x02\x01"},
		}},
		{"connection request", ConnRequestLen, []fact{
			{"recfmt", &ConnRequest{RecordFormat: 0x0102}, 0, "\x02\x01"},
			{"qid", &ConnRequest{QueueID: 0x0102}, 2, "\x02\x01"},
			{"hrqsize", &ConnRequest{RecvQueueSize: 0x0102}, 4, "\x02\x01"},
			{"hsqsize", &ConnRequest{SendQueueSize: 0x0102}, 6, "\x02\x01"},
			{"cntlid", &ConnRequest{ControllerID: 0x0102}, 8, "\x02\x01"},
		}},
		{"connection acceptance", ConnAcceptLen, []fact{
			{"recfmt", &ConnAccept{RecordFormat: 0x0102}, 0, "\x02\x01"},
			{"crqsize", &ConnAccept{RecvQueueSize: 0x0102}, 2, "\x02\x01"},
		}},
		{"connection rejection", ConnRejectLen, []fact{
			{"recfmt", &ConnReject{RecordFormat: 0x0102}, 0, "\x02\x01"},
			{"sts", &ConnReject{Reason: RejectNoResources}, 2, "\x06\x00"},
		}},
		{"namespace", IdentifyLen, []fact{
			{"nsze", &Namespace{Size: 0x0102030405060708}, 0, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"ncap", &Namespace{Capacity: 0x0102030405060708}, 8, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"nuse", &Namespace{Used: 0x0102030405060708}, 16, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"nsfeat", &Namespace{Features: 1}, 24, "\x01"},
			{"nlbaf is zero-based", &Namespace{Formats: make([]LBAFormat, 2)}, 25, "\x01"},
			{"flbas", &Namespace{Format: 1}, 26, "\x01"},
			{"nmic", &Namespace{Shared: true}, 30, "\x01"},
			{"dlfeat", &Namespace{Deallocate: 9}, 33, "\x09"},
			{"nawun", &Namespace{AtomicWrite: 0x0102}, 34, "\x02\x01"},
			{"nawupf", &Namespace{AtomicPower: 0x0102}, 36, "\x02\x01"},
			{"noiob", &Namespace{Boundary: 0x0102}, 46, "\x02\x01"},
			{"nsattr", &Namespace{ReadOnly: true}, 99, "\x01"},
			{"nguid", &Namespace{NGUID: [16]byte{1, 15: 2}}, 104, "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"},
			{"eui64", &Namespace{EUI64: [8]byte{1, 7: 2}}, 120, "\x01\x00\x00\x00\x00\x00\x00\x02"},
			{"lbaf", &Namespace{Formats: []LBAFormat{{Metadata: 0x0102, Shift: 9, Performance: 3}}}, 128, "\x02\x01\x09\x03"},
		}},
		{"error log entry", ErrorEntryLen, []fact{
			{"error count", &ErrorEntry{Count: 0x0102030405060708}, 0, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"sqid", &ErrorEntry{SQID: 0x0102}, 8, "\x02\x01"},
			{"cmdid", &ErrorEntry{CID: 0x0102}, 10, "\x02\x01"},
			{"status", &ErrorEntry{Status: InvalidField}, 12, "\x04\x00"},
			{"location", &ErrorEntry{Location: 0x0102}, 14, "\x02\x01"},
			{"lba", &ErrorEntry{LBA: 0x0102030405060708}, 16, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"nsid", &ErrorEntry{NSID: 0x01020304}, 24, "\x04\x03\x02\x01"},
		}},
		{"health log", HealthLen, []fact{
			{"critical warning", &Health{CriticalWarning: 1}, 0, "\x01"},
			{"temperature", &Health{Temperature: 0x0102}, 1, "\x02\x01"},
			{"available spare", &Health{Spare: 1}, 3, "\x01"},
			{"threshold", &Health{SpareThreshold: 1}, 4, "\x01"},
			{"used", &Health{Used: 1}, 5, "\x01"},
			{"data units read", &Health{UnitsRead: 0x0102}, 32, "\x02\x01"},
			{"data units written", &Health{UnitsWritten: 0x0102}, 48, "\x02\x01"},
			{"host reads", &Health{Reads: 0x0102}, 64, "\x02\x01"},
			{"host writes", &Health{Writes: 0x0102}, 80, "\x02\x01"},
			{"busy time", &Health{Busy: 0x0102}, 96, "\x02\x01"},
			{"power cycles", &Health{PowerCycles: 0x0102}, 112, "\x02\x01"},
			{"power on hours", &Health{PowerOnHours: 0x0102}, 128, "\x02\x01"},
			{"unsafe shutdowns", &Health{UnsafeShutdowns: 0x0102}, 144, "\x02\x01"},
			{"media errors", &Health{MediaErrors: 0x0102}, 160, "\x02\x01"},
			{"error log entries", &Health{ErrorEntries: 0x0102}, 176, "\x02\x01"},
		}},
		{"firmware log", FirmwareLen, []fact{
			{"afi", &FirmwareSlots{Active: 1}, 0, "\x01"},
			{"frs1", &FirmwareSlots{Revisions: [7]string{"1.0"}}, 8, "1.0     "},
			{"frs7", &FirmwareSlots{Revisions: [7]string{6: "1.0"}}, 56, "1.0     "},
		}},
		{"effects log", EffectsLen, []fact{
			{"acs", &Effects{Admin: [256]uint32{6: 0x01020304}}, 24, "\x04\x03\x02\x01"},
			{"iocs", &Effects{IO: [256]uint32{2: 0x01020304}}, 1032, "\x04\x03\x02\x01"},
		}},
		{"discovery header", DiscoveryHeaderLen, []fact{
			{"genctr", &DiscoveryHeader{Generation: 0x0102030405060708}, 0, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"numrec", &DiscoveryHeader{Records: 0x0102030405060708}, 8, "\x08\x07\x06\x05\x04\x03\x02\x01"},
			{"recfmt", &DiscoveryHeader{RecordFormat: 0x0102}, 16, "\x02\x01"},
		}},
	}
	for _, s := range structures {
		t.Run(s.name, func(t *testing.T) {
			for _, f := range s.facts {
				b := bytes.Repeat([]byte{0xEE}, s.len+8)
				f.v.Encode(b)
				want := make([]byte, s.len)
				copy(want[f.at:], f.want)
				assert.Equal(t, want, b[:s.len], f.field)
				assert.Equal(t, bytes.Repeat([]byte{0xEE}, 8), b[s.len:], "%s: written behind the end", f.field)
			}
		})
	}
}

// TestText: where fields of text that is padded with spaces begin and end.
func TestText(t *testing.T) {
	check := func(b []byte, at, n int, s string) {
		t.Helper()
		assert.Equal(t, s+string(bytes.Repeat([]byte{' '}, n-len(s))), string(b[at:at+n]))
	}
	b := make([]byte, IdentifyLen)
	(&Controller{Serial: "serial", Model: "model", Firmware: "fw", Subsystem: "nqn.x"}).Encode(b)
	check(b, 4, 20, "serial")
	check(b, 24, 40, "model")
	check(b, 64, 8, "fw")
	assert.Equal(t, "nqn.x\x00", string(b[768:774]))
	assert.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0}, b[72:80])

	(&DiscoveryEntry{Service: "4420", NQN: "nqn.x", Address: "10.0.0.1"}).Encode(b)
	check(b, 32, 32, "4420")
	assert.Equal(t, "nqn.x\x00", string(b[256:262]))
	check(b, 512, 256, "10.0.0.1")
}

// TestController has the identify controller's numbers, which TestOffsets leaves out
// for its text.
func TestController(t *testing.T) {
	empty := make([]byte, IdentifyLen)
	(&Controller{}).Encode(empty)
	for _, f := range []fact{
		{"vid", &Controller{VendorID: 0x0102}, 0, "\x02\x01"},
		{"ssvid", &Controller{SubsystemVendorID: 0x0102}, 2, "\x02\x01"},
		{"rab", &Controller{RAB: 1}, 72, "\x01"},
		{"cmic", &Controller{CMIC: 1}, 76, "\x01"},
		{"mdts", &Controller{MDTS: 8}, 77, "\x08"},
		{"cntlid", &Controller{ControllerID: 0x0102}, 78, "\x02\x01"},
		{"ver", &Controller{Version: Version13}, 80, "\x00\x03\x01\x00"},
		{"oaes", &Controller{OAES: 0x01020304}, 92, "\x04\x03\x02\x01"},
		{"ctratt", &Controller{CTRATT: 0x01020304}, 96, "\x04\x03\x02\x01"},
		{"cntrltype", &Controller{Type: DiscoveryController}, 111, "\x02"},
		{"oacs", &Controller{OACS: 0x0102}, 256, "\x02\x01"},
		{"acl", &Controller{ACL: 3}, 258, "\x03"},
		{"aerl", &Controller{AERL: 3}, 259, "\x03"},
		{"frmw", &Controller{FirmwareSlots: 3}, 260, "\x03"},
		{"lpa", &Controller{LPA: LPACommandEffects}, 261, "\x02"},
		{"elpe", &Controller{ELPE: 63}, 262, "\x3f"},
		{"wctemp", &Controller{WarnTemp: 0x0102}, 266, "\x02\x01"},
		{"cctemp", &Controller{CriticalTemp: 0x0102}, 268, "\x02\x01"},
		{"tnvmcap", &Controller{Capacity: 0x0102030405060708}, 280, "\x08\x07\x06\x05\x04\x03\x02\x01"},
		{"kas", &Controller{KeepAlive: 0x0102}, 320, "\x02\x01"},
		{"sqes", &Controller{SQES: 0x66}, 512, "\x66"},
		{"cqes", &Controller{CQES: 0x44}, 513, "\x44"},
		{"maxcmd", &Controller{MaxCommands: 0x0102}, 514, "\x02\x01"},
		{"nn", &Controller{Namespaces: 0x01020304}, 516, "\x04\x03\x02\x01"},
		{"oncs", &Controller{ONCS: ONCSDSM | ONCSWriteZeroes}, 520, "\x0c\x00"},
		{"vwc", &Controller{VolatileWriteCache: 1}, 525, "\x01"},
		{"awun", &Controller{AWUN: 0x0102}, 526, "\x02\x01"},
		{"awupf", &Controller{AWUPF: 0x0102}, 528, "\x02\x01"},
		{"sgls", &Controller{SGLS: SGLSSupported | SGLSKeyed | SGLSOffset}, 536, "\x05\x00\x10\x00"},
		{"mnan", &Controller{MaxNamespaces: 0x01020304}, 540, "\x04\x03\x02\x01"},
		{"subnqn", &Controller{Subsystem: "nqn.x"}, 768, "nqn.x"},
		{"ioccsz", &Controller{CommandCapsule: 0x01020304}, 1792, "\x04\x03\x02\x01"},
		{"iorcsz", &Controller{ResponseCapsule: 0x01020304}, 1796, "\x04\x03\x02\x01"},
		{"icdoff", &Controller{InCapsuleOffset: 0x0102}, 1800, "\x02\x01"},
		{"fcatt", &Controller{FabricsAttributes: 1}, 1802, "\x01"},
		{"msdbd", &Controller{MaxDescriptors: 1}, 1803, "\x01"},
	} {
		b := bytes.Repeat([]byte{0xEE}, IdentifyLen)
		f.v.Encode(b)
		want := bytes.Clone(empty)
		copy(want[f.at:], f.want)
		assert.Equal(t, want, b, f.field)
	}
	// The reverse: what a target with 4 KiB in the capsule says.
	assert.Equal(t, 4096, (&Controller{CommandCapsule: 4 + 256}).InCapsule())
	assert.Equal(t, 0, (&Controller{CommandCapsule: 4}).InCapsule())
	assert.Equal(t, 0, (&Controller{}).InCapsule())
}

// TestDiscoveryEntry is likewise about numbers beside text.
func TestDiscoveryEntry(t *testing.T) {
	empty := make([]byte, DiscoveryEntryLen)
	(&DiscoveryEntry{}).Encode(empty)
	for _, f := range []fact{
		{"trtype", &DiscoveryEntry{Transport: TransportRDMA}, 0, "\x01"},
		{"adrfam", &DiscoveryEntry{Family: FamilyIPv6}, 1, "\x02"},
		{"subtype", &DiscoveryEntry{Subsystem: EntryNVM}, 2, "\x02"},
		{"treq", &DiscoveryEntry{Requirements: NoFlowControlSupported}, 3, "\x04"},
		{"portid", &DiscoveryEntry{PortID: 0x0102}, 4, "\x02\x01"},
		{"cntlid", &DiscoveryEntry{ControllerID: AnyController}, 6, "\xff\xff"},
		{"asqsz", &DiscoveryEntry{AdminQueueSize: 32}, 8, "\x20\x00"},
		{"rdma qptype", &DiscoveryEntry{QueuePair: QueuesConnected}, 768, "\x01"},
		{"rdma prtype", &DiscoveryEntry{Provider: ProviderIWARP}, 769, "\x05"},
		{"rdma cms", &DiscoveryEntry{Management: ManagementRDMACM}, 770, "\x01"},
		{"pkey", &DiscoveryEntry{PartitionKey: 0x0102}, 776, "\x02\x01"},
	} {
		b := bytes.Repeat([]byte{0xEE}, DiscoveryEntryLen)
		f.v.Encode(b)
		want := bytes.Clone(empty)
		copy(want[f.at:], f.want)
		assert.Equal(t, want, b, f.field)
	}
}

// TestCommandFields: where the parameters of commands are, byte for byte.
func TestCommandFields(t *testing.T) {
	bytesOf := func(c Command) []byte {
		b := make([]byte, CommandLen)
		c.Encode(b)
		return b
	}
	connect := Connect{RecordFormat: 0x0102, QueueID: 0x0304, SQSize: 0x0506, Attributes: 0x07, KeepAlive: 0x08090A0B}
	b := bytesOf(connect.Command())
	assert.Equal(t, []byte{0x7F, 0x40, 0, 0, 1}, b[:5], "opcode, flags, fctype at byte 4")
	assert.Equal(t, []byte{2, 1, 4, 3, 6, 5, 7, 0, 0x0B, 0x0A, 9, 8}, b[40:52])
	var c Command
	require.NoError(t, c.Decode(b))
	var back Connect
	back.Parse(&c)
	assert.Equal(t, connect, back)
	assert.Equal(t, ConnectType, c.FabricsType())
	assert.Equal(t, HostToTarget, c.Direction())

	set := PropertyAccess{Wide: true, Property: 0x01020304, Value: 0x05060708090A0B0C}
	b = bytesOf(set.Command(PropertySet))
	assert.Equal(t, []byte{0x7F, 0x40, 0, 0, 0}, b[:5])
	assert.Equal(t, byte(0x40), b[39], "commands without data carry an empty keyed descriptor")
	assert.Equal(t, []byte{1, 0, 0, 0, 4, 3, 2, 1, 0x0C, 0x0B, 0x0A, 9, 8, 7, 6, 5}, b[40:56])
	b = bytesOf((&PropertyAccess{Property: PropCSTS, Value: 1}).Command(PropertyGet))
	assert.Equal(t, []byte{0x7F, 0x40, 0, 0, 4}, b[:5])
	assert.Equal(t, []byte{0, 0, 0, 0, 0x1C, 0, 0, 0, 0}, b[40:49], "a Get has no value")
	var access PropertyAccess
	assert.ErrorIs(t, access.Parse(&Command{CDW10: 2}), InvalidField)

	c = Command{CDW12: FUA}
	c.SetBlocks(0x0102030405060708, 65536)
	b = bytesOf(c)
	assert.Equal(t, []byte{8, 7, 6, 5, 4, 3, 2, 1, 0xFF, 0xFF, 0x00, 0x40}, b[40:52], "slba, nlb zero-based, control with FUA at bit 14")
	assert.Equal(t, uint64(0x0102030405060708), c.LBA())
	assert.Equal(t, uint32(65536), c.Blocks())
	c.SetBlocks(0, 1)
	assert.Equal(t, uint32(FUA), c.CDW12)

	get := LogRequest{Page: LogDiscovery, Length: (0x01020304 + 1) * 4, Offset: 0x05060708090A0B0C, RetainEvent: true}
	b = bytesOf(get.Command(AllNamespaces))
	assert.Equal(t, []byte{0x02, 0x40, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}, b[:8])
	assert.Equal(t, []byte{0x70, 0x80, 4, 3, 2, 1, 0, 0, 0x0C, 0x0B, 0x0A, 9, 8, 7, 6, 5}, b[40:56], "lid, rae, numdl, numdu, lpo")

	assert.Equal(t, uint32(0x00030003), Queues(4))
	assert.Equal(t, 4, QueueCount(0x00030007))
	assert.Equal(t, uint64(0x10100), InvalidParam(ConnectAtSubsystem, true))
	assert.Equal(t, uint64(44), InvalidParam(ConnectAtSQSize, false))
	for result, want := range map[uint64]string{
		0x10000: "host id", 0x10010: "controller id", 0x10100: "subsystem NQN", 0x10200: "host NQN", 0x10001: "byte 1 of the data",
		40: "record format", 42: "queue id", 44: "queue size", 48: "keep alive timeout", 256: "byte 256 of the command",
	} {
		assert.Equal(t, want, ParamName(result))
	}
}

// TestLogLengthHas35Bits: the largest NUMD is no length of zero.
func TestLogLengthHas35Bits(t *testing.T) {
	var r LogRequest
	r.Parse(&Command{CDW10: 0xFFFF0002, CDW11: 0xFFFF})
	assert.Equal(t, uint64(1)<<34, r.Length)
	r.Parse(&Command{CDW10: 0x00000002})
	assert.Equal(t, uint64(4), r.Length)
}

func TestProperties(t *testing.T) {
	caps := MakeCapabilities(127, 15)
	assert.Equal(t, Capabilities(0x20_0F01007F), caps)
	assert.Equal(t, uint16(127), caps.MaxQueueEntries())
	assert.Equal(t, uint8(15), caps.Timeout())
	assert.True(t, caps.NVMCommandSet())
	assert.Equal(t, uint8(12), caps.MinPageShift())
	assert.Equal(t, "1.3.0", Version13.String())

	// What Linux writes.
	assert.Equal(t, Configuration(0x460001), CCEntrySizes|CCEnable)
	cc := Configuration(0x464001)
	assert.True(t, cc.Enabled())
	assert.True(t, cc.Shutdown())
	assert.Equal(t, uint8(6), cc.SQEntryShift())
	assert.Equal(t, uint8(4), cc.CQEntryShift())
	assert.Equal(t, uint8(12), cc.PageShift())
	assert.Zero(t, cc.CommandSet())
	assert.True(t, ControllerStatus(8).ShutdownComplete())
	assert.False(t, ControllerStatus(4).ShutdownComplete())
	assert.True(t, ControllerStatus(1).Ready())
	assert.True(t, ControllerStatus(2).Fatal())
}

func TestStatus(t *testing.T) {
	var err error = LBAOutOfRange | DNR
	assert.ErrorIs(t, err, LBAOutOfRange)
	assert.NotErrorIs(t, err, InvalidField)
	assert.Equal(t, "NVMe status: LBA out of range (0x80, do not retry)", err.Error())
	assert.Equal(t, "unknown status (0x7b)", Status(0x7B).String())
	assert.Equal(t, "vendor specific (0x701)", Status(0x701).String())
	assert.True(t, More.OK())
	var c Completion
	b := make([]byte, CompletionLen)
	(&Completion{Status: CompareFailure | DNR}).Encode(b)
	b[14] |= 1 // the phase bit
	require.NoError(t, c.Decode(b))
	assert.Equal(t, CompareFailure|DNR, c.Status)
}

func TestLists(t *testing.T) {
	b := make([]byte, IdentifyLen)
	EncodeActive(b, []uint32{1, 0x01020304})
	assert.Equal(t, []byte{1, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0}, b[:12])
	ids, err := DecodeActive(b)
	require.NoError(t, err)
	assert.Equal(t, []uint32{1, 0x01020304}, ids)

	list := []NamespaceDescriptor{{NGUIDKind, make([]byte, 16)}, {UUIDKind, bytes.Repeat([]byte{7}, 16)}}
	EncodeDescriptors(b, list)
	assert.Equal(t, []byte{2, 16, 0, 0}, b[:4])
	assert.Equal(t, []byte{3, 16, 0, 0, 7}, b[20:25])
	got, err := DecodeDescriptors(b)
	require.NoError(t, err)
	assert.Equal(t, list, got)
}

func TestNQN(t *testing.T) {
	assert.NoError(t, CheckNQN("nqn.2014-08.org.example:disk"))
	assert.NoError(t, CheckNQN(DiscoveryNQN))
	for _, bad := range []string{"", "disk", "iqn.2014-08.org.example:disk", "nqn.2014-08.org.example:a b", "nqn.2014-08.org.example:" + string(make([]byte, 200))} {
		assert.Error(t, CheckNQN(bad), bad)
	}
}

// TestDiscoveryEntryText: an entry is told in words, whatever it holds.
func TestDiscoveryEntryText(t *testing.T) {
	e := DiscoveryEntry{Transport: TransportRDMA, Family: FamilyIPv4, Subsystem: EntryNVM, Service: "4420", NQN: "nqn.x", Address: "192.0.2.1", Provider: ProviderRoCEv2}
	assert.Equal(t, "nvm nqn.x at rdma 192.0.2.1:4420 (RoCE v2)", e.String())
	assert.Equal(t, "[nvm nqn.x at rdma 192.0.2.1:4420 (RoCE v2)]", fmt.Sprintf("%+v", []DiscoveryEntry{e}))
	e = DiscoveryEntry{Transport: TransportTCP, Subsystem: EntryReferral, Service: "8009", NQN: "a\x1b[31mred\n", Address: "2001:db8::1"}
	assert.Equal(t, `referral "a\x1b[31mred\n" at tcp [2001:db8::1]:8009`, e.String())
	assert.Equal(t, "0  at 9 :", DiscoveryEntry{Transport: 9}.String())
	assert.Equal(t, "ipv4 ipv6 7 discovery connected 2 InfiniBand RoCE iWARP not specified rdma-cm fc loop", fmt.Sprint(FamilyIPv4, " ", FamilyIPv6, " ", AddressFamily(7), " ",
		EntryDiscovery, " ", QueuesConnected, " ", QueuePairType(2), " ", ProviderIB, " ", ProviderRoCE, " ", ProviderIWARP, " ", ProviderNone, " ", ManagementRDMACM,
		" ", TransportFC, " ", TransportLoop))
}
