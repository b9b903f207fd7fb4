package transporttest

import "rdmarw/transport"

// Bed is what one row is run on: two devices that can connect to each other.
type Bed struct {
	// A connects, B listens. They may be one device, connected to itself.
	A, B transport.Device
	// Listen is what B listens on: a host and a port of 0, as for
	// transport.Device.Listen.
	Listen string
	// Nobody is an address like Listen where nobody listens, with a port that is not
	// 0.
	Nobody string
	// Misuse, if not nil, tells what was done that no correct program does. It is
	// asked when everything else is closed.
	Misuse func() error
	// Close closes both devices and all else that the factory made. Everything that
	// the row made is closed by then: a device that is still in use is a failure.
	Close func() error
}

// Factory makes a bed. It is called once for each row, so that no row need see what another
// one left, though the devices may be the same ones where opening them takes long. The devices' waits (CQ.Wait,
// Conn.Established, Listener.Next) may move a simulation, since the suite waits by no
// other means.
type Factory func() (Bed, error)
