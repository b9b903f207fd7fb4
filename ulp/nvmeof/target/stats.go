package target

import (
	"sync/atomic"

	"rdmarw/ulp/nvmeof/target/internal/core"
)

// counters count what happens to a namespace.
type counters struct {
	reads, writes, flushes, others atomic.Uint64
	bytesRead, bytesWritten        atomic.Uint64
	failures                       atomic.Uint64
}

// NamespaceStats are the counts of one namespace since the target was made.
type NamespaceStats struct {
	Subsystem string
	ID        uint32
	// Commands that succeeded: Others are Compare, Write Zeroes and Dataset Management.
	Reads, Writes, Flushes, Others uint64
	// Bytes of Reads and Writes.
	BytesRead, BytesWritten uint64
	// Failures are commands that the backend failed.
	Failures uint64
}

// Stats is what a target has done, and what it has at the moment.
type Stats struct {
	Namespaces []NamespaceStats
	// Controllers and Queues are there now: admin queues count as queues. Accepted and
	// Rejected are connections since the target was made.
	Controllers, Queues int
	Accepted, Rejected  uint64
	// Refused are commands that were answered with an error before anything was done.
	Refused uint64
	// Invalidations are responses that invalidated a key of the host's.
	Invalidations uint64
	// Waits is how often a command had to wait for memory.
	Waits uint64
}

// Stats returns the counts. It may be called at any time.
func (t *Target) Stats() Stats {
	var s Stats
	for _, sub := range t.subsystems {
		for i := range sub.counters {
			c := &sub.counters[i]
			s.Namespaces = append(s.Namespaces, NamespaceStats{
				Subsystem: sub.NQN, ID: sub.Namespaces[i].ID,
				Reads: c.reads.Load(), Writes: c.writes.Load(), Flushes: c.flushes.Load(), Others: c.others.Load(),
				BytesRead: c.bytesRead.Load(), BytesWritten: c.bytesWritten.Load(), Failures: c.failures.Load(),
			})
		}
	}
	s.Accepted, s.Rejected = t.accepted.Load(), t.rejected.Load()
	s.Refused, s.Invalidations, s.Waits = t.refused.Load(), t.invalidations.Load(), t.waits.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Controllers, s.Queues = t.directory.Controllers(), len(t.queues)
	return s
}

// usage is what the health log says of a subsystem.
func (s *subsystem) usage() (u core.Usage) {
	for i := range s.counters {
		c := &s.counters[i]
		u.Reads += c.reads.Load()
		u.Writes += c.writes.Load()
		u.BytesRead += c.bytesRead.Load()
		u.BytesWritten += c.bytesWritten.Load()
		u.MediaErrors += c.failures.Load()
	}
	return u
}
