package rw

import "fmt"

// SinkPolicy tells how the sink of a READ is protected on iWARP, where the READ
// request shows the sink's key to the peer.
//
// All but SinkStrict let a peer see a key that lives longer than the READ. They
// are safe only where every connection has a protection domain of its own
// ([rdmarw/mrpool.NewIsolated]), or all peers of the domain trust each other.
type SinkPolicy uint8

// Sink policies.
const (
	// SinkStrict registers exactly the sink of each READ for just that READ, and
	// completes when the key is dead. The default.
	SinkStrict SinkPolicy = iota
	// SinkStaging lands READs in the endpoint's Staging memory, whose key is the
	// only one that a peer sees, and copies them out. What a peer can do with the
	// key is to spoil READs that are under way. READs larger than the staging
	// memory are treated strictly. Copying beats registering by calls for small
	// READs.
	SinkStaging
	// SinkPersistent lands READs under keys that were made once for whole regions
	// (mrpool.Pool.AddSink), with the rights that the device asks for. On hardware
	// that needs remote write access for sinks a peer that has seen such a key can
	// write to the whole region for as long as the sink exists.
	SinkPersistent
	// SinkDirect uses the regions' own lkeys. It gives a peer on siw the means to
	// kill a region's registration for good by SEND_WITH_INV. Refused on devices
	// that need remote write access for a READ sink: regions never grant it.
	SinkDirect
)

// String returns the policy's name.
func (s SinkPolicy) String() string {
	switch s {
	case SinkStrict:
		return "strict"
	case SinkStaging:
		return "staging"
	case SinkPersistent:
		return "persistent"
	case SinkDirect:
		return "direct"
	}
	return fmt.Sprintf("sink policy(%d)", uint8(s))
}

// Policy is what the user may choose about plans. The zero value is safe on any
// device.
type Policy struct {
	// Sink is the protection of READ sinks on iWARP; it means nothing elsewhere.
	Sink SinkPolicy
	// RegisterAbove is the number of SGEs above which a READ is better registered
	// than scattered directly, on devices with fast registration that are free to
	// choose. Zero: the device's own hint (Caps.MaxSGLRead). Negative: never.
	RegisterAbove int
	// ForceRegistration registers the local memory of every READ and WRITE. It is
	// a knob for tests (rw.c: force_mr).
	ForceRegistration bool
	// FeedReads posts the READs of a context a READ depth at a time, each batch
	// when the one before is over, rather than all at once. What is posted beyond
	// the depth stalls the send queue and everything behind it; feeding keeps the
	// queue free for others at the price of a completion per batch, and lets
	// transfers run that take more requests than the queue holds. READs with fast
	// registrations are always posted whole.
	FeedReads bool
}
