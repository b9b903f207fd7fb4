package nvme

import "fmt"

// Port is the port that hosts look for NVMe over RDMA at.
const Port = 4420

// Lengths of the private data of RDMA CM messages in bytes. Receivers may see it
// padded with zeros.
const (
	ConnRequestLen = 32
	ConnAcceptLen  = 32
	ConnRejectLen  = 4
)

// ConnRequest is the private data of a host's connection request.
type ConnRequest struct {
	RecordFormat uint16
	QueueID      uint16
	// RecvQueueSize is how many receives the host posts: no more responses may be
	// under way.
	RecvQueueSize uint16
	// SendQueueSize is the size of the host's submission queue, zero-based.
	SendQueueSize uint16
	// ControllerID is that of an I/O queue's controller, in newer specifications;
	// Linux leaves it zero.
	ControllerID uint16
}

// Encode writes the request.
func (r *ConnRequest) Encode(b []byte) {
	b = b[:ConnRequestLen]
	clear(b)
	le.PutUint16(b, r.RecordFormat)
	le.PutUint16(b[2:], r.QueueID)
	le.PutUint16(b[4:], r.RecvQueueSize)
	le.PutUint16(b[6:], r.SendQueueSize)
	le.PutUint16(b[8:], r.ControllerID)
}

// Decode reads a request.
func (r *ConnRequest) Decode(b []byte) error {
	if err := short("connection request", b, ConnRequestLen); err != nil {
		return err
	}
	r.RecordFormat = le.Uint16(b)
	r.QueueID = le.Uint16(b[2:])
	r.RecvQueueSize = le.Uint16(b[4:])
	r.SendQueueSize = le.Uint16(b[6:])
	r.ControllerID = le.Uint16(b[8:])
	return nil
}

// ConnAccept is the private data of a target's acceptance, of I/O queues too.
type ConnAccept struct {
	RecordFormat uint16
	// RecvQueueSize is how many receives the target posts.
	RecvQueueSize uint16
}

// Encode writes the acceptance.
func (a *ConnAccept) Encode(b []byte) {
	b = b[:ConnAcceptLen]
	clear(b)
	le.PutUint16(b, a.RecordFormat)
	le.PutUint16(b[2:], a.RecvQueueSize)
}

// Decode reads an acceptance.
func (a *ConnAccept) Decode(b []byte) error {
	if err := short("connection acceptance", b, ConnAcceptLen); err != nil {
		return err
	}
	a.RecordFormat, a.RecvQueueSize = le.Uint16(b), le.Uint16(b[2:])
	return nil
}

// RejectReason is why a target rejects a connection.
type RejectReason uint16

// Reasons.
const (
	RejectLength        RejectReason = 1
	RejectRecordFormat  RejectReason = 2
	RejectQueueID       RejectReason = 3
	RejectSendQueueSize RejectReason = 4
	RejectRecvQueueSize RejectReason = 5
	RejectNoResources   RejectReason = 6
	RejectIRD           RejectReason = 7
	RejectORD           RejectReason = 8
)

// String says the reason.
func (r RejectReason) String() string {
	names := [...]string{"", "invalid private data length", "invalid record format", "invalid queue id", "invalid send queue size",
		"invalid receive queue size", "no resources", "invalid IRD (responder resources)", "invalid ORD (initiator depth)"}
	if r == 0 || int(r) >= len(names) {
		return fmt.Sprintf("reason %d", uint16(r))
	}
	return names[r]
}

// ConnReject is the private data of a target's rejection.
type ConnReject struct {
	RecordFormat uint16
	Reason       RejectReason
}

// Encode writes the rejection.
func (r *ConnReject) Encode(b []byte) {
	le.PutUint16(b, r.RecordFormat)
	le.PutUint16(b[2:], uint16(r.Reason))
}

// Decode reads a rejection.
func (r *ConnReject) Decode(b []byte) error {
	if err := short("connection rejection", b, ConnRejectLen); err != nil {
		return err
	}
	r.RecordFormat, r.Reason = le.Uint16(b), RejectReason(le.Uint16(b[2:]))
	return nil
}
