package target

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"time"

	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target/internal/core"
)

// Config says what a target serves. Only Subsystems must be given, at least one. It is
// not to be changed while the target lives.
type Config struct {
	Subsystems []Subsystem
	// QueueDepth is the largest number of entries of a queue, 2 to 4096. Zero: 128. A
	// device with smaller queues has its own limit.
	QueueDepth int
	// IOQueues is how many I/O queues a controller may have. Zero: 16.
	IOQueues int
	// Controllers is how many controllers there may be, of all subsystems together. Zero:
	// 128.
	Controllers int
	// Connections is how many queues there may be at a time, of all hosts together, those
	// that aren't connected yet among them: each has memory of its own. Zero: 512.
	Connections int
	// InCapsule is how many bytes of data may come along with a command, so that small
	// writes need no READ: rounded up to 4 KiB. Zero: 4096; negative: none.
	InCapsule int
	// MaxTransfer is the most that a command may transfer in bytes: a power of two from
	// 8 KiB, the least that hosts can be told (MDTS), to 8 MiB. Zero: 1 MiB.
	MaxTransfer int
	// QueueMemory is how many bytes of memory an I/O queue has for data under way:
	// rounded up to a power of two, and to twice MaxTransfer, which a Compare takes. It is
	// registered while the host connects, which takes time by its size; commands wait when
	// it is used up. Zero: 64 KiB for each of the queue's entries.
	QueueMemory int
	// Pollers is how many goroutines poll, for each port. Zero: one for each CPU, up to 4.
	Pollers int
	// Spin is for how long a poller polls on before it sleeps, while commands keep coming
	// within that time: what sleeping and waking cost in latency, a CPU pays for. Zero: what
	// package rw takes for right; negative: it sleeps at once. See rw.PollerConfig.
	Spin time.Duration
	// HandshakeTimeout is how long a host has from its connection request to its Connect
	// command. Zero: 10 s.
	HandshakeTimeout time.Duration
	// Log gets hosts that come and go at level Info, what they do wrong at level Warn or
	// Debug. Nil: nothing is logged.
	Log *slog.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
	// Step, if not nil, has nothing of the target run by itself: it is for one goroutine,
	// which calls [Target.Poll] again and again, and [Target.Attach] takes the place of
	// Serve. Shutdown calls Step instead of waiting: it is to move everything on, Poll and
	// a stepped simulation. With backends that do what they do at once, such as
	// backend.Memory, every run of a seed is the same then.
	Step func() error
}

// Subsystem is what a host connects to.
type Subsystem struct {
	// NQN is its name.
	NQN string
	// Serial has at most 20 characters. Empty: made from the NQN. Model has at most 40.
	// Empty: "rdmarw".
	Serial, Model string
	Namespaces    []Namespace
	// Hosts are the NQNs of the hosts that may connect, and may know of the subsystem.
	// Nil: any host. Names are what a host says they are: this is no authentication.
	Hosts []string
}

// Namespace is one disk of a subsystem.
type Namespace struct {
	// ID is 1 or more, unique in the subsystem.
	ID uint32
	// Backend keeps the blocks. It stays the caller's, who closes it after the target.
	Backend backend.Backend
	// UUID identifies the namespace wherever it is served. Zero: made from the
	// subsystem's NQN and ID.
	UUID [16]byte
}

const (
	page = 4096
	// memoryPerEntry is for data of I/O commands: few are larger, and few queues full.
	memoryPerEntry = 64 << 10
	// adminMemory is for data of admin commands, and the most that one may transfer.
	adminMemory = 128 << 10
	// adminDepth is the largest admin queue, whatever Config.QueueDepth says: Linux's have
	// 32 entries.
	adminDepth = 128
)

func (c *Config) setDefaults() error {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	set(&c.QueueDepth, 128)
	set(&c.IOQueues, 16)
	set(&c.Controllers, 128)
	set(&c.Connections, 512)
	set(&c.InCapsule, page)
	set(&c.MaxTransfer, 1<<20)
	set(&c.Pollers, min(4, numCPU))
	c.InCapsule = (max(c.InCapsule, 0) + page - 1) &^ (page - 1)
	if c.HandshakeTimeout == 0 {
		c.HandshakeTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.QueueDepth < 2 || c.QueueDepth > 4096:
		return fmt.Errorf("queue depth %d: 2 to 4096 are possible", c.QueueDepth)
	case c.IOQueues < 1 || c.IOQueues > 1024:
		return fmt.Errorf("%d I/O queues: 1 to 1024 are possible", c.IOQueues)
	case c.Controllers < 1 || c.Controllers > 0xFF00:
		return fmt.Errorf("%d controllers: 1 to 65,280 are possible", c.Controllers)
	case c.Connections < 2:
		return fmt.Errorf("%d connections: an admin queue and an I/O queue take two", c.Connections)
	case c.InCapsule > 1<<20:
		return fmt.Errorf("%d bytes in the capsule: at most 1 MiB is possible", c.InCapsule)
	case bits.OnesCount(uint(c.MaxTransfer)) != 1 || c.MaxTransfer < 2*page || c.MaxTransfer > 8<<20:
		return fmt.Errorf("transfers of %d bytes: a power of two from 8 KiB to 8 MiB is possible", c.MaxTransfer)
	case c.QueueMemory < 0 || c.QueueMemory > 1<<30:
		return fmt.Errorf("queue memory of %d bytes: up to 1 GiB is possible", c.QueueMemory)
	case c.Pollers < 1:
		return fmt.Errorf("%d pollers", c.Pollers)
	case c.HandshakeTimeout < 0:
		return fmt.Errorf("handshake timeout of %v", c.HandshakeTimeout)
	case len(c.Subsystems) == 0:
		return errors.New("no subsystems")
	}
	return nil
}

// queueMemory is that of an I/O queue with so many entries.
func (c *Config) queueMemory(entries int) int {
	n := c.QueueMemory
	if n == 0 {
		n = entries * memoryPerEntry
	}
	return 1 << bits.Len(uint(max(n, 2*c.MaxTransfer)-1))
}

func (c *Config) limits() core.Limits {
	return core.Limits{
		IOQueues: c.IOQueues, Controllers: c.Controllers, QueueDepth: c.QueueDepth, InCapsule: c.InCapsule,
		MaxTransfer: c.MaxTransfer, MaxAdmin: adminMemory,
	}
}

// subsystem is what the data path needs of one.
type subsystem struct {
	*core.Subsystem
	backends []backend.Backend // as core.Subsystem.Namespaces
	counters []counters
}

func newSubsystem(s *Subsystem) (*subsystem, error) {
	if err := nvme.CheckNQN(s.NQN); err != nil {
		return nil, fmt.Errorf("subsystem: %w", err)
	}
	if s.NQN == nvme.DiscoveryNQN {
		return nil, errors.New("subsystem: this is the name of the discovery subsystem, which every target has")
	}
	if len(s.Serial) > 20 || len(s.Model) > 40 {
		return nil, fmt.Errorf("subsystem %s: serial number of %d characters, model of %d; 20 and 40 are possible", s.NQN, len(s.Serial), len(s.Model))
	}
	for _, h := range s.Hosts {
		if err := nvme.CheckNQN(h); err != nil {
			return nil, fmt.Errorf("subsystem %s: host: %w", s.NQN, err)
		}
	}
	sub := &subsystem{Subsystem: &core.Subsystem{NQN: s.NQN, Serial: s.Serial, Model: s.Model, Firmware: core.Firmware, Hosts: s.Hosts}}
	if sub.Serial == "" {
		sum := sha1.Sum([]byte(s.NQN))
		sub.Serial = hex.EncodeToString(sum[:8])
	}
	if sub.Model == "" {
		sub.Model = core.Model
	}
	list := slices.Clone(s.Namespaces)
	slices.SortFunc(list, func(a, b Namespace) int { return int(int64(a.ID) - int64(b.ID)) })
	for i, ns := range list {
		switch {
		case ns.ID == 0:
			return nil, fmt.Errorf("subsystem %s: namespace id 0: ids go from 1", s.NQN)
		case ns.ID >= nvme.AllNamespaces-1:
			return nil, fmt.Errorf("subsystem %s: namespace id %d: ids go to %d", s.NQN, ns.ID, uint32(nvme.AllNamespaces-2))
		case i > 0 && list[i-1].ID == ns.ID:
			return nil, fmt.Errorf("subsystem %s: two namespaces %d", s.NQN, ns.ID)
		case ns.Backend == nil:
			return nil, fmt.Errorf("subsystem %s: namespace %d has no backend", s.NQN, ns.ID)
		}
		g := ns.Backend.Geometry()
		if g.BlockShift != 9 && g.BlockShift != 12 || g.Blocks == 0 {
			return nil, fmt.Errorf("subsystem %s: namespace %d has %d blocks of %d bytes", s.NQN, ns.ID, g.Blocks, g.BlockSize())
		}
		if ns.UUID == [16]byte{} {
			ns.UUID = nameUUID(fmt.Sprintf("%s/%d", s.NQN, ns.ID))
		}
		sub.Namespaces = append(sub.Namespaces, core.Namespace{
			ID: ns.ID, Blocks: g.Blocks, Shift: g.BlockShift, Volatile: g.Volatile, ReadOnly: g.ReadOnly,
			Discards: g.Discards, DiscardZeroes: g.DiscardZeroes, UUID: ns.UUID,
		})
		sub.backends = append(sub.backends, ns.Backend)
	}
	sub.counters = make([]counters, len(list))
	return sub, nil
}

// nameUUID makes a UUID of a name (RFC 9562, version 5, in a name space of our own).
func nameUUID(name string) (u [16]byte) {
	sum := sha1.Sum([]byte("rdmarw NVMe-oF namespace " + name))
	copy(u[:], sum[:])
	u[6] = u[6]&0x0F | 0x50
	u[8] = u[8]&0x3F | 0x80
	return u
}
