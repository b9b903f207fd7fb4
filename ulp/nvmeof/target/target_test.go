package target

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/nvme"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestData: random reads, writes, compares, zeroes and discards by several queues of two
// hosts, each to its own part of the namespaces, against a model.
func TestData(t *testing.T) {
	for _, profile := range append(profiles, realDevices()...) {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{})
			a, b := r.host().session(2, dialConfig{}), r.host().session(1, dialConfig{})
			var wg sync.WaitGroup
			for i, l := range []*line{a.io[0], a.io[1], b.io[0]} {
				wg.Go(func() { exercise(t, l, uint64(i)*2048, 2048, 1, 9, 60) })
				wg.Go(func() { exercise(t, l, uint64(i)*256, 256, 2, 12, 60) })
			}
			wg.Wait()
			s := r.Stats()
			assert.Len(t, s.Namespaces, 2)
			assert.Positive(t, s.Namespaces[0].Reads)
			assert.Positive(t, s.Namespaces[1].BytesWritten)
			assert.Equal(t, 2, s.Controllers)
			assert.Equal(t, 5, s.Queues)
			t.Log("invalidations:", s.Invalidations)
		})
	}
}

// exercise does random I/O to n blocks from base on, and compares with a model.
func exercise(t *testing.T, l *line, base, n uint64, nsid uint32, shift, rounds int) {
	rng := rand.New(rand.NewPCG(base, uint64(nsid)))
	model := make([]byte, n<<shift)
	check := func(cmd nvme.Command, dir nvme.Direction, buf []byte, want nvme.Status) bool {
		cmd.NSID = nsid
		var e nvme.Completion
		var err error
		if dir == nvme.HostToTarget && len(buf) <= 4096 && rng.IntN(2) == 0 {
			e, err = l.doInline(cmd, buf)
		} else {
			e, err = l.do(cmd, dir, buf)
		}
		return assert.NoError(t, err) && assert.Equal(t, want, e.Status.Code())
	}
	if !check(blocks(nvme.WriteZeroes, base, uint32(n)), nvme.NoData, nil, nvme.Success) {
		return
	}
	for range rounds {
		lba := rng.Uint64N(n)
		k := 1 + rng.Uint64N(min(n-lba, 65536>>shift))
		m := model[lba<<shift : (lba+k)<<shift]
		buf := make([]byte, len(m))
		ok := true
		switch rng.IntN(7) {
		case 0, 1:
			for i := range buf {
				buf[i] = byte(rng.Uint32())
			}
			copy(m, buf)
			cmd := blocks(nvme.Write, base+lba, uint32(k))
			if rng.IntN(4) == 0 {
				cmd.CDW12 |= nvme.FUA
			}
			ok = check(cmd, nvme.HostToTarget, buf, nvme.Success)
		case 2, 3:
			ok = check(blocks(nvme.Read, base+lba, uint32(k)), nvme.TargetToHost, buf, nvme.Success) && assert.True(t, bytes.Equal(m, buf))
		case 4:
			copy(buf, m)
			ok = check(blocks(nvme.Compare, base+lba, uint32(k)), nvme.HostToTarget, buf, nvme.Success)
			buf[rng.IntN(len(buf))] ^= 1
			ok = ok && check(blocks(nvme.Compare, base+lba, uint32(k)), nvme.HostToTarget, buf, nvme.CompareFailure)
		case 5:
			clear(m)
			ok = check(blocks(nvme.WriteZeroes, base+lba, uint32(k)), nvme.NoData, nil, nvme.Success)
		case 6:
			clear(m) // memory reads zeros after a discard, and says so
			ranges := make([]byte, 2*nvme.RangeLen)
			(&nvme.Range{LBA: base + lba, Blocks: uint32(k)}).Encode(ranges)
			(&nvme.Range{LBA: base + lba}).Encode(ranges[nvme.RangeLen:]) // an empty one
			ok = check(nvme.Command{Opcode: nvme.DatasetManagement, CDW10: 1, CDW11: nvme.DSMDeallocate}, nvme.HostToTarget, ranges, nvme.Success)
			ok = ok && check(nvme.Command{Opcode: nvme.Flush}, nvme.NoData, nil, nvme.Success)
		}
		if !ok {
			return
		}
	}
}

// TestLinuxSequence is what Linux's host does from nvme connect to nvme disconnect.
func TestLinuxSequence(t *testing.T) {
	for _, profile := range append(profiles, realDevices()...) {
		t.Run(profile, func(t *testing.T) {
			r := newRig(t, profile, Config{})
			s := r.host().session(2, dialConfig{})
			assert.Equal(t, uint64(nvme.Version13), s.get(nvme.PropVS, false))

			b, status := s.identify(nvme.CNSController, 0)
			require.Equal(t, nvme.Success, status)
			var id nvme.Controller
			require.NoError(t, id.Decode(b))
			assert.Equal(t, s.cntlid, id.ControllerID)
			assert.Equal(t, testNQN, id.Subsystem)
			assert.Equal(t, 4096, id.InCapsule())
			assert.Equal(t, uint32(1), id.ResponseCapsule)
			assert.Equal(t, uint8(8), id.MDTS)
			assert.NotZero(t, id.KeepAlive)
			assert.Equal(t, uint32(nvme.SGLSSupported|nvme.SGLSKeyed|nvme.SGLSOffset), id.SGLS)
			assert.Zero(t, id.InCapsuleOffset)
			assert.Zero(t, id.OAES)
			assert.Equal(t, uint32(2), id.Namespaces)

			b, status = s.identify(nvme.CNSActiveList, 0)
			require.Equal(t, nvme.Success, status)
			ids, err := nvme.DecodeActive(b)
			require.NoError(t, err)
			assert.Equal(t, []uint32{1, 2}, ids)
			b, status = s.identify(nvme.CNSActiveList, 1)
			require.Equal(t, nvme.Success, status)
			ids, err = nvme.DecodeActive(b)
			require.NoError(t, err)
			assert.Equal(t, []uint32{2}, ids)

			for nsid, shift := range map[uint32]uint8{1: 9, 2: 12} {
				b, status = s.identify(nvme.CNSDescriptors, nsid)
				require.Equal(t, nvme.Success, status)
				list, err := nvme.DecodeDescriptors(b)
				require.NoError(t, err)
				require.Len(t, list, 1)
				assert.Equal(t, nvme.UUIDKind, list[0].Kind)
				b, status = s.identify(nvme.CNSNamespace, nsid)
				require.Equal(t, nvme.Success, status)
				var ns nvme.Namespace
				require.NoError(t, ns.Decode(b))
				assert.Equal(t, shift, ns.BlockShift())
				assert.Equal(t, uint64(4<<20)>>shift, ns.Size)
			}
			for _, cns := range []nvme.CNS{nvme.CNSCSIController, nvme.CNSControllerList, 0x77} {
				_, status = s.identify(cns, 0)
				assert.Equal(t, nvme.InvalidField|nvme.DNR, status)
			}
			_, status = s.identify(nvme.CNSNamespace, 3)
			assert.Equal(t, nvme.InvalidNamespace|nvme.DNR, status)

			s.must(s.admin, nvme.Command{Opcode: nvme.KeepAlive}, nvme.NoData, nil)
			log := nvme.LogRequest{Page: nvme.LogHealth, Length: nvme.HealthLen}
			page := make([]byte, nvme.HealthLen)
			s.must(s.io[0], blocks(nvme.Read, 0, 8), nvme.TargetToHost, make([]byte, 4096))
			s.must(s.admin, log.Command(nvme.AllNamespaces), nvme.TargetToHost, page)
			var health nvme.Health
			require.NoError(t, health.Decode(page))
			assert.Equal(t, uint64(1), health.Reads)
			assert.Equal(t, uint64(1), health.UnitsRead)

			s.set(nvme.CCEntrySizes | nvme.CCEnable | nvme.CCShutdownNormal)
			assert.True(t, nvme.ControllerStatus(s.get(nvme.PropCSTS, false)).ShutdownComplete())
		})
	}
}

// TestInCapsuleOffset: data may begin anywhere in the capsule; a backend gets it aligned.
func TestInCapsuleOffset(t *testing.T) {
	r := newRig(t, "rxe", Config{})
	s := r.host().session(1, dialConfig{})
	l := s.io[0]
	for _, at := range []int{0, 1, 100, 512, 4096 - 512} {
		want := bytes.Repeat([]byte{byte(at), 0xA5}, 256)
		c := <-l.free
		copy(c.capsule[nvme.CommandLen+at:], want)
		cmd := blocks(nvme.Write, 5, 1)
		cmd.Flags, cmd.SGL = nvme.FlagSGL, nvme.Descriptor{Addr: uint64(at), Len: 512, Type: nvme.SGLOffset}
		require.NoError(t, c.start(&cmd, at+512))
		e, err := c.wait()
		require.NoError(t, err)
		require.Equal(t, nvme.Success, e.Status)
		l.free <- c
		got := make([]byte, 512)
		s.must(l, blocks(nvme.Read, 5, 1), nvme.TargetToHost, got)
		assert.Equal(t, want, got, at)
	}
}

// failing is a backend whose requests fail.
type failing struct {
	backend.Backend
	err error
}

func (f *failing) Submit(r *backend.Request) { r.Done(r, f.err) }

// TestBackendFailures: what a backend says, a host hears; and its connection stays.
func TestBackendFailures(t *testing.T) {
	f := &failing{Backend: memory512(t, 1<<20)}
	r := newRig(t, "siw", Config{Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1, Backend: f}}}}})
	l := r.host().session(1, dialConfig{}).io[0]
	for err, want := range map[error]nvme.Status{
		backend.ErrRead:     nvme.UnrecoveredRead,
		backend.ErrWrite:    nvme.WriteFault,
		backend.ErrFull:     nvme.CapacityExceeded | nvme.DNR,
		backend.ErrRange:    nvme.LBAOutOfRange | nvme.DNR,
		backend.ErrReadOnly: nvme.NamespaceProtected | nvme.DNR,
		backend.ErrClosed:   nvme.InternalError,
	} {
		f.err = fmt.Errorf("wrapped: %w", err)
		for _, test := range []struct {
			cmd nvme.Command
			dir nvme.Direction
			buf []byte
		}{
			{blocks(nvme.Read, 0, 1), nvme.TargetToHost, bytes.Repeat([]byte{0xEE}, 512)},
			{blocks(nvme.Write, 0, 1), nvme.HostToTarget, make([]byte, 512)},
			{blocks(nvme.Compare, 0, 1), nvme.HostToTarget, make([]byte, 512)},
			{nvme.Command{Opcode: nvme.Flush, NSID: 1}, nvme.NoData, nil},
		} {
			e, err := l.do(test.cmd, test.dir, test.buf)
			require.NoError(t, err)
			assert.Equal(t, want, e.Status)
		}
	}
	assert.Equal(t, uint64(6*4), r.Stats().Namespaces[0].Failures)
}

// TestConfig: what can't be served is refused, in words.
func TestConfig(t *testing.T) {
	b := memory512(t, 1<<20)
	one := []Namespace{{ID: 1, Backend: b}}
	for want, cfg := range map[string]Config{
		"queue depth 1":          {QueueDepth: 1},
		"5000 controllers":       {Controllers: -5000},
		"1 connections":          {Connections: 1},
		"power of two":           {MaxTransfer: 12 << 10},
		"transfers of 4096":      {MaxTransfer: 4096}, // MDTS 0 would say: any
		"handshake timeout":      {HandshakeTimeout: -1},
		"no NQN":                 {Subsystems: []Subsystem{{NQN: "disk", Namespaces: one}}},
		"the discovery":          {Subsystems: []Subsystem{{NQN: nvme.DiscoveryNQN}}},
		"two subsystems":         {Subsystems: []Subsystem{{NQN: testNQN}, {NQN: testNQN}}},
		"two namespaces 1":       {Subsystems: []Subsystem{{NQN: testNQN, Namespaces: append(one, one...)}}},
		"no subsystems":          {},
		"ids go to 4294967293":   {Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 4294967294, Backend: b}}}}},
		"id 0: ids go from 1":    {Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{Backend: b}}}}},
		"has no backend":         {Subsystems: []Subsystem{{NQN: testNQN, Namespaces: []Namespace{{ID: 1}}}}},
		"serial number":          {Subsystems: []Subsystem{{NQN: testNQN, Serial: "a serial number of more than 20"}}},
		"host: \"me\" is no NQN": {Subsystems: []Subsystem{{NQN: testNQN, Hosts: []string{"me"}}}},
	} {
		_, err := New(cfg)
		assert.ErrorContains(t, err, want)
	}
}
