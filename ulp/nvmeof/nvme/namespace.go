package nvme

// MaxActive is how many NSIDs one active namespace list holds.
const MaxActive = 1024

// maxFormats is how many formats a namespace may have: 16 before Base 2.0.
const maxFormats = 64

// LBAFormat is one way to format a namespace.
type LBAFormat struct {
	// Metadata is in bytes per block.
	Metadata uint16
	// Shift is the log2 of the block size: 9 or 12.
	Shift uint8
	// Performance is 0 (best) to 3.
	Performance uint8
}

// Namespace is the identify data of a namespace.
type Namespace struct {
	// Size, Capacity and Used are in blocks.
	Size, Capacity, Used uint64
	Features             uint8
	// Format is the index of the format in use.
	Format uint8
	// Shared (NMIC bit 0) tells that several controllers may attach to it.
	Shared bool
	// Deallocate is DLFEAT: what is read from deallocated blocks.
	Deallocate uint8
	// Boundary is NOIOB in blocks.
	Boundary uint16
	// AtomicWrite and AtomicPower (NAWUN, NAWUPF) are in blocks, zero-based.
	AtomicWrite, AtomicPower uint16
	// ReadOnly is bit 0 of NSATTR.
	ReadOnly bool
	NGUID    [16]byte
	EUI64    [8]byte
	// Formats has 1 to 64 entries.
	Formats []LBAFormat
}

// Bits of [Namespace.Features] and values of [Namespace.Deallocate].
const (
	// ThinProvisioned: Used may be less than Size.
	ThinProvisioned = 1 << 0
	// DeallocatedReadZero: deallocated blocks read as zeros.
	DeallocatedReadZero = 1
	// DeallocateByWriteZeroes: the Deallocate bit of Write Zeroes works.
	DeallocateByWriteZeroes = 1 << 3
)

// Encode writes the data.
func (n *Namespace) Encode(b []byte) {
	b = b[:IdentifyLen]
	clear(b)
	le.PutUint64(b[0:], n.Size)
	le.PutUint64(b[8:], n.Capacity)
	le.PutUint64(b[16:], n.Used)
	b[24] = n.Features
	b[25] = uint8(max(len(n.Formats), 1) - 1)
	b[26] = n.Format&0xF | n.Format>>4&3<<5
	if n.Shared {
		b[30] = 1
	}
	b[33] = n.Deallocate
	le.PutUint16(b[34:], n.AtomicWrite)
	le.PutUint16(b[36:], n.AtomicPower)
	le.PutUint16(b[46:], n.Boundary)
	if n.ReadOnly {
		b[99] = 1
	}
	copy(b[104:], n.NGUID[:])
	copy(b[120:], n.EUI64[:])
	for i, f := range n.Formats[:min(len(n.Formats), maxFormats)] {
		at := b[128+4*i:]
		le.PutUint16(at, f.Metadata)
		at[2] = f.Shift
		at[3] = f.Performance & 3
	}
}

// Decode reads the data.
func (n *Namespace) Decode(b []byte) error {
	if err := short("namespace data", b, IdentifyLen); err != nil {
		return err
	}
	*n = Namespace{
		Size: le.Uint64(b[0:]), Capacity: le.Uint64(b[8:]), Used: le.Uint64(b[16:]),
		Features: b[24], Format: b[26] & 0xF, Shared: b[30]&1 != 0, Deallocate: b[33],
		AtomicWrite: le.Uint16(b[34:]), AtomicPower: le.Uint16(b[36:]), Boundary: le.Uint16(b[46:]),
		ReadOnly: b[99]&1 != 0,
		NGUID:    [16]byte(b[104:120]), EUI64: [8]byte(b[120:128]),
	}
	if b[25] > 15 { // more than four bits can tell
		n.Format |= b[26] >> 5 & 3 << 4
	}
	for i := range min(int(b[25])+1, maxFormats) {
		at := b[128+4*i:]
		n.Formats = append(n.Formats, LBAFormat{Metadata: le.Uint16(at), Shift: at[2], Performance: at[3] & 3})
	}
	return nil
}

// BlockShift is the log2 of the block size of the format in use, or 0 if the data
// doesn't say.
func (n *Namespace) BlockShift() uint8 {
	if int(n.Format) >= len(n.Formats) {
		return 0
	}
	return n.Formats[n.Format].Shift
}

// EncodeActive writes an active namespace list: the ids are in ascending order, and
// those beyond MaxActive are left out.
func EncodeActive(b []byte, ids []uint32) {
	b = b[:IdentifyLen]
	clear(b)
	for i, id := range ids[:min(len(ids), MaxActive)] {
		le.PutUint32(b[4*i:], id)
	}
}

// DecodeActive reads an active namespace list, up to the first zero.
func DecodeActive(b []byte) ([]uint32, error) {
	if err := short("namespace list", b, IdentifyLen); err != nil {
		return nil, err
	}
	var ids []uint32
	for i := range MaxActive {
		id := le.Uint32(b[4*i:])
		if id == 0 {
			break
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// DescriptorKind is the kind of a namespace identifier.
type DescriptorKind uint8

// Kinds, and the lengths of their identifiers: 8, 16, 16 and 1 bytes.
const (
	EUI64Kind DescriptorKind = 1
	NGUIDKind DescriptorKind = 2
	UUIDKind  DescriptorKind = 3
	CSIKind   DescriptorKind = 4
)

// NamespaceDescriptor is one identifier of a namespace, in the list that an Identify
// with [CNSDescriptors] returns.
type NamespaceDescriptor struct {
	Kind DescriptorKind
	ID   []byte
}

// EncodeDescriptors writes a namespace identification descriptor list. Descriptors
// that don't fit are left out.
func EncodeDescriptors(b []byte, list []NamespaceDescriptor) {
	b = b[:IdentifyLen]
	clear(b)
	at := 0
	for _, d := range list {
		if len(d.ID) > 255 || at+4+len(d.ID) > len(b) {
			return
		}
		b[at], b[at+1] = byte(d.Kind), byte(len(d.ID))
		at += 4 + copy(b[at+4:], d.ID)
	}
}

// DecodeDescriptors reads such a list, up to a descriptor of length zero. The ids
// are copies.
func DecodeDescriptors(b []byte) ([]NamespaceDescriptor, error) {
	if err := short("descriptor list", b, IdentifyLen); err != nil {
		return nil, err
	}
	b = b[:IdentifyLen]
	var list []NamespaceDescriptor
	for len(b) >= 4 && b[1] != 0 {
		n := int(b[1])
		if err := short("namespace descriptor", b[4:], n); err != nil {
			return list, err
		}
		list = append(list, NamespaceDescriptor{Kind: DescriptorKind(b[0]), ID: append([]byte(nil), b[4:4+n]...)})
		b = b[4+n:]
	}
	return list, nil
}
