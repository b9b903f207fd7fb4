package core

import (
	"testing"
	"time"

	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of this file are rules that Linux's host doesn't depend on, and others may.

// TestDiscoveryEntrySizes: a discovery controller has no I/O queues, so hosts may leave the
// sizes of their entries zero (NVMe-oF 1.1, 5: reserved there).
func TestDiscoveryEntrySizes(t *testing.T) {
	connect := admin()
	connect.Subsystem, connect.KeepAlive = nvme.DiscoveryNQN, 0
	j, p := connect.to(NewDirectory(limits, sub))
	require.Equal(t, nvme.Success, p.Status)
	require.Equal(t, nvme.Success, set(j.Controller, nvme.CCEnable).Status)
	assert.Equal(t, uint64(nvme.CSTSReady), get(j.Controller, nvme.PropCSTS, false).Result)
}

// TestResetClearsFatal: CC.EN=0 is the way out of a configuration that didn't work.
func TestResetClearsFatal(t *testing.T) {
	j, _ := admin().to(NewDirectory(limits, sub))
	c := j.Controller
	set(c, nvme.CCEnable) // entries of one byte
	require.Equal(t, uint64(nvme.CSTSFatal), get(c, nvme.PropCSTS, false).Result)
	set(c, nvme.CCEntrySizes)
	assert.Zero(t, get(c, nvme.PropCSTS, false).Result)
	enable(t, c)
}

// TestIdentifyInactive: a namespace id that could be one and isn't identifies as zeros; one
// that can't be is refused (Base 1.3, 5.15.1).
func TestIdentifyInactive(t *testing.T) {
	c := controller(t, NewDirectory(limits, sub)).Controller // 1, 3 and 7
	for id, want := range map[uint32]Plan{
		2: {Action: Fill, Data: Data{Len: 4096, Addr: 0x1000, Key: 7}},
		6: {Action: Fill, Data: Data{Len: 4096, Addr: 0x1000, Key: 7}},
		0: fail(nvme.InvalidNamespace), 8: fail(nvme.InvalidNamespace), nvme.AllNamespaces: fail(nvme.InvalidNamespace),
	} {
		cmd := command(nvme.Identify, uint32(nvme.CNSNamespace), 0, keyed(4096))
		cmd.NSID = id
		p := c.PlanAdmin(cmd, start)
		assert.Equal(t, want, p, id)
		if p.Action == Fill {
			b := make([]byte, 4096)
			b[9] = 0xEE
			c.Fill(cmd, b, &Environment{})
			assert.Equal(t, make([]byte, 4096), b, id)
		}
	}
}

// TestKeepAliveGranularity: a timeout is rounded up to what KAS says, never cut off before
// (Base 1.3, 5.21.1.15).
func TestKeepAliveGranularity(t *testing.T) {
	d := NewDirectory(limits, sub)
	short := admin()
	short.KeepAlive = 1
	j, p := short.to(d)
	require.Equal(t, nvme.Success, p.Status)
	enable(t, j.Controller)
	granularity := time.Duration(j.Controller.identity().KeepAlive) * 100 * time.Millisecond
	require.Positive(t, granularity)
	assert.Empty(t, d.Expire(start.Add(granularity)))
	set := command(nvme.SetFeatures, uint32(nvme.FeatKeepAlive), uint32(granularity/time.Millisecond)+1, keyed(0))
	require.Equal(t, nvme.Success, j.Controller.PlanAdmin(set, start).Status)
	assert.Empty(t, d.Expire(start.Add(2*granularity)))
	assert.NotEmpty(t, d.Expire(start.Add(2*granularity+1)))
}
