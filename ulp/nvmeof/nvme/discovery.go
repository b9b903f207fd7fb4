package nvme

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

// Values of a [DiscoveryEntry].
const (
	TransportRDMA = 1

	FamilyIPv4 = 1
	FamilyIPv6 = 2

	EntryReferral  = 1
	EntryNVM       = 2
	EntryDiscovery = 3

	// SecureNotSpecified is a value of Requirements; NoFlowControlSupported a bit.
	SecureNotSpecified     = 0
	NoFlowControlSupported = 1 << 2

	// QueuesConnected: reliable connected queue pairs.
	QueuesConnected = 1

	ProviderNone   = 1
	ProviderIB     = 2
	ProviderRoCE   = 3
	ProviderRoCEv2 = 4
	ProviderIWARP  = 5

	// ManagementRDMACM: connections are made by RDMA CM.
	ManagementRDMACM = 1
)

// DiscoveryEntry is one entry of [LogDiscovery]: where a subsystem can be found.
type DiscoveryEntry struct {
	Transport, Family, Subsystem, Requirements uint8
	PortID                                     uint16
	// ControllerID is AnyController for the dynamic controller model.
	ControllerID uint16
	// AdminQueueSize is the largest admin queue.
	AdminQueueSize uint16
	// Service is the port number, NQN the subsystem, Address the IP address: as text.
	Service, NQN, Address string
	// QueuePair, Provider and Management are about RDMA; PartitionKey about
	// InfiniBand.
	QueuePair, Provider, Management uint8
	PartitionKey                    uint16
}

// Encode writes the entry.
func (e *DiscoveryEntry) Encode(b []byte) {
	b = b[:DiscoveryEntryLen]
	clear(b)
	b[0], b[1], b[2], b[3] = e.Transport, e.Family, e.Subsystem, e.Requirements
	le.PutUint16(b[4:], e.PortID)
	le.PutUint16(b[6:], e.ControllerID)
	le.PutUint16(b[8:], e.AdminQueueSize)
	putText(b[32:64], e.Service)
	copy(b[256:511], e.NQN)
	putText(b[512:768], e.Address)
	b[768], b[769], b[770] = e.QueuePair, e.Provider, e.Management
	le.PutUint16(b[776:], e.PartitionKey)
}

// Decode reads an entry.
func (e *DiscoveryEntry) Decode(b []byte) error {
	if err := short("discovery entry", b, DiscoveryEntryLen); err != nil {
		return err
	}
	*e = DiscoveryEntry{
		Transport: b[0], Family: b[1], Subsystem: b[2], Requirements: b[3],
		PortID: le.Uint16(b[4:]), ControllerID: le.Uint16(b[6:]), AdminQueueSize: le.Uint16(b[8:]),
		Service: text(b[32:64]), NQN: cString(b[256:512]), Address: text(b[512:768]),
		QueuePair: b[768], Provider: b[769], Management: b[770], PartitionKey: le.Uint16(b[776:]),
	}
	return nil
}
