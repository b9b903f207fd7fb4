package core

import (
	"slices"
	"time"

	"rdmarw/ulp/nvmeof/nvme"
)

// Directory is the subsystems of a target, and the controllers that hosts have made.
type Directory struct {
	limits      Limits
	subsystems  []*Subsystem
	controllers map[uint16]*Controller
	last        uint16 // controller id
	generation  uint64
}

// NewDirectory makes one, with a discovery subsystem.
func NewDirectory(limits Limits, subsystems ...*Subsystem) *Directory {
	return &Directory{
		limits: limits, subsystems: append(subsystems, DiscoverySubsystem()),
		controllers: make(map[uint16]*Controller), generation: 1,
	}
}

// Limits returns what the target offers.
func (d *Directory) Limits() *Limits { return &d.limits }

// Subsystem returns a subsystem, or nil.
func (d *Directory) Subsystem(nqn string) *Subsystem {
	for _, s := range d.subsystems {
		if s.NQN == nqn {
			return s
		}
	}
	return nil
}

// Controllers is how many there are.
func (d *Directory) Controllers() int { return len(d.controllers) }

// Joined is what a queue becomes part of by its Connect.
type Joined struct {
	Controller *Controller
	QueueID    uint16
	// Entries is the size of the submission queue, from one.
	Entries int
	// NoFlowControl: responses say nothing about the head of the submission queue.
	NoFlowControl bool
}

// PlanConnect decides about a command on a queue that isn't connected: only a Connect
// will do. queue is what the connection's private data announced.
func (d *Directory) PlanConnect(cmd *nvme.Command, inCapsule int) Plan {
	switch {
	case !checkFlags(cmd):
		return fail(nvme.InvalidField)
	case cmd.Opcode != nvme.Fabrics || cmd.FabricsType() != nvme.ConnectType:
		return fail(nvme.CommandSequence)
	}
	return withData(Plan{Action: Connect}, cmd, nvme.HostToTarget, nvme.ConnectDataLen, d.limits.MaxAdmin, inCapsule)
}

// invalid is the failure of a Connect for a field.
func invalid(offset uint16, inData bool) (*Joined, Plan) {
	p := fail(nvme.ConnectInvalidParam)
	p.Result = nvme.InvalidParam(offset, inData)
	return nil, p
}

// Connect decides about a Connect whose data is there. queueID and entries are what
// the connection's private data said of the queue. The plan is the answer.
func (d *Directory) Connect(cmd *nvme.Command, data []byte, queueID uint16, entries int, now time.Time) (*Joined, Plan) {
	var c nvme.Connect
	c.Parse(cmd)
	var cd nvme.ConnectData
	if c.RecordFormat != 0 || cd.Decode(data) != nil {
		return nil, fail(nvme.ConnectFormat)
	}
	if c.QueueID != queueID {
		return invalid(nvme.ConnectAtQueueID, false)
	}
	// Zero-based, at least two entries; and the receives that were posted for the queue
	// are as many as its connection asked for.
	if c.SQSize == 0 || int(c.SQSize)+1 > entries {
		return invalid(nvme.ConnectAtSQSize, false)
	}
	sub := d.Subsystem(cd.Subsystem)
	if sub == nil {
		return invalid(nvme.ConnectAtSubsystem, true)
	}
	if nvme.CheckNQN(cd.Host) != nil {
		return invalid(nvme.ConnectAtHost, true)
	}
	if !sub.Allows(cd.Host) {
		p := fail(nvme.ConnectInvalidHost)
		p.Result = nvme.InvalidParam(nvme.ConnectAtHost, true)
		return nil, p
	}
	j := &Joined{QueueID: c.QueueID, Entries: int(c.SQSize) + 1, NoFlowControl: c.Attributes&nvme.ConnectNoFlowControl != 0}
	var p Plan
	if c.QueueID == 0 {
		j.Controller, p = d.admit(sub, &c, &cd, now)
	} else {
		j.Controller, p = d.join(sub, &c, &cd)
	}
	if j.Controller == nil {
		return nil, p
	}
	p.Result = uint64(j.Controller.id)
	return j, p
}

// admit makes a controller for an admin queue.
func (d *Directory) admit(sub *Subsystem, c *nvme.Connect, cd *nvme.ConnectData, now time.Time) (*Controller, Plan) {
	if cd.ControllerID != nvme.AnyController { // the dynamic model
		_, p := invalid(nvme.ConnectAtController, true)
		return nil, p
	}
	if len(d.controllers) >= d.limits.Controllers {
		return nil, Plan{Status: nvme.ControllerBusy} // it may try again
	}
	ctrl := &Controller{
		directory: d, sub: sub, id: d.nextID(), host: cd.Host, hostID: cd.HostID, keepAlive: keepAliveOf(c.KeepAlive),
		queues: map[uint16]bool{0: true}, depth: d.limits.QueueDepth,
	}
	ctrl.Alive(now)
	d.controllers[ctrl.id] = ctrl
	return ctrl, Plan{}
}

// nextID returns an id that no controller has, and none had lately. 0xFFF0 and up are
// reserved.
func (d *Directory) nextID() uint16 {
	for {
		d.last = d.last%0xFFEF + 1
		if d.controllers[d.last] == nil {
			return d.last
		}
	}
}

// join adds an I/O queue to a controller.
func (d *Directory) join(sub *Subsystem, c *nvme.Connect, cd *nvme.ConnectData) (*Controller, Plan) {
	ctrl := d.controllers[cd.ControllerID]
	var p Plan
	switch {
	case ctrl == nil || ctrl.sub != sub:
		_, p = invalid(nvme.ConnectAtController, true)
	case ctrl.host != cd.Host:
		_, p = invalid(nvme.ConnectAtHost, true)
	case ctrl.hostID != cd.HostID:
		_, p = invalid(nvme.ConnectAtHostID, true)
	case sub.Discovery || int(c.QueueID) > d.limits.IOQueues:
		_, p = invalid(nvme.ConnectAtQueueID, false)
	case ctrl.queues[c.QueueID] || !ctrl.status.Ready():
		p = fail(nvme.CommandSequence)
	default:
		ctrl.queues[c.QueueID] = true
		return ctrl, p
	}
	return nil, p
}

// Leave takes a queue out of its controller. A controller ends with its admin queue.
func (d *Directory) Leave(j *Joined) {
	delete(j.Controller.queues, j.QueueID)
	if j.QueueID == 0 {
		delete(d.controllers, j.Controller.id)
	}
}

// Expire returns the controllers that have not been heard of for as long as they said
// they would be. They are in the fatal state, and their connections are to be ended.
func (d *Directory) Expire(now time.Time) []*Controller {
	var gone []*Controller
	for _, c := range d.controllers {
		if c.keepAlive > 0 && !c.status.Fatal() && now.Sub(c.heard) > c.keepAlive {
			c.status |= nvme.CSTSFatal
			gone = append(gone, c)
		}
	}
	slices.SortFunc(gone, func(a, b *Controller) int { return int(a.id) - int(b.id) })
	return gone
}
