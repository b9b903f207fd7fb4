package core

import (
	"slices"

	"rdmarw/ulp/nvmeof/nvme"
)

// Limits are what the target offers. All are set.
type Limits struct {
	// IOQueues is how many I/O queues a controller may have; Controllers how many
	// controllers there may be at a time.
	IOQueues, Controllers int
	// QueueDepth is the largest number of entries of a submission queue.
	QueueDepth int
	// InCapsule is how many bytes of data a command capsule of an I/O queue may carry.
	InCapsule int
	// MaxTransfer is the most that a command may transfer in bytes: 4 KiB times a power
	// of two, but not by one: that would be MDTS 0, which is no limit.
	MaxTransfer int
	// MaxAdmin is the same for commands of the admin queue.
	MaxAdmin int
}

// Namespace is what has to be known of one.
type Namespace struct {
	ID     uint32
	Blocks uint64
	Shift  uint8
	// Volatile, ReadOnly, Discards, DiscardZeroes are as in backend.Geometry.
	Volatile, ReadOnly, Discards, DiscardZeroes bool
	UUID                                        [16]byte
}

// Subsystem is one NVM subsystem, or a discovery subsystem.
type Subsystem struct {
	NQN, Serial, Model, Firmware string
	Discovery                    bool
	// Namespaces are in ascending order of their ids.
	Namespaces []Namespace
	// Hosts are the NQNs of the hosts that may connect. Nil: any.
	Hosts []string
}

// Allows reports whether a host may connect.
func (s *Subsystem) Allows(host string) bool { return s.Hosts == nil || slices.Contains(s.Hosts, host) }

// Find returns the position of a namespace, or -1.
func (s *Subsystem) Find(id uint32) int {
	if n := len(s.Namespaces); id > 0 && id <= uint32(n) && s.Namespaces[id-1].ID == id {
		return int(id - 1) // as it mostly is: ids from one, without gaps
	}
	i, found := slices.BinarySearchFunc(s.Namespaces, id, func(n Namespace, id uint32) int {
		switch {
		case n.ID < id:
			return -1
		case n.ID > id:
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return i
}

// largest is the largest id that a namespace may have: NN of identify data, which isn't zero.
func (s *Subsystem) largest() uint32 {
	if len(s.Namespaces) == 0 {
		return 1
	}
	return s.Namespaces[len(s.Namespaces)-1].ID
}

func (s *Subsystem) volatile() bool {
	return slices.ContainsFunc(s.Namespaces, func(n Namespace) bool { return n.Volatile })
}

// DiscoverySubsystem is the subsystem that every target has.
func DiscoverySubsystem() *Subsystem {
	return &Subsystem{NQN: nvme.DiscoveryNQN, Serial: "discovery", Model: Model, Firmware: Firmware, Discovery: true}
}

// Model and Firmware are what identify data says of a target, unless told otherwise.
const (
	Model    = "rdmarw"
	Firmware = "1"
)
