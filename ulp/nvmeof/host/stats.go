package host

import "sync/atomic"

// Stats counts what a controller did since it was connected.
type Stats struct {
	// Commands is the number of commands that were answered, Failed how many of them
	// with a status other than success.
	Commands, Failed uint64
	// Read and Written are bytes of commands that succeeded.
	Read, Written uint64
	// InCapsule counts commands whose data was sent along; Exposed those whose memory
	// was exposed to the controller; RemoteInvalidated how many of the keys the
	// controller invalidated when asked to. The others were revoked here.
	InCapsule, Exposed, RemoteInvalidated uint64
	// KeepAlives counts those that were answered, Reconnects how often a connection that
	// was lost was made anew.
	KeepAlives, Reconnects uint64
}

// counters are Stats in the making.
type counters struct {
	commands, failed, read, written, inCapsule, exposed, invalidated, keepAlives, reconnects atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Commands: c.commands.Load(), Failed: c.failed.Load(), Read: c.read.Load(), Written: c.written.Load(),
		InCapsule: c.inCapsule.Load(), Exposed: c.exposed.Load(), RemoteInvalidated: c.invalidated.Load(),
		KeepAlives: c.keepAlives.Load(), Reconnects: c.reconnects.Load(),
	}
}
