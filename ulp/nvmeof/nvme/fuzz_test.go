package nvme

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// structure is what every wire structure offers.
type structure interface {
	Encode([]byte)
	Decode([]byte) error
}

var structures = []struct {
	len int
	new func() structure
}{
	{CommandLen, func() structure { return new(Command) }},
	{DescriptorLen, func() structure { return new(Descriptor) }},
	{CompletionLen, func() structure { return new(Completion) }},
	{ConnectDataLen, func() structure { return new(ConnectData) }},
	{RangeLen, func() structure { return new(Range) }},
	{ConnRequestLen, func() structure { return new(ConnRequest) }},
	{ConnAcceptLen, func() structure { return new(ConnAccept) }},
	{ConnRejectLen, func() structure { return new(ConnReject) }},
	{IdentifyLen, func() structure { return new(Controller) }},
	{IdentifyLen, func() structure { return new(Namespace) }},
	{ErrorEntryLen, func() structure { return new(ErrorEntry) }},
	{HealthLen, func() structure { return new(Health) }},
	{FirmwareLen, func() structure { return new(FirmwareSlots) }},
	{EffectsLen, func() structure { return new(Effects) }},
	{DiscoveryHeaderLen, func() structure { return new(DiscoveryHeader) }},
	{DiscoveryEntryLen, func() structure { return new(DiscoveryEntry) }},
}

// FuzzDecode: whatever a peer sends is refused as too short, or read into something
// that survives being written and read again.
func FuzzDecode(f *testing.F) {
	for i, s := range structures {
		f.Add(uint8(i), make([]byte, s.len))
		f.Add(uint8(i), make([]byte, s.len-1))
		full := make([]byte, s.len)
		for j := range full {
			full[j] = byte(j*7 + 0x81)
		}
		f.Add(uint8(i), full)
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		s := structures[int(which)%len(structures)]
		v := s.new()
		err := v.Decode(data)
		if len(data) < s.len {
			require.ErrorIs(t, err, ErrShort)
			return
		}
		require.NoError(t, err)
		out := make([]byte, s.len)
		v.Encode(out)
		again := s.new()
		require.NoError(t, again.Decode(out))
		if _, text := v.(*FirmwareSlots); !text { // a slot of blanks is an empty one
			require.True(t, reflect.DeepEqual(v, again), "%+v\n%+v", v, again)
		}
	})
}

// FuzzLists: lists of a peer's are read to their end, and not beyond.
func FuzzLists(f *testing.F) {
	b := make([]byte, IdentifyLen)
	f.Add(b)
	EncodeDescriptors(b, []NamespaceDescriptor{{NGUIDKind, make([]byte, 16)}})
	f.Add(append([]byte(nil), b...))
	for i := range b {
		b[i] = 0xFF
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		ids, err := DecodeActive(data)
		if len(data) < IdentifyLen {
			require.ErrorIs(t, err, ErrShort)
		}
		require.LessOrEqual(t, len(ids), MaxActive)
		list, err := DecodeDescriptors(data)
		if err != nil {
			require.ErrorIs(t, err, ErrShort)
			return
		}
		out := make([]byte, IdentifyLen)
		EncodeDescriptors(out, list)
		again, err := DecodeDescriptors(out)
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}

// FuzzCommands: the parameters of a command are read without judging them.
func FuzzCommands(f *testing.F) {
	f.Add(make([]byte, CommandLen))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Command
		if c.Decode(data) != nil {
			return
		}
		require.LessOrEqual(t, c.Blocks(), uint32(65536))
		require.Positive(t, c.Blocks())
		var log LogRequest
		log.Parse(&c)
		require.GreaterOrEqual(t, log.Length, uint64(4))
		require.LessOrEqual(t, log.Length, uint64(1)<<34)
		var connect Connect
		connect.Parse(&c)
		var access PropertyAccess
		if err := access.Parse(&c); err != nil {
			require.ErrorIs(t, err, InvalidField)
		}
		_ = c.SGL.String()
	})
}

// TestNoAllocations: what a data path reads and writes costs none.
func TestNoAllocations(t *testing.T) {
	var c Command
	var e Completion
	b := make([]byte, CommandLen)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Encode(b)
		_ = c.Decode(b)
		e.Encode(b)
		_ = e.Decode(b)
	}))
}
