package nvme

import "fmt"

// Status is how a command ended: the status code type in bits 10:8, the status
// code in bits 7:0, and the flags More and DNR. It is what a [Completion] has in its
// upper 15 bits. A Status other than Success is an error; errors.Is compares without
// the flags.
type Status uint16

// Flags of a Status.
const (
	// DNR, do not retry: the same command will fail again.
	DNR Status = 0x4000
	// More: the error log has more about it.
	More Status = 0x2000
)

// Generic status codes.
const (
	Success            Status = 0x00
	InvalidOpcode      Status = 0x01
	InvalidField       Status = 0x02
	CIDConflict        Status = 0x03
	DataTransferError  Status = 0x04
	InternalError      Status = 0x06
	AbortRequested     Status = 0x07
	SQDeleted          Status = 0x08
	InvalidNamespace   Status = 0x0B
	CommandSequence    Status = 0x0C
	InvalidSGLSegment  Status = 0x0D
	InvalidSGLCount    Status = 0x0E
	SGLLengthInvalid   Status = 0x0F
	SGLTypeInvalid     Status = 0x11
	OperationDenied    Status = 0x15
	SGLOffsetInvalid   Status = 0x16
	HostIDInconsistent Status = 0x18
	KeepAliveExpired   Status = 0x19
	KeepAliveInvalid   Status = 0x1A
	NamespaceProtected Status = 0x20
	LBAOutOfRange      Status = 0x80
	CapacityExceeded   Status = 0x81
	NamespaceNotReady  Status = 0x82
)

// Masks within a Status.
const (
	statusType     Status = 0x700
	statusAndType  Status = 0x7FF
	vendorSpecific Status = 0x700
)

// Command specific status codes. Those from 0x180 mean what they are called for
// fabrics commands; for I/O commands see [Conflicting].
const (
	InvalidQueueID        Status = 0x101
	AbortLimitExceeded    Status = 0x103
	AsyncLimitExceeded    Status = 0x105
	InvalidLogPage        Status = 0x109
	FeatureNotSaveable    Status = 0x10D
	FeatureNotChangeable  Status = 0x10E
	FeatureNotPerNS       Status = 0x10F
	ConnectFormat         Status = 0x180
	ControllerBusy        Status = 0x181
	ConnectInvalidParam   Status = 0x182
	RestartDiscovery      Status = 0x183
	ConnectInvalidHost    Status = 0x184
	InvalidQueueType      Status = 0x185
	DiscoverRestart       Status = 0x190
	AuthRequired          Status = 0x191
	Conflicting           Status = 0x180
	InvalidProtectionInfo Status = 0x181
	WriteToReadOnly       Status = 0x182
)

// Media and data integrity errors.
const (
	WriteFault        Status = 0x280
	UnrecoveredRead   Status = 0x281
	CompareFailure    Status = 0x285
	AccessDenied      Status = 0x286
	DeallocatedOrNone Status = 0x287
)

var statusNames = map[Status]string{
	Success: "success", InvalidOpcode: "invalid opcode", InvalidField: "invalid field", CIDConflict: "command id conflict",
	DataTransferError: "data transfer error", InternalError: "internal error", AbortRequested: "abort requested",
	SQDeleted: "aborted: queue deleted", InvalidNamespace: "invalid namespace or format", CommandSequence: "command sequence error",
	InvalidSGLSegment: "invalid SGL segment descriptor", InvalidSGLCount: "invalid number of SGL descriptors",
	SGLLengthInvalid: "data SGL length invalid", SGLTypeInvalid: "SGL descriptor type invalid", OperationDenied: "operation denied",
	SGLOffsetInvalid: "SGL offset invalid", HostIDInconsistent: "host identifier inconsistent", KeepAliveExpired: "keep alive timer expired",
	KeepAliveInvalid: "keep alive timeout invalid", NamespaceProtected: "namespace is write protected", LBAOutOfRange: "LBA out of range",
	CapacityExceeded: "capacity exceeded", NamespaceNotReady: "namespace not ready", InvalidQueueID: "invalid queue identifier",
	AbortLimitExceeded: "abort command limit exceeded", AsyncLimitExceeded: "asynchronous event request limit exceeded",
	InvalidLogPage: "invalid log page", FeatureNotSaveable: "feature not saveable", FeatureNotChangeable: "feature not changeable",
	FeatureNotPerNS: "feature not namespace specific", ConnectFormat: "connect: incompatible format (I/O: conflicting attributes)",
	ControllerBusy: "connect: controller busy", ConnectInvalidParam: "connect: invalid parameters", RestartDiscovery: "connect: restart discovery",
	ConnectInvalidHost: "connect: invalid host", InvalidQueueType: "connect: invalid queue type", DiscoverRestart: "discovery restart",
	AuthRequired: "authentication required", WriteFault: "write fault", UnrecoveredRead: "unrecovered read error",
	CompareFailure: "compare failure", AccessDenied: "access denied", DeallocatedOrNone: "deallocated or unwritten block",
}

// Code returns the status without its flags.
func (s Status) Code() Status { return s & statusAndType }

// OK tells success.
func (s Status) OK() bool { return s.Code() == Success }

// String returns the status's name, its number and its DNR flag.
func (s Status) String() string {
	name, ok := statusNames[s.Code()]
	switch {
	case ok:
	case s&statusType == vendorSpecific:
		name = "vendor specific"
	default:
		name = "unknown status"
	}
	if s&DNR != 0 {
		return fmt.Sprintf("%s (%#x, do not retry)", name, uint16(s.Code()))
	}
	return fmt.Sprintf("%s (%#x)", name, uint16(s.Code()))
}

// Error makes a Status an error.
func (s Status) Error() string { return "NVMe status: " + s.String() }

// Is compares without flags.
func (s Status) Is(target error) bool {
	t, ok := target.(Status)
	return ok && s.Code() == t.Code()
}
