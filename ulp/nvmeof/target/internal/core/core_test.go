package core

import (
	"testing"
	"time"

	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	disk     = "nqn.2014-08.org.example:disk"
	secret   = "nqn.2014-08.org.example:secret"
	hostName = "nqn.2014-08.org.example:host"
)

var (
	limits = Limits{IOQueues: 4, Controllers: 2, QueueDepth: 128, InCapsule: 4096, MaxTransfer: 1 << 20, MaxAdmin: 64 << 10}
	sub    = &Subsystem{NQN: disk, Serial: "s", Model: Model, Firmware: Firmware, Namespaces: []Namespace{
		{ID: 1, Blocks: 1000, Shift: 9, Discards: true, DiscardZeroes: true},
		{ID: 3, Blocks: 1000, Shift: 12, Volatile: true},
		{ID: 7, Blocks: 1000, Shift: 9, ReadOnly: true},
	}}
	hidden = &Subsystem{NQN: secret, Serial: "s", Hosts: []string{"nqn.2014-08.org.example:friend"}}
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func io(op nvme.Opcode, nsid uint32, lba uint64, n uint32, sgl nvme.Descriptor) *nvme.Command {
	c := &nvme.Command{Opcode: op, Flags: nvme.FlagSGL, NSID: nsid, SGL: sgl}
	c.SetBlocks(lba, n)
	return c
}

func keyed(n uint32) nvme.Descriptor {
	return nvme.Descriptor{Addr: 0x1000, Len: n, Key: 7, Type: nvme.SGLKeyed}
}

func TestPlanIO(t *testing.T) {
	invalidate := keyed(512)
	invalidate.Type = nvme.SGLKeyedInvalidate
	with := func(c *nvme.Command, f func(*nvme.Command)) *nvme.Command { f(c); return c }
	tests := []struct {
		name    string
		cmd     *nvme.Command
		capsule int
		want    Plan
	}{
		{"read", io(nvme.Read, 1, 8, 2, keyed(1024)), 0, Plan{Action: ReadBlocks, LBA: 8, Blocks: 2, Data: Data{Len: 1024, Addr: 0x1000, Key: 7}}},
		{"read with invalidation", io(nvme.Read, 1, 0, 1, invalidate), 0,
			Plan{Action: ReadBlocks, Blocks: 1, Data: Data{Len: 512, Addr: 0x1000, Key: 7, Invalidate: true}}},
		{"the last block", io(nvme.Read, 1, 999, 1, keyed(512)), 0, Plan{Action: ReadBlocks, LBA: 999, Blocks: 1, Data: Data{Len: 512, Addr: 0x1000, Key: 7}}},
		{"write of 4096-byte blocks", io(nvme.Write, 3, 0, 1, keyed(4096)), 0,
			Plan{Action: WriteBlocks, Namespace: 1, Blocks: 1, Data: Data{Len: 4096, Addr: 0x1000, Key: 7}}},
		{"FUA", with(io(nvme.Write, 1, 0, 1, keyed(512)), func(c *nvme.Command) { c.CDW12 |= nvme.FUA }), 0,
			Plan{Action: WriteBlocks, Blocks: 1, FUA: true, Data: Data{Len: 512, Addr: 0x1000, Key: 7}}},
		{"in the capsule", io(nvme.Write, 1, 0, 1, nvme.Descriptor{Len: 512, Type: nvme.SGLOffset}), 512,
			Plan{Action: WriteBlocks, Blocks: 1, Data: Data{Len: 512, InCapsule: true}}},
		{"further on in the capsule", io(nvme.Write, 1, 0, 1, nvme.Descriptor{Addr: 100, Len: 512, Type: nvme.SGLOffset}), 612,
			Plan{Action: WriteBlocks, Blocks: 1, Data: Data{Len: 512, Addr: 100, InCapsule: true}}},
		{"compare", io(nvme.Compare, 7, 0, 1, keyed(512)), 0, Plan{Action: CompareBlocks, Namespace: 2, Blocks: 1, Data: Data{Len: 512, Addr: 0x1000, Key: 7}}},
		{"flush", io(nvme.Flush, 1, 0, 1, keyed(0)), 0, Plan{Action: Flush, Data: Data{Addr: 0x1000, Key: 7}}},
		{"write zeroes", with(io(nvme.WriteZeroes, 1, 1, 999, keyed(0)), func(c *nvme.Command) { c.CDW12 |= nvme.Deallocate | nvme.FUA }), 0,
			Plan{Action: ZeroBlocks, LBA: 1, Blocks: 999, FUA: true, Deallocate: true, Data: Data{Addr: 0x1000, Key: 7}}},
		{"discard", &nvme.Command{Opcode: nvme.DatasetManagement, Flags: nvme.FlagSGL, NSID: 1, CDW10: 2, CDW11: nvme.DSMDeallocate, SGL: keyed(48)}, 0,
			Plan{Action: Discard, Blocks: 3, Data: Data{Len: 48, Addr: 0x1000, Key: 7}}},
		{"Linux describes a page for a discard", &nvme.Command{Opcode: nvme.DatasetManagement, Flags: nvme.FlagSGL, NSID: 1, CDW11: nvme.DSMDeallocate, SGL: keyed(4096)}, 0,
			Plan{Action: Discard, Blocks: 1, Data: Data{Len: 16, Addr: 0x1000, Key: 7}}},
		{"hints are accepted and ignored", &nvme.Command{Opcode: nvme.DatasetManagement, Flags: nvme.FlagSGL, NSID: 1, CDW11: 1, SGL: keyed(16)}, 0,
			Plan{Action: Discard, Data: Data{Len: 16, Addr: 0x1000, Key: 7}}},

		{"fused", with(io(nvme.Read, 1, 0, 1, keyed(512)), func(c *nvme.Command) { c.Flags |= 1 }), 0, fail(nvme.InvalidField)},
		{"PRPs", with(io(nvme.Read, 1, 0, 1, keyed(512)), func(c *nvme.Command) { c.Flags = 0 }), 0, fail(nvme.InvalidField)},
		{"no such command", io(0x55, 1, 0, 1, keyed(512)), 0, fail(nvme.InvalidOpcode)},
		{"write uncorrectable isn't offered", io(nvme.WriteUncorrect, 1, 0, 1, keyed(0)), 0, fail(nvme.InvalidOpcode)},
		{"no namespace 0", io(nvme.Read, 0, 0, 1, keyed(512)), 0, fail(nvme.InvalidNamespace)},
		{"no namespace 2", io(nvme.Read, 2, 0, 1, keyed(512)), 0, fail(nvme.InvalidNamespace)},
		{"all namespaces", io(nvme.Flush, nvme.AllNamespaces, 0, 1, keyed(0)), 0, fail(nvme.InvalidNamespace)},
		{"read-only", io(nvme.Write, 7, 0, 1, keyed(512)), 0, fail(nvme.NamespaceProtected)},
		{"beyond the end", io(nvme.Read, 1, 999, 2, keyed(1024)), 0, fail(nvme.LBAOutOfRange)},
		{"the sum wraps", io(nvme.Read, 1, ^uint64(0), 1, keyed(512)), 0, fail(nvme.LBAOutOfRange)},
		{"SGL too short", io(nvme.Read, 1, 0, 2, keyed(512)), 0, fail(nvme.SGLLengthInvalid)},
		{"SGL too long", io(nvme.Read, 1, 0, 1, keyed(1024)), 0, fail(nvme.SGLLengthInvalid)},
		{"NLB taken for one-based", io(nvme.Read, 1, 0, 9, keyed(8*512)), 0, fail(nvme.SGLLengthInvalid)},
		{"above MDTS", io(nvme.Read, 3, 0, 257, keyed(257*4096)), 0, fail(nvme.InvalidField)},
		{"address wraps", io(nvme.Read, 1, 0, 1, nvme.Descriptor{Addr: ^uint64(510), Len: 512, Type: nvme.SGLKeyed}), 0, fail(nvme.SGLOffsetInvalid)},
		{"type 0", io(nvme.Read, 1, 0, 1, nvme.Descriptor{Len: 512}), 0, fail(nvme.SGLTypeInvalid)},
		{"no data needs a valid type too", io(nvme.Flush, 1, 0, 1, nvme.Descriptor{}), 0, fail(nvme.SGLTypeInvalid)},
		{"no data, and a length", io(nvme.Flush, 1, 0, 1, keyed(1)), 0, fail(nvme.SGLLengthInvalid)},
		{"keyed, unknown subtype", io(nvme.Read, 1, 0, 1, nvme.Descriptor{Len: 512, Type: 0x41}), 0, fail(nvme.SGLTypeInvalid)},
		{"descriptors in the capsule", io(nvme.Read, 1, 0, 1, nvme.Descriptor{Len: 32, Type: nvme.SGLLastSegmentOffset}), 32, fail(nvme.InvalidSGLCount)},
		{"read into the capsule", io(nvme.Read, 1, 0, 1, nvme.Descriptor{Len: 512, Type: nvme.SGLOffset}), 512, fail(nvme.InvalidField)},
		{"more than came", io(nvme.Write, 1, 0, 1, nvme.Descriptor{Len: 512, Type: nvme.SGLOffset}), 511, fail(nvme.SGLOffsetInvalid)},
		{"behind what came", io(nvme.Write, 1, 0, 1, nvme.Descriptor{Addr: 1, Len: 512, Type: nvme.SGLOffset}), 512, fail(nvme.SGLOffsetInvalid)},
		{"far behind", io(nvme.Write, 1, 0, 1, nvme.Descriptor{Addr: ^uint64(0), Len: 512, Type: nvme.SGLOffset}), 4096, fail(nvme.SGLOffsetInvalid)},
		{"ranges cut short", &nvme.Command{Opcode: nvme.DatasetManagement, Flags: nvme.FlagSGL, NSID: 1, CDW10: 1, SGL: keyed(16)}, 0, fail(nvme.SGLLengthInvalid)},
		{"ranges described by far too much", &nvme.Command{Opcode: nvme.DatasetManagement, Flags: nvme.FlagSGL, NSID: 1, SGL: keyed(2 << 20)}, 0, fail(nvme.InvalidField)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, PlanIO(sub, &limits, test.cmd, test.capsule))
		})
	}
}

// FuzzPlanIO: whatever a command says, what comes out is within what there is.
func FuzzPlanIO(f *testing.F) {
	b := make([]byte, nvme.CommandLen)
	io(nvme.Read, 1, 0, 8, keyed(4096)).Encode(b)
	f.Add(b, uint16(0))
	io(nvme.Write, 3, 0, 1, nvme.Descriptor{Len: 4096, Type: nvme.SGLOffset}).Encode(b)
	f.Add(b, uint16(4096))
	f.Fuzz(func(t *testing.T, capsule []byte, n uint16) {
		inCapsule := int(n) % (limits.InCapsule + 1)
		var cmd nvme.Command
		if cmd.Decode(capsule) != nil {
			return
		}
		p := PlanIO(sub, &limits, &cmd, inCapsule)
		checkPlan(t, p, inCapsule)
		if p.Action >= ReadBlocks && p.Action != Flush && p.Action != Discard {
			ns := &sub.Namespaces[p.Namespace]
			require.LessOrEqual(t, p.LBA+uint64(p.Blocks), ns.Blocks)
			require.GreaterOrEqual(t, p.LBA+uint64(p.Blocks), p.LBA)
			if p.Action != ZeroBlocks {
				require.Equal(t, uint64(p.Blocks)<<ns.Shift, uint64(p.Data.Len))
			}
		}
	})
}

func checkPlan(t *testing.T, p Plan, inCapsule int) {
	if p.Status != nvme.Success {
		require.Equal(t, Answer, p.Action)
		require.Zero(t, p.Data)
		return
	}
	if p.Data.InCapsule {
		require.LessOrEqual(t, p.Data.Addr+uint64(p.Data.Len), uint64(inCapsule))
		require.False(t, p.Data.Invalidate)
	} else {
		require.LessOrEqual(t, int(p.Data.Len), limits.MaxTransfer)
		require.GreaterOrEqual(t, p.Data.Addr+uint64(p.Data.Len), p.Data.Addr)
	}
	require.False(t, p.Data.Invalidate && p.Data.Len == 0)
}

func TestRanges(t *testing.T) {
	b := make([]byte, 32)
	(&nvme.Range{LBA: 990, Blocks: 10}).Encode(b)
	(&nvme.Range{LBA: 990, Blocks: 11}).Encode(b[16:])
	r, status := RangeAt(&sub.Namespaces[0], b, 0)
	assert.Equal(t, nvme.Success, status)
	assert.Equal(t, uint64(990), r.LBA)
	_, status = RangeAt(&sub.Namespaces[0], b, 1)
	assert.Equal(t, nvme.LBAOutOfRange|nvme.DNR, status)
	(&nvme.Range{LBA: ^uint64(0), Blocks: 1}).Encode(b)
	_, status = RangeAt(&sub.Namespaces[0], b, 0)
	assert.Equal(t, nvme.LBAOutOfRange|nvme.DNR, status)
	_, status = RangeAt(&sub.Namespaces[0], b[:20], 1)
	assert.Equal(t, nvme.SGLLengthInvalid|nvme.DNR, status)
}

// connection is a Connect and its data, for tests to spoil.
type connection struct {
	nvme.Connect
	nvme.ConnectData
	announced int // entries, in the private data
	queue     uint16
}

func (c *connection) to(d *Directory) (*Joined, Plan) {
	cmd := c.Connect.Command()
	b := make([]byte, nvme.ConnectDataLen)
	c.ConnectData.Encode(b)
	return d.Connect(&cmd, b, c.queue, c.announced, start)
}

func admin() *connection {
	return &connection{nvme.Connect{SQSize: 31, KeepAlive: 5000},
		nvme.ConnectData{HostID: [16]byte{1}, ControllerID: nvme.AnyController, Subsystem: disk, Host: hostName}, 32, 0}
}

func second(id uint16) *connection {
	c := admin()
	c.QueueID, c.queue, c.ControllerID = 1, 1, id
	return c
}

// controller connects an admin queue, and enables the controller.
func controller(t *testing.T, d *Directory) *Joined {
	t.Helper()
	j, p := admin().to(d)
	require.Equal(t, nvme.Success, p.Status)
	require.Equal(t, uint64(j.Controller.ID()), p.Result)
	enable(t, j.Controller)
	return j
}

func enable(t *testing.T, c *Controller) {
	t.Helper()
	for _, cc := range []nvme.Configuration{nvme.CCEntrySizes, nvme.CCEntrySizes | nvme.CCEnable} {
		require.Equal(t, nvme.Success, set(c, cc).Status)
	}
	require.True(t, c.Ready())
}

func set(c *Controller, cc nvme.Configuration) Plan {
	cmd := (&nvme.PropertyAccess{Property: nvme.PropCC, Value: uint64(cc)}).Command(nvme.PropertySet)
	return c.PlanFabrics(&cmd, 0)
}

func get(c *Controller, p nvme.Property, wide bool) Plan {
	cmd := (&nvme.PropertyAccess{Property: p, Wide: wide}).Command(nvme.PropertyGet)
	return c.PlanFabrics(&cmd, 0)
}

func TestConnect(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(c *connection)
		io     bool
		want   nvme.Status
		result uint64
	}{
		{"record format", func(c *connection) { c.RecordFormat = 1 }, false, nvme.ConnectFormat, 0},
		{"another queue than the connection's", func(c *connection) { c.QueueID = 2 }, false, nvme.ConnectInvalidParam, 42},
		{"size zero", func(c *connection) { c.SQSize = 0 }, false, nvme.ConnectInvalidParam, 44},
		{"more entries than announced", func(c *connection) { c.SQSize = 32 }, false, nvme.ConnectInvalidParam, 44},
		{"no such subsystem", func(c *connection) { c.Subsystem = "nqn.2014-08.org.example:none" }, false, nvme.ConnectInvalidParam, 0x10100},
		{"no host name", func(c *connection) { c.Host = "" }, false, nvme.ConnectInvalidParam, 0x10200},
		{"not allowed", func(c *connection) { c.Subsystem = secret }, false, nvme.ConnectInvalidHost, 0x10200},
		{"static controller", func(c *connection) { c.ControllerID = 1 }, false, nvme.ConnectInvalidParam, 0x10010},
		{"no such controller", func(c *connection) { c.ControllerID += 7 }, true, nvme.ConnectInvalidParam, 0x10010},
		{"of another subsystem", func(c *connection) { c.Subsystem = nvme.DiscoveryNQN }, true, nvme.ConnectInvalidParam, 0x10010},
		{"of another host", func(c *connection) { c.Host += "2" }, true, nvme.ConnectInvalidParam, 0x10200},
		{"of another host id", func(c *connection) { c.HostID[3] = 9 }, true, nvme.ConnectInvalidParam, 0x10000},
		{"beyond the queues that were promised", func(c *connection) { c.QueueID, c.queue = 5, 5 }, true, nvme.ConnectInvalidParam, 42},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := NewDirectory(limits, sub, hidden)
			c := admin()
			if test.io {
				c = second(controller(t, d).Controller.ID())
			}
			before := d.Controllers()
			test.spoil(c)
			j, p := c.to(d)
			assert.Nil(t, j)
			assert.Equal(t, test.want|nvme.DNR, p.Status)
			assert.Equal(t, test.result, p.Result)
			assert.Equal(t, before, d.Controllers())
		})
	}
	t.Run("limits", func(t *testing.T) {
		d := NewDirectory(limits, sub)
		a, b := controller(t, d), controller(t, d)
		assert.NotEqual(t, a.Controller.ID(), b.Controller.ID())
		_, p := admin().to(d)
		assert.Equal(t, nvme.ControllerBusy, p.Status, "it may try again")
		d.Leave(a)
		c := controller(t, d)
		assert.NotEqual(t, a.Controller.ID(), c.Controller.ID(), "ids aren't used again at once")
	})
	t.Run("queues", func(t *testing.T) {
		d := NewDirectory(limits, sub)
		a, p := admin().to(d)
		require.Equal(t, nvme.Success, p.Status)
		_, p = second(a.Controller.ID()).to(d)
		assert.Equal(t, nvme.CommandSequence|nvme.DNR, p.Status, "before the controller is enabled")
		enable(t, a.Controller)
		c := second(a.Controller.ID())
		c.Attributes = nvme.ConnectNoFlowControl
		j, p := c.to(d)
		require.Equal(t, nvme.Success, p.Status)
		assert.Equal(t, Joined{a.Controller, 1, 32, true}, *j)
		_, p = c.to(d)
		assert.Equal(t, nvme.CommandSequence|nvme.DNR, p.Status, "twice")
		d.Leave(j)
		_, p = c.to(d)
		assert.Equal(t, nvme.Success, p.Status)
		_, p = second(a.Controller.ID()).to(NewDirectory(limits, sub))
		assert.Equal(t, nvme.ConnectInvalidParam|nvme.DNR, p.Status)
	})
	t.Run("short data", func(t *testing.T) {
		cmd := admin().Connect.Command()
		_, p := NewDirectory(limits, sub).Connect(&cmd, make([]byte, 1023), 0, 32, start)
		assert.Equal(t, nvme.ConnectFormat|nvme.DNR, p.Status)
	})
}

// TestConnectFirst: until a queue is connected, there is only Connect.
func TestConnectFirst(t *testing.T) {
	d := NewDirectory(limits, sub)
	connect := admin().Connect.Command()
	connect.SGL = keyed(1024)
	assert.Equal(t, Plan{Action: Connect, Data: Data{Len: 1024, Addr: 0x1000, Key: 7}}, d.PlanConnect(&connect, 0))
	connect.SGL = nvme.Descriptor{Len: 1024, Type: nvme.SGLOffset}
	assert.Equal(t, Connect, d.PlanConnect(&connect, 1024).Action)
	assert.Equal(t, fail(nvme.SGLOffsetInvalid), d.PlanConnect(&connect, 1023))
	connect.SGL = keyed(1023)
	assert.Equal(t, fail(nvme.SGLLengthInvalid), d.PlanConnect(&connect, 0))
	connect.Flags = 0
	assert.Equal(t, fail(nvme.InvalidField), d.PlanConnect(&connect, 0))
	get := (&nvme.PropertyAccess{Wide: true}).Command(nvme.PropertyGet)
	assert.Equal(t, fail(nvme.CommandSequence), d.PlanConnect(&get, 0))
	assert.Equal(t, fail(nvme.CommandSequence), d.PlanConnect(io(nvme.Read, 1, 0, 1, keyed(512)), 0))
}

func TestProperties(t *testing.T) {
	d := NewDirectory(limits, sub)
	j, _ := admin().to(d)
	c := j.Controller
	caps := get(c, nvme.PropCAP, true)
	assert.Equal(t, uint16(127), nvme.Capabilities(caps.Result).MaxQueueEntries())
	assert.Equal(t, fail(nvme.InvalidField), get(c, nvme.PropCAP, false), "CAP has 8 bytes")
	assert.Equal(t, fail(nvme.InvalidField), get(c, nvme.PropVS, true), "the others have 4")
	assert.Equal(t, uint64(0x10300), get(c, nvme.PropVS, false).Result)
	assert.Equal(t, fail(nvme.InvalidField), get(c, nvme.PropCRTO, false))
	assert.Zero(t, get(c, nvme.PropCSTS, false).Result)

	enable(t, c)
	assert.Equal(t, uint64(0x460001), get(c, nvme.PropCC, false).Result)
	assert.Equal(t, uint64(1), get(c, nvme.PropCSTS, false).Result)
	set(c, nvme.CCEntrySizes)
	assert.Zero(t, get(c, nvme.PropCSTS, false).Result, "a reset: not ready, but it answers")
	assert.False(t, c.Ready())
	enable(t, c)
	set(c, nvme.CCEntrySizes|nvme.CCEnable|nvme.CCShutdownNormal)
	assert.True(t, nvme.ControllerStatus(get(c, nvme.PropCSTS, false).Result).ShutdownComplete())
	set(c, nvme.CCEntrySizes)
	assert.Zero(t, get(c, nvme.PropCSTS, false).Result)

	set(c, nvme.CCEnable) // entries of one byte
	assert.Equal(t, uint64(nvme.CSTSFatal), get(c, nvme.PropCSTS, false).Result)
	assert.False(t, c.Ready())

	csts := (&nvme.PropertyAccess{Property: nvme.PropCSTS}).Command(nvme.PropertySet)
	assert.Equal(t, fail(nvme.InvalidField), c.PlanFabrics(&csts, 0))
	vs := (&nvme.PropertyAccess{Property: nvme.PropVS}).Command(nvme.PropertyGet)
	assert.Equal(t, fail(nvme.InvalidOpcode), c.PlanFabrics(&vs, 1), "not on an I/O queue")
	vs.CDW10 = 2
	assert.Equal(t, fail(nvme.InvalidField), c.PlanFabrics(&vs, 0))
	vs = (&nvme.PropertyAccess{Property: nvme.PropVS}).Command(nvme.PropertyGet)
	vs.SGL = nvme.Descriptor{}
	assert.Equal(t, fail(nvme.SGLTypeInvalid), c.PlanFabrics(&vs, 0))
	again := admin().Connect.Command()
	assert.Equal(t, fail(nvme.CommandSequence), c.PlanFabrics(&again, 0))
	odd := nvme.Command{Opcode: nvme.Fabrics, Flags: nvme.FlagSGL, NSID: uint32(nvme.DisconnectType), SGL: keyed(0)}
	assert.Equal(t, fail(nvme.InvalidOpcode), c.PlanFabrics(&odd, 1))
}

func command(op nvme.Opcode, cdw10, cdw11 uint32, sgl nvme.Descriptor) *nvme.Command {
	return &nvme.Command{Opcode: op, Flags: nvme.FlagSGL, CDW10: cdw10, CDW11: cdw11, SGL: sgl}
}

func TestAdmin(t *testing.T) {
	d := NewDirectory(limits, sub)
	c := controller(t, d).Controller
	plan := func(op nvme.Opcode, cdw10, cdw11 uint32, sgl nvme.Descriptor) Plan {
		return c.PlanAdmin(command(op, cdw10, cdw11, sgl), start)
	}
	none := keyed(0)
	ok := func(result uint64) Plan { return Plan{Result: result, Data: Data{Addr: 0x1000, Key: 7}} }
	assert.Equal(t, ok(0x10001), plan(nvme.SetFeatures, 7, nvme.Queues(2), none))
	assert.Equal(t, ok(0x30003), plan(nvme.SetFeatures, 7, nvme.Queues(64), none), "no more than there are")
	assert.Equal(t, fail(nvme.InvalidField), plan(nvme.SetFeatures, 7, 0xFFFF, none))
	assert.Equal(t, ok(0x30003), plan(nvme.GetFeatures, 7, 0, none))
	assert.Equal(t, ok(5000), plan(nvme.GetFeatures, 0xF, 0, none))
	assert.Equal(t, ok(0), plan(nvme.SetFeatures, 0xF, 7000, none))
	assert.Equal(t, ok(7000), plan(nvme.GetFeatures, 0xF, 0, none))
	assert.Equal(t, ok(1), plan(nvme.GetFeatures, 6, 0, none), "one namespace has a volatile cache")
	assert.Equal(t, fail(nvme.FeatureNotChangeable), plan(nvme.SetFeatures, 6, 0, none))
	assert.Equal(t, ok(0), plan(nvme.SetFeatures, 0xB, 0x1F, none))
	assert.Equal(t, ok(0x1F), plan(nvme.GetFeatures, 0xB, 0, none))
	assert.Equal(t, fail(nvme.InvalidField), plan(nvme.GetFeatures, 0xB|2<<8, 0, none), "nothing is saved")
	assert.Equal(t, fail(nvme.FeatureNotSaveable), plan(nvme.SetFeatures, 0xB|nvme.FeatSave, 0, none))
	assert.Equal(t, fail(nvme.CommandSequence), plan(nvme.SetFeatures, 0x81, 0, none))
	assert.Equal(t, fail(nvme.InvalidField), plan(nvme.GetFeatures, 0x81, 0, keyed(16)), "no feature has data")
	assert.Equal(t, fail(nvme.InvalidField), plan(nvme.GetFeatures, 1, 0, none))
	assert.Equal(t, fail(nvme.InvalidField), plan(nvme.SetFeatures, 1, 0, none))
	assert.Equal(t, fail(nvme.InvalidOpcode), plan(nvme.FormatNVM, 0, 0, none))
	assert.Equal(t, fail(nvme.InvalidOpcode), plan(0xC1, 0, 0, none))
	assert.Equal(t, ok(0), plan(nvme.KeepAlive, 0, 0, none))
	assert.Equal(t, fail(nvme.SGLTypeInvalid), plan(nvme.KeepAlive, 0, 0, nvme.Descriptor{}))

	assert.Equal(t, Plan{Result: 1}, plan(nvme.Abort, 3|9<<16, 0, none), "an I/O command: it ends by itself")
	p := plan(nvme.Abort, 9<<16, 0, none)
	assert.Equal(t, AbortHeld, p.Action)
	assert.Equal(t, uint16(9), uint16(p.Result))

	for range MaxHeld {
		assert.Equal(t, Hold, plan(nvme.AsyncEvent, 0, 0, none).Action)
	}
	assert.Equal(t, fail(nvme.AsyncLimitExceeded), plan(nvme.AsyncEvent, 0, 0, none))
	c.Released()
	assert.Equal(t, Hold, plan(nvme.AsyncEvent, 0, 0, none).Action)

	set(c, nvme.CCEntrySizes)
	assert.Equal(t, fail(nvme.CommandSequence), plan(nvme.Identify, 1, 0, keyed(4096)))
	assert.Equal(t, ok(0), plan(nvme.KeepAlive, 0, 0, none), "the clock runs all the same")
}

func TestIdentify(t *testing.T) {
	d := NewDirectory(limits, sub)
	c := controller(t, d).Controller
	fill := func(cns nvme.CNS, nsid uint32) []byte {
		cmd := command(nvme.Identify, uint32(cns), 0, keyed(4096))
		cmd.NSID = nsid
		require.Equal(t, Plan{Action: Fill, Data: Data{Len: 4096, Addr: 0x1000, Key: 7}}, c.PlanAdmin(cmd, start))
		b := make([]byte, 4096)
		b[4095] = 0xEE
		c.Fill(cmd, b, &Environment{})
		return b
	}
	var id nvme.Controller
	require.NoError(t, id.Decode(fill(nvme.CNSController, 0)))
	assert.Equal(t, uint32(7), id.Namespaces)
	assert.Equal(t, uint8(1), id.VolatileWriteCache)
	assert.Equal(t, uint16(nvme.ONCSCompare|nvme.ONCSDSM|nvme.ONCSWriteZeroes), id.ONCS)
	assert.Equal(t, uint32(4+256), id.CommandCapsule)
	ids, err := nvme.DecodeActive(fill(nvme.CNSActiveList, 1))
	require.NoError(t, err)
	assert.Equal(t, []uint32{3, 7}, ids)
	var ns nvme.Namespace
	require.NoError(t, ns.Decode(fill(nvme.CNSNamespace, 7)))
	assert.True(t, ns.ReadOnly)
	assert.Equal(t, uint8(9), ns.BlockShift())
	list, err := nvme.DecodeDescriptors(fill(nvme.CNSDescriptors, 3))
	require.NoError(t, err)
	assert.Len(t, list, 1)

	assert.Equal(t, fail(nvme.SGLLengthInvalid), c.PlanAdmin(command(nvme.Identify, 1, 0, keyed(4095)), start))
	assert.Equal(t, fail(nvme.InvalidField), c.PlanAdmin(command(nvme.Identify, 1, 0, nvme.Descriptor{Len: 4096, Type: nvme.SGLOffset}), start))
	bad := command(nvme.Identify, uint32(nvme.CNSActiveList), 0, keyed(4096))
	bad.NSID = nvme.AllNamespaces
	assert.Equal(t, fail(nvme.InvalidNamespace), c.PlanAdmin(bad, start))
	bad.CDW10 = uint32(nvme.CNSDescriptors)
	assert.Equal(t, fail(nvme.InvalidNamespace), c.PlanAdmin(bad, start))
}

// TestLogPages: lengths have 35 bits, offsets lie within, and what there isn't is refused.
func TestLogPages(t *testing.T) {
	d := NewDirectory(limits, sub)
	c := controller(t, d).Controller
	log := func(page nvme.LogPage, length, offset uint64, sgl nvme.Descriptor) Plan {
		cmd := (&nvme.LogRequest{Page: page, Length: length, Offset: offset}).Command(nvme.AllNamespaces)
		cmd.SGL = sgl
		return c.PlanAdmin(&cmd, start)
	}
	for page, n := range map[nvme.LogPage]uint32{nvme.LogError: 64, nvme.LogHealth: 512, nvme.LogFirmware: 512, nvme.LogEffects: 4096} {
		assert.Equal(t, Fill, log(page, uint64(n), 0, keyed(n)).Action, page)
	}
	assert.Equal(t, Fill, log(nvme.LogError, 4096, 0, keyed(4096)).Action, "longer than the page: zeros behind it")
	assert.Equal(t, fail(nvme.InvalidField), log(nvme.LogChangedNS, 4096, 0, keyed(4096)))
	assert.Equal(t, fail(nvme.InvalidField), log(nvme.LogDiscovery, 1024, 0, keyed(1024)))
	assert.Equal(t, fail(nvme.InvalidField), log(0, 1024, 0, keyed(1024)))
	assert.Equal(t, fail(nvme.SGLLengthInvalid), log(nvme.LogHealth, 1<<34, 0, keyed(0)), "0xFFFFFFFF dwords and one are not none")
	assert.Equal(t, fail(nvme.SGLLengthInvalid), log(nvme.LogHealth, 1<<18+512, 0, keyed(512)), "the upper half of the length counts")
	assert.Equal(t, fail(nvme.InvalidField), log(nvme.LogHealth, 128<<10, 0, keyed(128<<10)), "above what may be transferred")
	assert.Equal(t, fail(nvme.InvalidField), log(nvme.LogHealth, 4, 3, keyed(4)))
	assert.Equal(t, fail(nvme.InvalidField), log(nvme.LogHealth, 4, 516, keyed(4)))
	cmd := (&nvme.LogRequest{Page: nvme.LogHealth, Length: 512}).Command(2)
	cmd.SGL = keyed(512)
	assert.Equal(t, fail(nvme.InvalidNamespace), c.PlanAdmin(&cmd, start))

	b := make([]byte, 512)
	cmd = (&nvme.LogRequest{Page: nvme.LogHealth, Length: 512}).Command(nvme.AllNamespaces)
	c.Fill(&cmd, b, &Environment{Usage: Usage{Reads: 3, BytesRead: 512_001}})
	var h nvme.Health
	require.NoError(t, h.Decode(b))
	assert.Equal(t, uint64(3), h.Reads)
	assert.Equal(t, uint64(2), h.UnitsRead, "rounded up")
	part := make([]byte, 8)
	cmd = (&nvme.LogRequest{Page: nvme.LogHealth, Length: 8, Offset: 64}).Command(nvme.AllNamespaces)
	c.Fill(&cmd, part, &Environment{Usage: Usage{Reads: 3}})
	assert.Equal(t, []byte{3, 0, 0, 0, 0, 0, 0, 0}, part)
	part[0] = 0xEE
	cmd = (&nvme.LogRequest{Page: nvme.LogHealth, Length: 8, Offset: 512}).Command(nvme.AllNamespaces)
	c.Fill(&cmd, part, &Environment{})
	assert.Equal(t, make([]byte, 8), part)
}

// TestDiscovery: a host is told of what it may use, and nothing else.
func TestDiscovery(t *testing.T) {
	d := NewDirectory(limits, sub, hidden)
	for host, want := range map[string][]string{hostName: {disk}, hidden.Hosts[0]: {disk, secret}} {
		connect := admin()
		connect.Subsystem, connect.Host, connect.KeepAlive = nvme.DiscoveryNQN, host, 0
		j, p := connect.to(d)
		require.Equal(t, nvme.Success, p.Status)
		c := j.Controller
		enable(t, c)
		cmd := command(nvme.Identify, uint32(nvme.CNSController), 0, keyed(4096))
		require.Equal(t, Fill, c.PlanAdmin(cmd, start).Action)
		b := make([]byte, 4096)
		c.Fill(cmd, b, &Environment{})
		var id nvme.Controller
		require.NoError(t, id.Decode(b))
		assert.Equal(t, nvme.DiscoveryController, id.Type)
		assert.Equal(t, nvme.DiscoveryNQN, id.Subsystem)

		get := (&nvme.LogRequest{Page: nvme.LogDiscovery, Length: 4096}).Command(0)
		get.SGL = keyed(4096)
		require.Equal(t, Fill, c.PlanAdmin(&get, start).Action)
		c.Fill(&get, b, &Environment{Entry: nvme.DiscoveryEntry{Address: "192.0.2.1", Service: "4420"}})
		var h nvme.DiscoveryHeader
		require.NoError(t, h.Decode(b))
		require.Equal(t, uint64(len(want)), h.Records)
		for i, nqn := range want {
			var e nvme.DiscoveryEntry
			require.NoError(t, e.Decode(b[1024*(i+1):]))
			assert.Equal(t, nqn, e.NQN)
			assert.Equal(t, "192.0.2.1", e.Address)
			assert.Equal(t, nvme.EntryNVM, e.Subsystem)
			assert.Equal(t, nvme.ManagementRDMACM, e.Management)
		}
		assert.Equal(t, fail(nvme.InvalidField), c.PlanAdmin(command(nvme.Identify, uint32(nvme.CNSActiveList), 0, keyed(4096)), start))
		assert.Equal(t, fail(nvme.InvalidOpcode), c.PlanAdmin(command(nvme.Abort, 0, 0, keyed(0)), start))
		assert.Equal(t, fail(nvme.InvalidField), c.PlanAdmin(command(nvme.GetFeatures, 6, 0, keyed(0)), start))
		_, p = second(c.ID()).to(d)
		assert.Equal(t, nvme.ConnectInvalidParam|nvme.DNR, p.Status, "no I/O queues")
		d.Leave(j)
	}
}

func TestKeepAlive(t *testing.T) {
	d := NewDirectory(limits, sub)
	c := controller(t, d).Controller // 5 s
	assert.Empty(t, d.Expire(start.Add(5*time.Second)))
	c.PlanAdmin(command(nvme.KeepAlive, 0, 0, keyed(0)), start.Add(4*time.Second))
	assert.Empty(t, d.Expire(start.Add(9*time.Second)))
	assert.Equal(t, []*Controller{c}, d.Expire(start.Add(9*time.Second+1)))
	assert.False(t, c.Ready())
	assert.Equal(t, nvme.CSTSFatal, nvme.ControllerStatus(get(c, nvme.PropCSTS, false).Result)&nvme.CSTSFatal)
	assert.Empty(t, d.Expire(start.Add(time.Hour)), "once")

	quiet := admin()
	quiet.KeepAlive = 0
	_, p := quiet.to(d)
	require.Equal(t, nvme.Success, p.Status)
	assert.Empty(t, d.Expire(start.Add(time.Hour)), "no timeout")
}

// FuzzAdmin: whatever comes on an admin queue, in whatever order, gets a plan that holds.
func FuzzAdmin(f *testing.F) {
	b := make([]byte, nvme.CommandLen)
	command(nvme.Identify, 1, 0, keyed(4096)).Encode(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, stream []byte) {
		d := NewDirectory(limits, sub)
		c := controller(t, d).Controller
		for len(stream) >= nvme.CommandLen {
			var cmd nvme.Command
			require.NoError(t, cmd.Decode(stream))
			stream = stream[nvme.CommandLen:]
			if cmd.Opcode == nvme.Fabrics {
				checkPlan(t, c.PlanFabrics(&cmd, 0), 0)
				continue
			}
			p := c.PlanAdmin(&cmd, start)
			checkPlan(t, p, 0)
			require.LessOrEqual(t, int(p.Data.Len), limits.MaxAdmin)
			if p.Action == Fill {
				c.Fill(&cmd, make([]byte, p.Data.Len), &Environment{})
			}
		}
	})
}

func TestFind(t *testing.T) {
	for id, want := range map[uint32]int{0: -1, 1: 0, 2: -1, 3: 1, 7: 2, 8: -1, nvme.AllNamespaces: -1} {
		assert.Equal(t, want, sub.Find(id), id)
	}
}

// TestNoAllocations: planning I/O costs none.
func TestNoAllocations(t *testing.T) {
	cmd := io(nvme.Read, 3, 8, 2, keyed(8192))
	assert.Zero(t, testing.AllocsPerRun(100, func() { PlanIO(sub, &limits, cmd, 0) }))
}

// A reset and a shutdown are not over as long as commands are carried out.
func TestCSTSWhileCommandsAreExecuted(t *testing.T) {
	j, _ := admin().to(NewDirectory(limits, sub))
	c := j.Controller
	enable(t, c)
	c.Executing(true)
	require.Equal(t, uint64(nvme.CSTSReady), get(c, nvme.PropCSTS, false).Result)
	set(c, nvme.CCEntrySizes|nvme.CCEnable|nvme.CCShutdownNormal)
	require.Equal(t, uint64(nvme.CSTSReady|nvme.CSTSShutdownOccuring), get(c, nvme.PropCSTS, false).Result)
	set(c, nvme.CCEntrySizes)
	require.False(t, c.Ready(), "no command is begun any more")
	require.Equal(t, uint64(nvme.CSTSReady), get(c, nvme.PropCSTS, false).Result)
	c.Executing(false)
	require.Zero(t, get(c, nvme.PropCSTS, false).Result)
}
