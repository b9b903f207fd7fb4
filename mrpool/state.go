package mrpool

// state is what is known of a registration.
type state uint8

const (
	// free: its key is dead, or (MR.stale) valid with local rights for nobody's
	// use, to be invalidated at the head of the next.
	free state = iota
	// mapped: a list was mapped, nothing was posted.
	mapped
	// valid: the requests that make it valid were accepted by the device.
	valid
	// invalidating: so were the ones that make it invalid.
	invalidating
	// lost: the hardware's state is unknown.
	lost
)

func (s state) String() string {
	return [...]string{"free", "mapped", "valid", "invalidating", "lost"}[s]
}

// event is something that happens to a registration.
type event uint8

const (
	evMap event = iota
	evPosted
	evInvalidatePosted
	evInvalidated
	evLost
	evRevoked
	numEvents
)

func (e event) String() string {
	return [...]string{"map", "posted", "invalidation posted", "invalidated", "lost", "revoked"}[e]
}

// illegal marks a transition that must not be made.
const illegal = state(0xff)

// transitions is the whole life of a registration. An invalidation is confirmed
// from valid, too: by a peer's invalidation or a READ_WITH_INV, for which nothing
// is posted here.
var transitions = [...][numEvents]state{
	free:         {evMap: mapped, evPosted: illegal, evInvalidatePosted: illegal, evInvalidated: illegal, evLost: lost, evRevoked: free},
	mapped:       {evMap: mapped, evPosted: valid, evInvalidatePosted: illegal, evInvalidated: illegal, evLost: lost, evRevoked: free},
	valid:        {evMap: illegal, evPosted: illegal, evInvalidatePosted: invalidating, evInvalidated: free, evLost: lost, evRevoked: free},
	invalidating: {evMap: illegal, evPosted: illegal, evInvalidatePosted: illegal, evInvalidated: free, evLost: lost, evRevoked: free},
	lost:         {evMap: illegal, evPosted: illegal, evInvalidatePosted: illegal, evInvalidated: illegal, evLost: lost, evRevoked: free},
}
