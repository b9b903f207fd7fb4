package transport

// RegistrationKind tells how a registration is made valid and invalid.
type RegistrationKind uint8

// Registration kinds.
const (
	// SyncMR is registered by Map and deregistered by Unmap: both are calls that
	// may take hundreds of microseconds, and no work requests are needed. It
	// covers one contiguous range of one region, and has an lkey and an rkey.
	SyncMR RegistrationKind = iota
	// FastMR is made valid by OpFastReg and invalid by OpLocalInv (FRWR). It
	// covers a list, and has an lkey and an rkey.
	FastMR
	// Window is a type-2 memory window: made valid by OpBindWindow, on one queue
	// pair; invalid by OpLocalInv, the peer's SEND_WITH_INV, or Close. It covers
	// one contiguous range of one region and has an rkey only.
	Window
	// NumRegistrationKinds is the number of kinds.
	NumRegistrationKinds
)

// String returns the field's name for the kind.
func (k RegistrationKind) String() string {
	switch k {
	case SyncMR:
		return "MR"
	case FastMR:
		return "FRWR"
	case Window:
		return "MW"
	}
	return "unknown registration"
}

// RegistrationID names a registration of one protection domain in a [WR]. Zero
// is never valid.
type RegistrationID uint32

// Mapping says what a registration shall cover.
type Mapping struct {
	// List holds the local pieces, From is where in it to start and Len how many
	// bytes to cover from there; zero: to the end of the list.
	List []Piece
	From Cursor
	Len  uint64
	// Access are the rights of the registration.
	Access Access
	// PageShift is the page size of a FastMR as a power of two; zero: the
	// smallest that the device offers. Other kinds ignore it.
	PageShift uint8
}

// Registration is one recyclable registration of a protection domain, used in
// two phases: Map says what it shall cover, and work requests make it valid and
// invalid. Nothing is posted here, and no state of validity is kept here: that
// is the business of package mrpool, which knows which chains were accepted.
//
// A Registration is used by one goroutine at a time. WRs that name it must have
// completed before it is mapped again or closed (but see [Registration.Close]
// on windows).
type Registration interface {
	// ID names the registration in WRs.
	ID() RegistrationID
	// Kind tells how it works.
	Kind() RegistrationKind

	// Map takes in what the registration shall cover, replacing what was mapped
	// before, and returns how much it can cover: the list is cut at what one
	// registration can hold, and Extent.Next tells where to go on. Covering less
	// than asked is not an error; covering nothing is.
	//
	// For a SyncMR this registers the memory; for a Window too where
	// Caps.MapBlocks says so. Then it may block and must not be called from a
	// poller. Otherwise it is plain computation.
	//
	// Errors match ErrRegion, ErrRange or ErrAccess for a bad list, ErrNoMemory,
	// ErrMemlock or ErrUnsupported.
	Map(m Mapping) (Extent, error)

	// Unmap deregisters a SyncMR; the keys are dead when it returns. It may
	// block. Other kinds forget the mapping: the key must be dead already. It does
	// nothing when nothing is mapped.
	Unmap() error

	// KeyByte is the key byte that the registration was created with. The first
	// use must have another one. Meaningless for a SyncMR.
	KeyByte() uint8
	// LKey and RKey return the keys that go with a key byte. A SyncMR has keys
	// while it is mapped, and ignores the byte. A Window has no lkey, and
	// returns zero.
	LKey(keyByte uint8) LKey
	RKey(keyByte uint8) RKey

	// AppendValid appends the WRs that make the mapping valid under the given
	// key byte; none for a SyncMR. They are unsignaled and have no cookie.
	// Building them changes nothing.
	AppendValid(wrs []WR, keyByte uint8) []WR
	// AppendInvalid appends the WRs that make it invalid; none for a SyncMR.
	AppendInvalid(wrs []WR, keyByte uint8) []WR

	// Close gives the registration back to the device, valid or not: its keys
	// are dead when it returns. A window may be closed while it is bound, and
	// must be closed before the queue pair that it is bound on (rxe blocks for a
	// minute otherwise). It may block. Closing twice is harmless.
	Close() error
}
