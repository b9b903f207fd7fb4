package target

import "rdmarw/transport"

// Connections are those of the target's queues, for tests to cut.
func (t *Target) Connections() (all []transport.Conn) {
	for _, q := range t.queues {
		all = append(all, q.ep.Conn())
	}
	return all
}
