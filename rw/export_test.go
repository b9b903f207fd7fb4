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

// Chains is how many chains the poller's table has, used or not.
func Chains(p *Poller) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.slots.table)
}

// FillChains has a poller that is idle take no more chains, until it is restored.
func FillChains(p *Poller) (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.slots
	p.slots = slots{table: make([]*chain, 1<<slotBits)}
	copy(p.slots.table, before.table)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.slots = before
	}
}

// UpdateGolden is the flag that has golden files written anew.
var UpdateGolden = updateGolden
