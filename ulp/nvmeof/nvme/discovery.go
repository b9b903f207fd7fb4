package nvme

import (
	"fmt"
	"net"
	"strconv"
)

// DiscoveryHeader is the start of [LogDiscovery].
type DiscoveryHeader struct {
	// Generation changes whenever the entries do.
	Generation uint64
	// Records is how many entries follow.
	Records      uint64
	RecordFormat uint16
}

// Encode writes the header.
func (h *DiscoveryHeader) Encode(b []byte) {
	b = b[:DiscoveryHeaderLen]
	clear(b)
	le.PutUint64(b, h.Generation)
	le.PutUint64(b[8:], h.Records)
	le.PutUint16(b[16:], h.RecordFormat)
}

// Decode reads the header.
func (h *DiscoveryHeader) Decode(b []byte) error {
	if err := short("discovery log", b, DiscoveryHeaderLen); err != nil {
		return err
	}
	h.Generation, h.Records, h.RecordFormat = le.Uint64(b), le.Uint64(b[8:]), le.Uint16(b[16:])
	return nil
}

// TransportType is what a subsystem is reached over.
type TransportType uint8

// Transports.
const (
	TransportRDMA TransportType = 1
	TransportFC   TransportType = 2
	TransportTCP  TransportType = 3
	TransportLoop TransportType = 254
)

// String returns the transport's name, as nvme-cli spells it.
func (t TransportType) String() string {
	return name(t, map[TransportType]string{TransportRDMA: "rdma", TransportFC: "fc", TransportTCP: "tcp", TransportLoop: "loop"})
}

// AddressFamily is what an address of a [DiscoveryEntry] is.
type AddressFamily uint8

// Address families.
const (
	FamilyIPv4 AddressFamily = 1
	FamilyIPv6 AddressFamily = 2
)

// String returns the family's name.
func (f AddressFamily) String() string {
	return name(f, map[AddressFamily]string{FamilyIPv4: "ipv4", FamilyIPv6: "ipv6"})
}

// EntryType is what a [DiscoveryEntry] tells of.
type EntryType uint8

// Types of entries.
const (
	// EntryReferral is another discovery controller.
	EntryReferral EntryType = 1
	// EntryNVM is a subsystem with namespaces.
	EntryNVM EntryType = 2
	// EntryDiscovery is the discovery controller that was asked.
	EntryDiscovery EntryType = 3
)

// String returns the type's name.
func (t EntryType) String() string {
	return name(t, map[EntryType]string{EntryReferral: "referral", EntryNVM: "nvm", EntryDiscovery: "discovery"})
}

// QueuePairType is the RDMA service that queues are connected by.
type QueuePairType uint8

// QueuesConnected: reliable connected queue pairs.
const QueuesConnected QueuePairType = 1

// String returns the service's name.
func (t QueuePairType) String() string {
	return name(t, map[QueuePairType]string{QueuesConnected: "connected"})
}

// Provider is the RDMA protocol of a port.
type Provider uint8

// Providers.
const (
	ProviderNone   Provider = 1
	ProviderIB     Provider = 2
	ProviderRoCE   Provider = 3
	ProviderRoCEv2 Provider = 4
	ProviderIWARP  Provider = 5
)

// String returns the protocol's name.
func (p Provider) String() string {
	return name(p, map[Provider]string{
		ProviderNone: "not specified", ProviderIB: "InfiniBand", ProviderRoCE: "RoCE", ProviderRoCEv2: "RoCE v2", ProviderIWARP: "iWARP",
	})
}

// Management is what makes RDMA connections.
type Management uint8

// ManagementRDMACM: connections are made by RDMA CM.
const ManagementRDMACM Management = 1

// String returns its name.
func (m Management) String() string {
	return name(m, map[Management]string{ManagementRDMACM: "rdma-cm"})
}

// name is what a value is called, or its number.
func name[T ~uint8](v T, names map[T]string) string {
	if s := names[v]; s != "" {
		return s
	}
	return strconv.Itoa(int(v))
}

// Values of Requirements in a [DiscoveryEntry].
const (
	// SecureNotSpecified is a value, NoFlowControlSupported a bit.
	SecureNotSpecified     = 0
	NoFlowControlSupported = 1 << 2
)

// DiscoveryEntry is one entry of [LogDiscovery]: where a subsystem can be found.
type DiscoveryEntry struct {
	Transport    TransportType
	Family       AddressFamily
	Subsystem    EntryType
	Requirements uint8
	PortID       uint16
	// ControllerID is AnyController for the dynamic controller model.
	ControllerID uint16
	// AdminQueueSize is the largest admin queue.
	AdminQueueSize uint16
	// Service is the port number, NQN the subsystem, Address the IP address: as text.
	Service, NQN, Address string
	// QueuePair, Provider and Management are about RDMA; PartitionKey about
	// InfiniBand.
	QueuePair    QueuePairType
	Provider     Provider
	Management   Management
	PartitionKey uint16
}

// String says what can be found where, in a line. Texts are those of the target, which may
// be anything: they are quoted where they aren't plain.
func (e DiscoveryEntry) String() string {
	s := fmt.Sprintf("%v %s at %v %s", e.Subsystem, plain(e.NQN), e.Transport, plain(net.JoinHostPort(e.Address, e.Service)))
	if e.Transport == TransportRDMA {
		s += fmt.Sprintf(" (%v)", e.Provider)
	}
	return s
}

// plain quotes what isn't plain text.
func plain(s string) string {
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// Encode writes the entry.
func (e *DiscoveryEntry) Encode(b []byte) {
	b = b[:DiscoveryEntryLen]
	clear(b)
	b[0], b[1], b[2], b[3] = byte(e.Transport), byte(e.Family), byte(e.Subsystem), e.Requirements
	le.PutUint16(b[4:], e.PortID)
	le.PutUint16(b[6:], e.ControllerID)
	le.PutUint16(b[8:], e.AdminQueueSize)
	putText(b[32:64], e.Service)
	copy(b[256:511], e.NQN)
	putText(b[512:768], e.Address)
	b[768], b[769], b[770] = byte(e.QueuePair), byte(e.Provider), byte(e.Management)
	le.PutUint16(b[776:], e.PartitionKey)
}

// Decode reads an entry.
func (e *DiscoveryEntry) Decode(b []byte) error {
	if err := short("discovery entry", b, DiscoveryEntryLen); err != nil {
		return err
	}
	*e = DiscoveryEntry{
		Transport: TransportType(b[0]), Family: AddressFamily(b[1]), Subsystem: EntryType(b[2]), Requirements: b[3],
		PortID: le.Uint16(b[4:]), ControllerID: le.Uint16(b[6:]), AdminQueueSize: le.Uint16(b[8:]),
		Service: text(b[32:64]), NQN: cString(b[256:512]), Address: text(b[512:768]),
		QueuePair: QueuePairType(b[768]), Provider: Provider(b[769]), Management: Management(b[770]),
		PartitionKey: le.Uint16(b[776:]),
	}
	return nil
}
