package transport

import "strings"

// Access is the set of rights of a registration: of a [Region], of a
// [Registration], or of a window. Local read is always granted. The zero value
// lets the local device read and nobody else do anything.
type Access uint8

// Rights. RemoteWrite and RemoteAtomic require LocalWrite (InfiniBand
// Architecture 10.6.3.2, and ib_check_mr_access in the kernel).
const (
	// LocalWrite lets the local device write: receive buffers and the sinks of
	// READs need it.
	LocalWrite Access = 1 << iota
	// RemoteRead lets the peer READ.
	RemoteRead
	// RemoteWrite lets the peer WRITE. On iWARP hardware the sink of one's own
	// READ needs it as well: the READ response is a tagged write.
	RemoteWrite
	// RemoteAtomic lets the peer do atomic operations.
	RemoteAtomic
	// BindWindow lets windows be bound over the memory. It makes nothing
	// remotely reachable by itself.
	BindWindow

	// RemoteAny is every right that a peer can use.
	RemoteAny = RemoteRead | RemoteWrite | RemoteAtomic
)

// Has reports whether a contains all the rights in want.
func (a Access) Has(want Access) bool { return a&want == want }

// Valid reports whether the set can be registered at all: rights for a peer to
// change memory need the right for the local device to do so.
func (a Access) Valid() bool {
	return a&(RemoteWrite|RemoteAtomic) == 0 || a.Has(LocalWrite)
}

// String lists the rights, separated by "+"; "local-read" for the zero value.
func (a Access) String() string {
	names := [...]string{"local-write", "remote-read", "remote-write", "remote-atomic", "bind-window"}
	var set []string
	for i, name := range names {
		if a&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	if set == nil {
		return "local-read"
	}
	return strings.Join(set, "+")
}
