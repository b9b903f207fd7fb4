package rw

import "rdmarw/transport"

// SinkKey is the key that a READ by calls showed to the peer.
func SinkKey(c *Context) transport.LKey { return c.plan.sges[0].LKey }

// Queued reports whether contexts wait for credits.
func Queued(ep *Endpoint) bool {
	ep.poller.mu.Lock()
	defer ep.poller.mu.Unlock()
	return !ep.queue.empty()
}

// UpdateGolden is the flag that has golden files written anew.
var UpdateGolden = updateGolden
