package nvme

// LogPage is a log page identifier: the lowest byte of a Get Log Page's CDW10.
type LogPage uint8

// Log pages.
const (
	LogError     LogPage = 0x01
	LogHealth    LogPage = 0x02
	LogFirmware  LogPage = 0x03
	LogChangedNS LogPage = 0x04
	LogEffects   LogPage = 0x05
	LogDiscovery LogPage = 0x70
)

// Lengths of log pages, or of their entries, in bytes.
const (
	ErrorEntryLen      = 64
	HealthLen          = 512
	FirmwareLen        = 512
	EffectsLen         = 4096
	DiscoveryHeaderLen = 1024
	DiscoveryEntryLen  = 1024
)

// LogRequest is a Get Log Page command.
type LogRequest struct {
	Page LogPage
	// Length is how many bytes to return: a multiple of 4, from 4 to 2^34.
	Length uint64
	// Offset is where in the page to begin, a multiple of 4.
	Offset uint64
	// RetainEvent keeps the asynchronous event that led here.
	RetainEvent bool
}

// Command returns the command, without CID and SGL. namespace is [AllNamespaces]
// for a log of the controller.
func (r *LogRequest) Command(namespace uint32) Command {
	dwords := uint32(r.Length/4 - 1)
	c := Command{
		Opcode: GetLogPage, Flags: FlagSGL, NSID: namespace,
		CDW10: uint32(r.Page) | dwords<<16, CDW11: dwords >> 16,
		CDW12: uint32(r.Offset), CDW13: uint32(r.Offset >> 32),
	}
	if r.RetainEvent {
		c.CDW10 |= 1 << 15
	}
	return c
}

// Parse reads the command. The length has 35 bits: NUMD 0xFFFFFFFF is 2^34 bytes.
func (r *LogRequest) Parse(c *Command) {
	dwords := uint64(c.CDW11&0xFFFF)<<16 | uint64(c.CDW10>>16)
	*r = LogRequest{
		Page: LogPage(c.CDW10), Length: (dwords + 1) * 4, Offset: uint64(c.CDW13)<<32 | uint64(c.CDW12),
		RetainEvent: c.CDW10&(1<<15) != 0,
	}
}

// ErrorEntry is one entry of [LogError], newest first.
type ErrorEntry struct {
	// Count is unique to the error; zero: no entry.
	Count     uint64
	SQID, CID uint16
	Status    Status
	// Location is the byte (bits 7:0) and bit (10:8) of the parameter in error.
	Location uint16
	LBA      uint64
	NSID     uint32
}

// Encode writes the entry.
func (e *ErrorEntry) Encode(b []byte) {
	b = b[:ErrorEntryLen]
	clear(b)
	le.PutUint64(b, e.Count)
	le.PutUint16(b[8:], e.SQID)
	le.PutUint16(b[10:], e.CID)
	le.PutUint16(b[12:], uint16(e.Status)<<1)
	le.PutUint16(b[14:], e.Location)
	le.PutUint64(b[16:], e.LBA)
	le.PutUint32(b[24:], e.NSID)
}

// Decode reads an entry.
func (e *ErrorEntry) Decode(b []byte) error {
	if err := short("error log entry", b, ErrorEntryLen); err != nil {
		return err
	}
	*e = ErrorEntry{
		Count: le.Uint64(b), SQID: le.Uint16(b[8:]), CID: le.Uint16(b[10:]), Status: Status(le.Uint16(b[12:]) >> 1),
		Location: le.Uint16(b[14:]), LBA: le.Uint64(b[16:]), NSID: le.Uint32(b[24:]),
	}
	return nil
}

// Health is [LogHealth], the SMART log. Counts that don't fit in 64 bits are cut.
type Health struct {
	CriticalWarning uint8
	// Temperature is in kelvins.
	Temperature uint16
	// Spare and SpareThreshold are percentages of what is left, Used of what is gone.
	Spare, SpareThreshold, Used uint8
	// UnitsRead and UnitsWritten are in 1000 blocks of 512 bytes, rounded up.
	UnitsRead, UnitsWritten uint64
	// Reads and Writes are commands.
	Reads, Writes uint64
	// Busy is in minutes.
	Busy                      uint64
	PowerCycles, PowerOnHours uint64
	UnsafeShutdowns           uint64
	MediaErrors, ErrorEntries uint64
}

// Encode writes the page.
func (h *Health) Encode(b []byte) {
	b = b[:HealthLen]
	clear(b)
	b[0] = h.CriticalWarning
	le.PutUint16(b[1:], h.Temperature)
	b[3], b[4], b[5] = h.Spare, h.SpareThreshold, h.Used
	for i, v := range h.counts() {
		putUint128(b[32+16*i:], *v)
	}
}

// Decode reads the page.
func (h *Health) Decode(b []byte) error {
	if err := short("health log", b, HealthLen); err != nil {
		return err
	}
	h.CriticalWarning, h.Temperature = b[0], le.Uint16(b[1:])
	h.Spare, h.SpareThreshold, h.Used = b[3], b[4], b[5]
	for i, v := range h.counts() {
		*v = uint128(b[32+16*i:])
	}
	return nil
}

// counts are the counts of 16 bytes, in the order in which they begin at byte 32.
func (h *Health) counts() [10]*uint64 {
	return [...]*uint64{&h.UnitsRead, &h.UnitsWritten, &h.Reads, &h.Writes, &h.Busy, &h.PowerCycles, &h.PowerOnHours,
		&h.UnsafeShutdowns, &h.MediaErrors, &h.ErrorEntries}
}

// FirmwareSlots is [LogFirmware].
type FirmwareSlots struct {
	// Active is the slot that is running (bits 2:0) and the next one (6:4).
	Active    uint8
	Revisions [7]string
}

// Encode writes the page.
func (f *FirmwareSlots) Encode(b []byte) {
	b = b[:FirmwareLen]
	clear(b)
	b[0] = f.Active
	for i, r := range f.Revisions {
		if r != "" {
			putText(b[8+8*i:16+8*i], r)
		}
	}
}

// Decode reads the page.
func (f *FirmwareSlots) Decode(b []byte) error {
	if err := short("firmware log", b, FirmwareLen); err != nil {
		return err
	}
	f.Active = b[0]
	for i := range f.Revisions {
		f.Revisions[i] = text(b[8+8*i : 16+8*i])
	}
	return nil
}

// EffectSupported is the bit of a command's entry in [LogEffects] that says that
// there is such a command.
const EffectSupported = 1 << 0

// EffectLBChange is the bit that says that the command may change data.
const EffectLBChange = 1 << 1

// Effects is [LogEffects]: one word for each opcode.
type Effects struct {
	Admin, IO [256]uint32
}

// Encode writes the page.
func (e *Effects) Encode(b []byte) {
	b = b[:EffectsLen]
	clear(b)
	for i := range 256 {
		le.PutUint32(b[4*i:], e.Admin[i])
		le.PutUint32(b[1024+4*i:], e.IO[i])
	}
}

// Decode reads the page.
func (e *Effects) Decode(b []byte) error {
	if err := short("effects log", b, EffectsLen); err != nil {
		return err
	}
	for i := range 256 {
		e.Admin[i] = le.Uint32(b[4*i:])
		e.IO[i] = le.Uint32(b[1024+4*i:])
	}
	return nil
}
