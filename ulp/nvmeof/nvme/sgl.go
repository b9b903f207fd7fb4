package nvme

import "fmt"

// DescriptorLen is the length of an SGL descriptor in bytes.
const DescriptorLen = 16

// Descriptor types: the descriptor's last byte, type and subtype together.
const (
	// SGLKeyed: Len bytes at Addr of the host's memory, under Key. Commands without
	// data carry one of length zero.
	SGLKeyed = 0x40
	// SGLKeyedInvalidate is SGLKeyed, and asks the target to invalidate Key with its
	// response (SEND_WITH_INV).
	SGLKeyedInvalidate = 0x4F
	// SGLOffset: Len bytes of in-capsule data, Addr bytes behind the command (and
	// ICDOFF).
	SGLOffset = 0x01
	// SGLLastSegmentOffset: descriptors in the capsule, Len bytes of them, Addr bytes
	// behind the command. Only where MSDBD announces more than one descriptor.
	SGLLastSegmentOffset = 0x31
)

// MaxKeyedLen is the most that one keyed descriptor describes: its length has 24 bits.
const MaxKeyedLen = 1<<24 - 1

// Descriptor is an SGL descriptor of a kind that NVMe over RDMA uses.
type Descriptor struct {
	// Addr is an address, or an offset into the capsule.
	Addr uint64
	// Len is in bytes. Keyed descriptors cut it to 24 bits.
	Len uint32
	// Key is the host's rkey. Keyed descriptors only.
	Key uint32
	// Type is type and subtype: one of SGLKeyed, SGLOffset, ..., or anything else if
	// it came from a peer.
	Type uint8
}

// Keyed tells that the descriptor has a key, whatever its subtype.
func (d *Descriptor) Keyed() bool { return d.Type>>4 == SGLKeyed>>4 }

// Encode writes the descriptor.
func (d *Descriptor) Encode(b []byte) {
	b = b[:DescriptorLen]
	le.PutUint64(b, d.Addr)
	if d.Keyed() {
		b[8], b[9], b[10] = byte(d.Len), byte(d.Len>>8), byte(d.Len>>16)
		le.PutUint32(b[11:], d.Key)
	} else {
		le.PutUint32(b[8:], d.Len)
		b[12], b[13], b[14] = 0, 0, 0
	}
	b[15] = d.Type
}

// Decode reads a descriptor.
func (d *Descriptor) Decode(b []byte) error {
	if err := short("SGL descriptor", b, DescriptorLen); err != nil {
		return err
	}
	d.decode(b)
	return nil
}

func (d *Descriptor) decode(b []byte) {
	b = b[:DescriptorLen]
	d.Addr = le.Uint64(b)
	d.Type = b[15]
	if d.Keyed() {
		d.Len = uint32(b[8]) | uint32(b[9])<<8 | uint32(b[10])<<16
		d.Key = le.Uint32(b[11:])
	} else {
		d.Len, d.Key = le.Uint32(b[8:]), 0
	}
}

// String formats the descriptor.
func (d Descriptor) String() string {
	if d.Keyed() {
		return fmt.Sprintf("SGL %#02x [%#x,+%d) key %#x", d.Type, d.Addr, d.Len, d.Key)
	}
	return fmt.Sprintf("SGL %#02x [%d,+%d)", d.Type, d.Addr, d.Len)
}
