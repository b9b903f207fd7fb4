package core

import (
	"time"

	"rdmarw/ulp/nvmeof/nvme"
)

// MaxHeld is how many asynchronous event requests a controller holds.
const MaxHeld = 4

// keepAliveUnit is what timeouts are rounded up to, as identify data says (KAS): the target
// looks at its clock a few times in one.
const keepAliveUnit = time.Second

// keepAliveOf is the timeout that a host gets for a KATO in milliseconds. Zero: none.
func keepAliveOf(kato uint32) time.Duration {
	d := time.Duration(kato) * time.Millisecond
	return (d + keepAliveUnit - 1) / keepAliveUnit * keepAliveUnit
}

// Controller is one host's association with a subsystem: an admin queue, and I/O
// queues that join it.
type Controller struct {
	directory *Directory
	sub       *Subsystem
	id        uint16
	host      string
	hostID    [16]byte
	queues    map[uint16]bool
	depth     int // the largest number of entries of a queue

	config nvme.Configuration
	status nvme.ControllerStatus

	keepAlive time.Duration // zero: none
	heard     time.Time

	asyncMask uint32
	held      int
	executing bool // see Executing
}

// ID is the controller's id.
func (c *Controller) ID() uint16 { return c.id }

// Host is the NQN of the host.
func (c *Controller) Host() string { return c.host }

// Subsystem is what the controller belongs to.
func (c *Controller) Subsystem() *Subsystem { return c.sub }

// Ready reports whether I/O commands may be carried out.
func (c *Controller) Ready() bool { return c.status.Ready() && !c.status.Fatal() }

// Narrow tells what the queues of the device hold that the host came by, if that is less
// than the limits say.
func (c *Controller) Narrow(depth int) { c.depth = min(c.depth, depth) }

// Alive notes that the host was heard.
func (c *Controller) Alive(now time.Time) { c.heard = now }

// Executing tells whether commands of I/O queues are being carried out. As long as there are,
// a reset or a shutdown isn't over: they may change what is written next.
func (c *Controller) Executing(any bool) { c.executing = any }

// statusNow is CSTS. (NVM Express 1.3, 3.1.6, 7.6.2: RDY becomes 0, and SHST 10b, when the
// controller has come to an end with its commands.)
func (c *Controller) statusNow() nvme.ControllerStatus {
	s := c.status
	if !c.executing {
		return s
	}
	if !c.config.Enabled() {
		s |= nvme.CSTSReady
	}
	if s.ShutdownComplete() {
		s = s&^nvme.CSTSShutdown | nvme.CSTSShutdownOccuring
	}
	return s
}

// PlanFabrics decides about a fabrics command on a connected queue.
func (c *Controller) PlanFabrics(cmd *nvme.Command, queueID uint16) Plan {
	if !checkFlags(cmd) {
		return fail(nvme.InvalidField)
	}
	typ := cmd.FabricsType()
	switch typ {
	case nvme.ConnectType:
		return fail(nvme.CommandSequence) // once is enough
	case nvme.PropertyGet, nvme.PropertySet:
		if queueID != 0 {
			return fail(nvme.InvalidOpcode)
		}
	default:
		return fail(nvme.InvalidOpcode)
	}
	if p := withData(Plan{}, cmd, nvme.NoData, 0, 0, 0); p.Status != nvme.Success {
		return p
	}
	var a nvme.PropertyAccess
	if a.Parse(cmd) != nil || a.Wide != (a.Property == nvme.PropCAP) {
		return fail(nvme.InvalidField)
	}
	if typ == nvme.PropertySet {
		return c.set(&a)
	}
	var p Plan
	switch a.Property {
	case nvme.PropCAP:
		p.Result = uint64(nvme.MakeCapabilities(uint16(c.depth-1), 15))
	case nvme.PropVS:
		p.Result = uint64(nvme.Version13)
	case nvme.PropCC:
		p.Result = uint64(c.config)
	case nvme.PropCSTS:
		p.Result = uint64(c.statusNow())
	default:
		return fail(nvme.InvalidField)
	}
	return p
}

// set changes CC, the one property that can be set.
func (c *Controller) set(a *nvme.PropertyAccess) Plan {
	if a.Property != nvme.PropCC {
		return fail(nvme.InvalidField)
	}
	was, is := c.config, nvme.Configuration(a.Value)
	c.config = is
	switch {
	case is.Enabled() && !was.Enabled():
		// Entry sizes are about I/O queues. Hosts leave them zero where there are none.
		sizes := c.sub.Discovery || is.SQEntryShift() == 6 && is.CQEntryShift() == 4
		if is.CommandSet() != 0 || is.PageShift() != 12 || !sizes {
			c.status |= nvme.CSTSFatal
			break
		}
		c.status = nvme.CSTSReady
	case !is.Enabled() && was.Enabled():
		// A reset. The queues stay where they are: it is for the host to end them, and the
		// admin queue has to go on answering what CSTS is.
		c.status = 0
	}
	switch {
	case is.Shutdown() && !was.Shutdown():
		c.status = c.status&^nvme.CSTSShutdown | nvme.CSTSShutdownComplete
	case !is.Shutdown() && was.Shutdown():
		c.status &^= nvme.CSTSShutdown
	}
	return Plan{}
}

// PlanAdmin decides about a command on the admin queue, other than fabrics commands.
func (c *Controller) PlanAdmin(cmd *nvme.Command, now time.Time) Plan {
	switch {
	case !checkFlags(cmd):
		return fail(nvme.InvalidField)
	case cmd.Opcode == nvme.KeepAlive:
		c.Alive(now)
		return withData(Plan{}, cmd, nvme.NoData, 0, 0, 0)
	case !c.Ready():
		return fail(nvme.CommandSequence)
	}
	switch cmd.Opcode {
	case nvme.Identify:
		return c.planIdentify(cmd)
	case nvme.GetLogPage:
		return c.planLog(cmd)
	case nvme.AsyncEvent:
		if c.held == MaxHeld {
			return fail(nvme.AsyncLimitExceeded)
		}
		p := withData(Plan{Action: Hold}, cmd, nvme.NoData, 0, 0, 0)
		if p.Action == Hold {
			c.held++
		}
		return p
	}
	if c.sub.Discovery {
		switch cmd.Opcode {
		case nvme.GetFeatures, nvme.SetFeatures:
			if f := nvme.Feature(cmd.CDW10); f != nvme.FeatKeepAlive && f != nvme.FeatAsyncEvents {
				return fail(nvme.InvalidField)
			}
		default:
			return fail(nvme.InvalidOpcode)
		}
	}
	switch cmd.Opcode {
	case nvme.GetFeatures:
		return c.getFeature(cmd)
	case nvme.SetFeatures:
		return c.setFeature(cmd, now)
	case nvme.Abort:
		return c.planAbort(cmd)
	}
	return fail(nvme.InvalidOpcode)
}

// planAbort: what the target holds can be aborted. What was given to a backend or to
// the device ends by itself; bit 0 of the result says that it wasn't aborted.
func (c *Controller) planAbort(cmd *nvme.Command) Plan {
	p := withData(Plan{Action: AbortHeld, Result: uint64(cmd.CDW10>>16) | 1<<16}, cmd, nvme.NoData, 0, 0, 0)
	if p.Action == AbortHeld && uint16(cmd.CDW10) != 0 {
		return Plan{Result: 1}
	}
	return p
}

// Released notes that a command that was held has been answered.
func (c *Controller) Released() { c.held-- }

func (c *Controller) getFeature(cmd *nvme.Command) Plan {
	p := withData(Plan{}, cmd, nvme.NoData, 0, 0, 0)
	if p.Status != nvme.Success {
		return fail(nvme.InvalidField) // none of those here has data
	}
	if cmd.CDW10&nvme.FeatSelect > 1<<8 { // saved, or supported capabilities
		return fail(nvme.InvalidField)
	}
	switch nvme.Feature(cmd.CDW10) {
	case nvme.FeatVolatileWriteCache:
		if c.sub.volatile() {
			p.Result = 1
		}
	case nvme.FeatQueues:
		p.Result = uint64(nvme.Queues(c.directory.limits.IOQueues))
	case nvme.FeatKeepAlive:
		p.Result = uint64(c.keepAlive / time.Millisecond)
	case nvme.FeatAsyncEvents:
		p.Result = uint64(c.asyncMask)
	default:
		return fail(nvme.InvalidField)
	}
	return p
}

func (c *Controller) setFeature(cmd *nvme.Command, now time.Time) Plan {
	p := withData(Plan{}, cmd, nvme.NoData, 0, 0, 0)
	if p.Status != nvme.Success {
		return fail(nvme.InvalidField)
	}
	if cmd.CDW10&nvme.FeatSave != 0 {
		return fail(nvme.FeatureNotSaveable)
	}
	switch nvme.Feature(cmd.CDW10) {
	case nvme.FeatQueues:
		if cmd.CDW11&0xFFFF == 0xFFFF || cmd.CDW11>>16 == 0xFFFF {
			return fail(nvme.InvalidField)
		}
		// No more than will be accepted: the host connects as many as it hears here.
		p.Result = uint64(nvme.Queues(min(c.directory.limits.IOQueues, nvme.QueueCount(cmd.CDW11))))
	case nvme.FeatKeepAlive:
		c.keepAlive = keepAliveOf(cmd.CDW11)
		c.Alive(now)
	case nvme.FeatAsyncEvents:
		c.asyncMask = cmd.CDW11
	case nvme.FeatVolatileWriteCache:
		return fail(nvme.FeatureNotChangeable)
	case nvme.FeatHostID:
		return fail(nvme.CommandSequence) // over fabrics it came with Connect
	default:
		return fail(nvme.InvalidField)
	}
	return p
}
