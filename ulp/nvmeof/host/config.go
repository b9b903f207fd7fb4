package host

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// Config configures a connection to a controller. Only Device is needed.
type Config struct {
	// Device is the device to connect from. It stays the caller's.
	Device transport.Device
	// HostID and HostNQN are this host's names. All controllers that a host connects
	// to should be told the same. Zero: a random one; the NQN made of HostID.
	HostID  [16]byte
	HostNQN string
	// Queues is the number of I/O queues, cut to what the controller grants. Zero: 1.
	Queues int
	// Depth is how many commands may be under way on each I/O queue, 1 to 1024; cut to
	// what controller and device have. Zero: 32.
	Depth int
	// MaxTransfer is the most bytes that one command moves, cut to what the controller
	// (MDTS) and the device can do. Zero: 1 MiB.
	MaxTransfer int
	// CopyBuffers is how many calls of ReadAt and WriteAt can be under way at a time:
	// each has a buffer of MaxTransfer bytes. Zero: 4. They are made at the first use.
	CopyBuffers int
	// KeepAlive is the keep alive timeout that the controller is told, rounded up to
	// milliseconds: it drops a host that is silent for so long. A Keep Alive is sent
	// every half of it, and if that isn't answered within it the connection counts as
	// lost. Zero: 5 s. Negative: none.
	KeepAlive time.Duration
	// CommandTimeout is how long a command may take, after which the connection counts
	// as lost. Zero: 30 s.
	CommandTimeout time.Duration
	// ConnectTimeout is how long making the connection, or making it anew, may take
	// each time. Zero: 10 s.
	ConnectTimeout time.Duration
	// ReconnectDelay is how long to wait between attempts to connect anew, LossTimeout
	// how long to go on trying before the controller is given up, which cuts the last
	// attempt short; and how long a call goes on that loses one connection after the
	// other. Zero: 1 s, 60 s. A negative LossTimeout: a connection that is lost stays lost.
	ReconnectDelay, LossTimeout time.Duration
	// CancelGrace is how long a call whose ctx has ended waits for the answer to its
	// command before it ends the connection to get its memory back. Zero: 1 s.
	CancelGrace time.Duration
	// NoWindows exposes memory by registrations of exactly its range even where the device
	// has windows. It costs remote invalidation; keys answer to all queues of the
	// controller. On rxe (Linux 6.12) a process that is killed while windows are bound
	// takes about 50 s to die for each queue: this avoids it.
	NoWindows bool
	// Log gets connections made and lost. Nil: nothing is logged.
	Log *slog.Logger

	// Step, if not nil, makes calls that wait call it instead of waiting, again and
	// again: it is to move everything else on, such as a stepped simulation and the
	// target in it. Its error ends the wait. Nothing runs in the background then, and
	// the controller is for one goroutine: keep alives go out, timeouts are noticed and
	// lost connections are made anew within calls that wait, and in [Controller.Poll].
	Step func() error
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

const (
	maxDepth = 1024
	// adminDepth is the number of commands under way on the admin queue. With the entry
	// that a ring keeps empty they make 32, the size that the specification gives it
	// over fabrics (NVMe-oF 1.1, 5.1).
	adminDepth = 31
)

// complete checks the configuration and fills in what it leaves out.
func (c Config) complete() (Config, error) {
	if c.Device == nil {
		return c, fmt.Errorf("no device: %w", transport.ErrInvalid)
	}
	if c.HostID == [16]byte{} {
		rand.Read(c.HostID[:])
		c.HostID[6] = c.HostID[6]&0x0F | 0x40 // RFC 4122: a random UUID
		c.HostID[8] = c.HostID[8]&0x3F | 0x80
	}
	if c.HostNQN == "" {
		id := c.HostID
		c.HostNQN = fmt.Sprintf("nqn.2014-08.org.nvmexpress:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	if err := nvme.CheckNQN(c.HostNQN); err != nil {
		return c, fmt.Errorf("host: %w: %w", err, transport.ErrInvalid)
	}
	for _, n := range []struct {
		name             string
		value            *int
		def, least, most int
	}{
		{"Queues", &c.Queues, 1, 1, 1024},
		{"Depth", &c.Depth, 32, 1, maxDepth},
		{"MaxTransfer", &c.MaxTransfer, 1 << 20, 4096, nvme.MaxKeyedLen &^ 4095},
		{"CopyBuffers", &c.CopyBuffers, 4, 1, 1024},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < n.least || *n.value > n.most {
			return c, fmt.Errorf("%s is %d, may be %d to %d: %w", n.name, *n.value, n.least, n.most, transport.ErrInvalid)
		}
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		def      time.Duration
		negative bool // means something
	}{
		{"KeepAlive", &c.KeepAlive, 5 * time.Second, true}, {"CommandTimeout", &c.CommandTimeout, 30 * time.Second, false},
		{"ConnectTimeout", &c.ConnectTimeout, 10 * time.Second, false}, {"ReconnectDelay", &c.ReconnectDelay, time.Second, false},
		{"LossTimeout", &c.LossTimeout, time.Minute, true}, {"CancelGrace", &c.CancelGrace, time.Second, false},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < 0 && !d.negative {
			return c, fmt.Errorf("%s is %v, can't be negative: %w", d.name, *d.value, transport.ErrInvalid)
		}
	}
	if c.KeepAlive > math.MaxUint32*time.Millisecond {
		return c, fmt.Errorf("KeepAlive is %v, may be %v: %w", c.KeepAlive, math.MaxUint32*time.Millisecond, transport.ErrInvalid)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

// keepAliveMillis is KATO as the Connect command tells it.
func (c *Config) keepAliveMillis() uint32 {
	if c.KeepAlive < 0 {
		return 0
	}
	return uint32((c.KeepAlive + time.Millisecond - 1) / time.Millisecond)
}
