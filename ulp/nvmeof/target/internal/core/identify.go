package core

import (
	"math/bits"
	"time"

	"rdmarw/ulp/nvmeof/nvme"
)

func (c *Controller) planIdentify(cmd *nvme.Command) Plan {
	id := cmd.NSID
	switch nvme.CNS(cmd.CDW10) {
	case nvme.CNSController:
	case nvme.CNSActiveList:
		if c.sub.Discovery {
			return fail(nvme.InvalidField)
		}
		if id >= nvme.AllNamespaces-1 {
			return fail(nvme.InvalidNamespace)
		}
	case nvme.CNSNamespace, nvme.CNSDescriptors:
		if c.sub.Discovery {
			return fail(nvme.InvalidField)
		}
		// One that could be and isn't there identifies as zeros.
		inactive := nvme.CNS(cmd.CDW10) == nvme.CNSNamespace && id > 0 && id <= c.sub.largest()
		if c.sub.Find(id) < 0 && !inactive {
			return fail(nvme.InvalidNamespace)
		}
	default:
		return fail(nvme.InvalidField)
	}
	return withData(Plan{Action: Fill}, cmd, nvme.TargetToHost, nvme.IdentifyLen, c.directory.limits.MaxAdmin, 0)
}

func (c *Controller) fillIdentify(cmd *nvme.Command, b []byte) {
	switch nvme.CNS(cmd.CDW10) {
	case nvme.CNSController:
		c.identity().Encode(b)
	case nvme.CNSActiveList:
		var ids []uint32
		for i := range c.sub.Namespaces {
			if id := c.sub.Namespaces[i].ID; id > cmd.NSID {
				ids = append(ids, id)
			}
		}
		nvme.EncodeActive(b, ids)
	case nvme.CNSNamespace:
		if i := c.sub.Find(cmd.NSID); i >= 0 {
			c.sub.Namespaces[i].identity().Encode(b)
		}
	case nvme.CNSDescriptors:
		ns := &c.sub.Namespaces[c.sub.Find(cmd.NSID)]
		nvme.EncodeDescriptors(b, []nvme.NamespaceDescriptor{{Kind: nvme.UUIDKind, ID: ns.UUID[:]}})
	}
}

// identity is the controller's identify data.
func (c *Controller) identity() *nvme.Controller {
	lim := &c.directory.limits
	id := &nvme.Controller{
		Serial: c.sub.Serial, Model: c.sub.Model, Firmware: c.sub.Firmware,
		MDTS: uint8(bits.Len(uint(lim.MaxTransfer/4096)) - 1), ControllerID: c.id, Version: nvme.Version13,
		CTRATT: nvme.CTRATTHostID128, Type: nvme.IOController,
		ACL: 3, AERL: MaxHeld - 1, FirmwareSlots: 1<<1 | 1, LPA: nvme.LPAExtended,
		KeepAlive: uint16(keepAliveUnit / (100 * time.Millisecond)),
		SQES:      0x66, CQES: 0x44, MaxCommands: uint16(c.depth),
		SGLS: nvme.SGLSSupported | nvme.SGLSKeyed, Subsystem: c.sub.NQN,
		CommandCapsule: nvme.CommandLen / 16, ResponseCapsule: nvme.CompletionLen / 16, MaxDescriptors: 1,
	}
	if c.sub.Discovery {
		id.Type = nvme.DiscoveryController
		id.MDTS = uint8(bits.Len(uint(lim.MaxAdmin/4096)) - 1)
		return id
	}
	id.CMIC = 1 << 1 // several controllers
	id.LPA |= nvme.LPACommandEffects
	id.ONCS = nvme.ONCSCompare | nvme.ONCSWriteZeroes
	if lim.InCapsule > 0 {
		id.SGLS |= nvme.SGLSOffset
		id.CommandCapsule += uint32(lim.InCapsule / 16)
	}
	for i := range c.sub.Namespaces {
		ns := &c.sub.Namespaces[i]
		id.Capacity += ns.Blocks << ns.Shift
		if ns.Discards {
			id.ONCS |= nvme.ONCSDSM
		}
		if ns.Volatile {
			id.VolatileWriteCache = 1
		}
	}
	id.Namespaces = c.sub.largest()
	id.MaxNamespaces = id.Namespaces
	return id
}

func (ns *Namespace) identity() *nvme.Namespace {
	id := &nvme.Namespace{
		Size: ns.Blocks, Capacity: ns.Blocks, Used: ns.Blocks, Shared: true, ReadOnly: ns.ReadOnly,
		Formats: []nvme.LBAFormat{{Shift: ns.Shift}},
	}
	if ns.DiscardZeroes {
		id.Deallocate = nvme.DeallocatedReadZero
	}
	if ns.Discards {
		id.Deallocate |= nvme.DeallocateByWriteZeroes
	}
	return id
}
