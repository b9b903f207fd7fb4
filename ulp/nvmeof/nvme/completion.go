package nvme

// CompletionLen is the length of a completion (a completion queue entry) in bytes.
// A response capsule is a SEND of it.
const CompletionLen = 16

// Completion is a completion queue entry.
type Completion struct {
	// Result is what the command returns besides data.
	Result uint64
	// SQHead is how far the target has got in the submission queue; 0xFFFF if flow
	// control of it is disabled.
	SQHead uint16
	// SQID is the queue, CID the command.
	SQID, CID uint16
	Status    Status
}

// Encode writes the completion.
func (c *Completion) Encode(b []byte) {
	b = b[:CompletionLen]
	le.PutUint64(b, c.Result)
	le.PutUint16(b[8:], c.SQHead)
	le.PutUint16(b[10:], c.SQID)
	le.PutUint16(b[12:], c.CID)
	le.PutUint16(b[14:], uint16(c.Status)<<1)
}

// Decode reads a completion. The phase bit means nothing over fabrics and is dropped.
func (c *Completion) Decode(b []byte) error {
	if err := short("completion", b, CompletionLen); err != nil {
		return err
	}
	c.Result = le.Uint64(b)
	c.SQHead = le.Uint16(b[8:])
	c.SQID = le.Uint16(b[10:])
	c.CID = le.Uint16(b[12:])
	c.Status = Status(le.Uint16(b[14:]) >> 1)
	return nil
}
