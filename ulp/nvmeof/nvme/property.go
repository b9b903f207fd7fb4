package nvme

import "fmt"

// Capabilities is the property CAP.
type Capabilities uint64

// MaxQueueEntries is how many entries a queue may have, zero-based (MQES).
func (c Capabilities) MaxQueueEntries() uint16 { return uint16(c) }

// Timeout is how long the controller may take to become ready or to shut down, in
// units of 500 ms (TO).
func (c Capabilities) Timeout() uint8 { return uint8(c >> 24) }

// NVMCommandSet tells that the controller has the NVM command set (CSS bit 0).
func (c Capabilities) NVMCommandSet() bool { return c>>37&1 != 0 }

// MinPageShift is the log2 of the smallest memory page size, which MDTS counts in.
func (c Capabilities) MinPageShift() uint8 { return uint8(c>>48&0xF) + 12 }

// MakeCapabilities returns a CAP of a fabrics controller: contiguous queues (CQR), as
// the specification requires there, the NVM command set, pages of 4 KiB.
func MakeCapabilities(maxQueueEntries uint16, timeout uint8) Capabilities {
	return Capabilities(maxQueueEntries) | 1<<16 | Capabilities(timeout)<<24 | 1<<37
}

// Version is the property VS: major in bits 31:16, minor in 15:8, tertiary in 7:0.
type Version uint32

// Versions.
const (
	Version13 Version = 0x00010300
	Version14 Version = 0x00010400
)

// String returns the customary spelling.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v>>16, uint8(v>>8), uint8(v)) }

// Configuration is the property CC.
type Configuration uint32

// Values of CC.
const (
	// CCEnable: EN.
	CCEnable Configuration = 1
	// CCShutdown is the mask of SHN; CCShutdownNormal and CCShutdownAbrupt ask for one.
	CCShutdown       Configuration = 3 << 14
	CCShutdownNormal Configuration = 1 << 14
	CCShutdownAbrupt Configuration = 2 << 14
	// CCEntrySizes: IOSQES 6 and IOCQES 4, entries of 64 and 16 bytes.
	CCEntrySizes Configuration = 6<<16 | 4<<20
)

// Enabled tells EN.
func (c Configuration) Enabled() bool { return c&CCEnable != 0 }

// Shutdown tells that a shutdown was asked for.
func (c Configuration) Shutdown() bool { return c&CCShutdown != 0 }

// CommandSet is CSS: 0 is the NVM command set.
func (c Configuration) CommandSet() uint8 { return uint8(c >> 4 & 7) }

// PageShift is the log2 of the memory page size (MPS).
func (c Configuration) PageShift() uint8 { return uint8(c>>7&0xF) + 12 }

// SQEntryShift and CQEntryShift are the log2 of the sizes of queue entries.
func (c Configuration) SQEntryShift() uint8 { return uint8(c >> 16 & 0xF) }

// CQEntryShift is described with SQEntryShift.
func (c Configuration) CQEntryShift() uint8 { return uint8(c >> 20 & 0xF) }

// ControllerStatus is the property CSTS.
type ControllerStatus uint32

// Values of CSTS.
const (
	// CSTSReady: RDY.
	CSTSReady ControllerStatus = 1
	// CSTSFatal: CFS.
	CSTSFatal ControllerStatus = 1 << 1
	// CSTSShutdown is the mask of SHST, and what it says.
	CSTSShutdown         ControllerStatus = 3 << 2
	CSTSShutdownOccuring ControllerStatus = 1 << 2
	CSTSShutdownComplete ControllerStatus = 2 << 2
)

// Ready tells RDY, Fatal CFS.
func (s ControllerStatus) Ready() bool { return s&CSTSReady != 0 }

// Fatal tells CFS.
func (s ControllerStatus) Fatal() bool { return s&CSTSFatal != 0 }

// ShutdownComplete tells that a shutdown that was asked for is through.
func (s ControllerStatus) ShutdownComplete() bool { return s&CSTSShutdown == CSTSShutdownComplete }
