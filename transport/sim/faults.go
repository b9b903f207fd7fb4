package sim

import (
	"time"

	"rdmarw/transport"
)

// Faults is a plan of what shall go wrong: a set of hooks, each of which may be
// nil, and of chances. Hooks are called with the fabric locked, and must not call into it; QP.Num
// and Device.Caps are fine. The position k counts the requests of a queue pair
// from zero in order of posting.
//
// Death, removal and disconnection are not planned but done: see Device.Kill,
// Device.Remove and Conn.Kill.
type Faults struct {
	// Post may refuse a request at the post.
	Post func(q *QP, k uint64, wr *transport.WR) error
	// Run may fail a request when its turn comes; StatusOK lets it run.
	Run func(q *QP, k uint64, wr *transport.WR) transport.Status
	// Delay may hold back a completion, and all that follow it.
	Delay func(q *QP, k uint64, wr *transport.WR) time.Duration
	// Allocate may fail an allocation, with ErrNoMemory or ErrMemlock.
	Allocate func(d *Device, what Allocation) error
	// Connect decides about a connection request on its way.
	Connect func(from, to string) ConnectFault
	// Chances are of what goes wrong by itself.
	Chances Chances
}

// Allocation is a thing that devices run out of.
type Allocation uint8

// Allocations.
const (
	AllocPD Allocation = iota
	AllocCQ
	AllocQueue        // a queue pair or shared receive queue
	AllocRegion       // memory
	AllocRegionKey    // PD.AddRegion
	AllocRegistration // PD.NewRegistration
	AllocMap          // Registration.Map
)

// ConnectFault is what happens to a connection request.
type ConnectFault uint8

// Connection faults.
const (
	// ConnectOK: nothing.
	ConnectOK ConnectFault = iota
	// ConnectLost: it is lost, and times out.
	ConnectLost
	// ConnectRejected: the peer's CM rejects it by itself.
	ConnectRejected
)
