package nvme

// IdentifyLen is the length of all identify data in bytes.
const IdentifyLen = 4096

// CNS says what an Identify command asks for: the lowest byte of its CDW10. CDW11
// bits 31:24 name the command set for those that want one.
type CNS uint8

// What can be asked for.
const (
	CNSNamespace      CNS = 0x00
	CNSController     CNS = 0x01
	CNSActiveList     CNS = 0x02
	CNSDescriptors    CNS = 0x03
	CNSCSINamespace   CNS = 0x05
	CNSCSIController  CNS = 0x06
	CNSCSIActiveList  CNS = 0x07
	CNSAllocatedList  CNS = 0x10
	CNSAllocated      CNS = 0x11
	CNSControllerList CNS = 0x13
)

// ControllerType is CNTRLTYPE.
type ControllerType uint8

// Controller types.
const (
	IOController        ControllerType = 1
	DiscoveryController ControllerType = 2
	AdminController     ControllerType = 3
)

// Bits of [Controller.SGLS].
const (
	// SGLSSupported: SGLs, without alignment.
	SGLSSupported = 1 << 0
	// SGLSKeyed: keyed data block descriptors; mandatory over RDMA.
	SGLSKeyed = 1 << 2
	// SGLSOffset: offsets as addresses, so in-capsule data.
	SGLSOffset = 1 << 20
)

// Bits of [Controller.ONCS].
const (
	ONCSCompare     = 1 << 0
	ONCSDSM         = 1 << 2
	ONCSWriteZeroes = 1 << 3
)

// LPACommandEffects is a bit of [Controller.LPA]: log page [LogEffects].
const LPACommandEffects = 1 << 1

// LPAExtended is a bit of [Controller.LPA]: lengths and offsets of log pages have 32
// and 64 bits.
const LPAExtended = 1 << 2

// CTRATTHostID128 is a bit of [Controller.CTRATT]: 128-bit host identifiers. Over
// fabrics it is always set.
const CTRATTHostID128 = 1 << 0

// Controller is the identify data of a controller, as far as it has a meaning over
// fabrics.
type Controller struct {
	VendorID, SubsystemVendorID uint16
	// Serial (20 bytes), Model (40) and Firmware (8) are ASCII.
	Serial, Model, Firmware string
	// RAB is the recommended arbitration burst, CMIC tells about paths.
	RAB, CMIC uint8
	// MDTS is the largest transfer: 2^MDTS pages of CAP's smallest size. Zero: any.
	MDTS         uint8
	ControllerID uint16
	Version      Version
	// OAES are the asynchronous events that can be asked for.
	OAES, CTRATT uint32
	Type         ControllerType
	// OACS are optional admin commands. ACL and AERL are how many Abort commands and
	// asynchronous event requests may be under way, zero-based.
	OACS      uint16
	ACL, AERL uint8
	// FirmwareSlots is FRMW, LPA tells about log pages, ELPE is the number of error
	// log entries, zero-based.
	FirmwareSlots, LPA, ELPE uint8
	// WarnTemp and CriticalTemp are in kelvins.
	WarnTemp, CriticalTemp uint16
	// Capacity is TNVMCAP in bytes.
	Capacity uint64
	// KeepAlive is KAS: the granularity of the keep alive timer in 100 ms. Zero: no
	// keep alive.
	KeepAlive uint16
	// SQES and CQES are the log2 of the entry sizes, smallest in bits 3:0, largest in
	// bits 7:4.
	SQES, CQES uint8
	// MaxCommands is MAXCMD, the most commands outstanding on one queue. Zero: no
	// hint.
	MaxCommands uint16
	// Namespaces is NN, the largest NSID; MaxNamespaces is MNAN.
	Namespaces, MaxNamespaces uint32
	// ONCS are optional I/O commands.
	ONCS uint16
	// VolatileWriteCache is VWC: bit 0 says that there is one.
	VolatileWriteCache uint8
	// AWUN and AWUPF are in blocks, zero-based.
	AWUN, AWUPF uint16
	SGLS        uint32
	// Subsystem is the NQN.
	Subsystem string
	// CommandCapsule (IOCCSZ) and ResponseCapsule (IORCSZ) are the largest capsules of
	// I/O queues in units of 16 bytes; InCapsuleOffset (ICDOFF) likewise.
	CommandCapsule, ResponseCapsule uint32
	InCapsuleOffset                 uint16
	// FabricsAttributes is FCATT: bit 0 says static controllers.
	FabricsAttributes uint8
	// MaxDescriptors is MSDBD, how many SGL data block descriptors a command may have.
	MaxDescriptors uint8
}

// InCapsule returns how many bytes of data a command capsule of an I/O queue holds.
func (c *Controller) InCapsule() int {
	return max(0, int(c.CommandCapsule)*16-CommandLen-int(c.InCapsuleOffset)*16)
}

// Encode writes the data.
func (c *Controller) Encode(b []byte) {
	b = b[:IdentifyLen]
	clear(b)
	le.PutUint16(b[0:], c.VendorID)
	le.PutUint16(b[2:], c.SubsystemVendorID)
	putText(b[4:24], c.Serial)
	putText(b[24:64], c.Model)
	putText(b[64:72], c.Firmware)
	b[72] = c.RAB
	b[76] = c.CMIC
	b[77] = c.MDTS
	le.PutUint16(b[78:], c.ControllerID)
	le.PutUint32(b[80:], uint32(c.Version))
	le.PutUint32(b[92:], c.OAES)
	le.PutUint32(b[96:], c.CTRATT)
	b[111] = uint8(c.Type)
	le.PutUint16(b[256:], c.OACS)
	b[258] = c.ACL
	b[259] = c.AERL
	b[260] = c.FirmwareSlots
	b[261] = c.LPA
	b[262] = c.ELPE
	le.PutUint16(b[266:], c.WarnTemp)
	le.PutUint16(b[268:], c.CriticalTemp)
	putUint128(b[280:], c.Capacity)
	le.PutUint16(b[320:], c.KeepAlive)
	b[512] = c.SQES
	b[513] = c.CQES
	le.PutUint16(b[514:], c.MaxCommands)
	le.PutUint32(b[516:], c.Namespaces)
	le.PutUint16(b[520:], c.ONCS)
	b[525] = c.VolatileWriteCache
	le.PutUint16(b[526:], c.AWUN)
	le.PutUint16(b[528:], c.AWUPF)
	le.PutUint32(b[536:], c.SGLS)
	le.PutUint32(b[540:], c.MaxNamespaces)
	copy(b[768:1023], c.Subsystem)
	le.PutUint32(b[1792:], c.CommandCapsule)
	le.PutUint32(b[1796:], c.ResponseCapsule)
	le.PutUint16(b[1800:], c.InCapsuleOffset)
	b[1802] = c.FabricsAttributes
	b[1803] = c.MaxDescriptors
}

// Decode reads the data.
func (c *Controller) Decode(b []byte) error {
	if err := short("controller data", b, IdentifyLen); err != nil {
		return err
	}
	*c = Controller{
		VendorID: le.Uint16(b[0:]), SubsystemVendorID: le.Uint16(b[2:]),
		Serial: text(b[4:24]), Model: text(b[24:64]), Firmware: text(b[64:72]),
		RAB: b[72], CMIC: b[76], MDTS: b[77],
		ControllerID: le.Uint16(b[78:]), Version: Version(le.Uint32(b[80:])),
		OAES: le.Uint32(b[92:]), CTRATT: le.Uint32(b[96:]), Type: ControllerType(b[111]),
		OACS: le.Uint16(b[256:]), ACL: b[258], AERL: b[259], FirmwareSlots: b[260], LPA: b[261], ELPE: b[262],
		WarnTemp: le.Uint16(b[266:]), CriticalTemp: le.Uint16(b[268:]), Capacity: uint128(b[280:]),
		KeepAlive: le.Uint16(b[320:]),
		SQES:      b[512], CQES: b[513], MaxCommands: le.Uint16(b[514:]), Namespaces: le.Uint32(b[516:]),
		ONCS: le.Uint16(b[520:]), VolatileWriteCache: b[525], AWUN: le.Uint16(b[526:]), AWUPF: le.Uint16(b[528:]),
		SGLS: le.Uint32(b[536:]), MaxNamespaces: le.Uint32(b[540:]), Subsystem: cString(b[768:1024]),
		CommandCapsule: le.Uint32(b[1792:]), ResponseCapsule: le.Uint32(b[1796:]), InCapsuleOffset: le.Uint16(b[1800:]),
		FabricsAttributes: b[1802], MaxDescriptors: b[1803],
	}
	return nil
}
