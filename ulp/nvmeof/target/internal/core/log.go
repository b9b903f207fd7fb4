package core

import (
	"rdmarw/ulp/nvmeof/nvme"
)

// Usage is what a subsystem's health log counts.
type Usage struct {
	Reads, Writes uint64
	// Bytes.
	BytesRead, BytesWritten uint64
	// MediaErrors is how many requests a backend failed.
	MediaErrors uint64
	// Hours is how long the target has run.
	Hours uint64
}

// Environment is what Fill has to be told of the world outside.
type Environment struct {
	Usage Usage
	// Entry is what the discovery log says of where the host can go; Fill adds all about
	// the subsystem.
	Entry nvme.DiscoveryEntry
}

// logLen is how long a log page is, or 0 if there is no such page.
func (c *Controller) logLen(page nvme.LogPage) int {
	if c.sub.Discovery {
		if page == nvme.LogDiscovery {
			return nvme.DiscoveryHeaderLen + len(c.discoverable())*nvme.DiscoveryEntryLen
		}
		return 0
	}
	switch page {
	case nvme.LogError:
		return nvme.ErrorEntryLen
	case nvme.LogHealth:
		return nvme.HealthLen
	case nvme.LogFirmware:
		return nvme.FirmwareLen
	case nvme.LogEffects:
		return nvme.EffectsLen
	}
	return 0
}

func (c *Controller) planLog(cmd *nvme.Command) Plan {
	var r nvme.LogRequest
	r.Parse(cmd)
	n := c.logLen(r.Page)
	switch {
	case n == 0:
		// A page that isn't there must not look like one that is empty.
		return fail(nvme.InvalidField)
	case r.Offset&3 != 0 || r.Offset > uint64(n):
		return fail(nvme.InvalidField)
	case r.Page == nvme.LogHealth && cmd.NSID != 0 && cmd.NSID != nvme.AllNamespaces && c.sub.Find(cmd.NSID) < 0:
		return fail(nvme.InvalidNamespace)
	}
	return withData(Plan{Action: Fill}, cmd, nvme.TargetToHost, r.Length, c.directory.limits.MaxAdmin, 0)
}

// Fill makes the data of a command whose plan says so, of the length that the plan
// says.
func (c *Controller) Fill(cmd *nvme.Command, b []byte, env *Environment) {
	clear(b)
	if cmd.Opcode == nvme.Identify {
		c.fillIdentify(cmd, b)
		return
	}
	var r nvme.LogRequest
	r.Parse(cmd)
	page := make([]byte, c.logLen(r.Page))
	switch r.Page {
	case nvme.LogHealth:
		health(&env.Usage).Encode(page)
	case nvme.LogFirmware:
		(&nvme.FirmwareSlots{Active: 1, Revisions: [7]string{c.sub.Firmware}}).Encode(page)
	case nvme.LogEffects:
		effects.Encode(page)
	case nvme.LogDiscovery:
		c.fillDiscovery(page, env.Entry)
	}
	if r.Offset < uint64(len(page)) {
		copy(b, page[r.Offset:])
	}
}

// discoverable are the subsystems that the host may know of.
func (c *Controller) discoverable() []*Subsystem {
	var all []*Subsystem
	for _, s := range c.directory.subsystems {
		if !s.Discovery && s.Allows(c.host) {
			all = append(all, s)
		}
	}
	return all
}

func (c *Controller) fillDiscovery(page []byte, e nvme.DiscoveryEntry) {
	all := c.discoverable()
	(&nvme.DiscoveryHeader{Generation: c.directory.generation, Records: uint64(len(all))}).Encode(page)
	for i, s := range all {
		e.Transport, e.Subsystem, e.Requirements = nvme.TransportRDMA, nvme.EntryNVM, nvme.SecureNotSpecified|nvme.NoFlowControlSupported
		e.ControllerID, e.NQN = nvme.AnyController, s.NQN
		e.QueuePair, e.Management = nvme.QueuesConnected, nvme.ManagementRDMACM
		e.Encode(page[nvme.DiscoveryHeaderLen+i*nvme.DiscoveryEntryLen:])
	}
}

func health(u *Usage) *nvme.Health {
	units := func(bytes uint64) uint64 { return (bytes + 512_000 - 1) / 512_000 }
	return &nvme.Health{
		Temperature: 273 + 25, Spare: 100, SpareThreshold: 10,
		UnitsRead: units(u.BytesRead), UnitsWritten: units(u.BytesWritten),
		Reads: u.Reads, Writes: u.Writes, MediaErrors: u.MediaErrors, PowerCycles: 1, PowerOnHours: u.Hours,
	}
}

// effects are the commands that there are.
var effects = func() (e nvme.Effects) {
	for _, op := range []nvme.Opcode{nvme.GetLogPage, nvme.Identify, nvme.Abort, nvme.SetFeatures, nvme.GetFeatures, nvme.AsyncEvent, nvme.KeepAlive} {
		e.Admin[op] = nvme.EffectSupported
	}
	for _, op := range []nvme.Opcode{nvme.Read, nvme.Compare, nvme.Flush} {
		e.IO[op] = nvme.EffectSupported
	}
	for _, op := range []nvme.Opcode{nvme.Write, nvme.WriteZeroes, nvme.DatasetManagement} {
		e.IO[op] = nvme.EffectSupported | nvme.EffectLBChange
	}
	return e
}()
