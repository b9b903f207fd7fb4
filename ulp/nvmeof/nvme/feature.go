package nvme

// Feature is the feature of a Get or Set Features: the lowest byte of CDW10.
type Feature uint8

// Features.
const (
	FeatArbitration        Feature = 0x01
	FeatPower              Feature = 0x02
	FeatTemperature        Feature = 0x04
	FeatErrorRecovery      Feature = 0x05
	FeatVolatileWriteCache Feature = 0x06
	FeatQueues             Feature = 0x07
	FeatCoalescing         Feature = 0x08
	FeatVectors            Feature = 0x09
	FeatWriteAtomicity     Feature = 0x0A
	FeatAsyncEvents        Feature = 0x0B
	FeatKeepAlive          Feature = 0x0F
	FeatHostBehavior       Feature = 0x16
	FeatHostID             Feature = 0x81
)

// Bits of CDW10 of Get and Set Features.
const (
	// FeatSelect is the mask of SEL in a Get: 0 current, 1 default, 2 saved, 3
	// supported capabilities.
	FeatSelect = 7 << 8
	// FeatSave asks a Set to keep the value across resets.
	FeatSave = 1 << 31
)

// Queues returns the value of [FeatQueues] for n I/O queues (1 to 65,535): CDW11 of a
// Set, and the result.
func Queues(n int) uint32 { return uint32(n-1)<<16 | uint32(n-1) }

// QueueCount returns n again: the smaller of the submission and completion queues.
func QueueCount(v uint32) int { return int(min(v&0xFFFF, v>>16)) + 1 }
