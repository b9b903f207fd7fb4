package rw_test

import (
	"math"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// planCase is one line of the golden files: an operation on a local list, towards
// remote ranges, under a policy and in a pool of some sizes. The same table is
// what the rules are checked on.
type planCase struct {
	op     string
	shape  string
	remote string
	under  string
}

// The operations.
const (
	opRead   = "READ"
	opWrite  = "WRITE"
	opSource = "expose-read"
	opSink   = "expose-write"
)

// Most of what depends on the device depends on these shapes.
var mainShapes = []string{"one", "limit", "limit+1", "256", "64KiB", "gaps", "512B"}

// planCases are the lines of each golden file.
func planCases() (cases []planCase) {
	add := func(ops []string, shapes, remotes, unders []string) {
		for _, under := range unders {
			for _, op := range ops {
				for _, shape := range shapes {
					for _, remote := range remotes {
						cases = append(cases, planCase{op, shape, remote, under})
					}
				}
			}
		}
	}
	l := func(s ...string) []string { return s }
	transfers, def := l(opRead, opWrite), l("default")
	add(transfers, mainShapes, l("one", "two", "17"), def)
	add(transfers, l("1024", "adjacent", "two-regions", "holes", "part", "message+1", "nothing"), l("one"), def)
	// What is refused, or almost.
	add(transfers, l("empty", "overflow", "outside", "offset-past", "length-past", "read-only"), l("one"), def)
	add(transfers, l("256"), l("short", "none", "long", "wraps"), def)
	// Exposures.
	add(l(opSource), l("one", "256", "1024", "64KiB", "gaps", "512B", "adjacent", "two-regions", "message+1", "nothing", "empty", "overflow", "read-only"), l("-"), def)
	add(l(opSink), l("one", "256", "gaps", "read-only"), l("-"), def)
	// Policies, and pools.
	add(l(opRead), l("one", "gaps", "64KiB", "1024"), l("two"), l("staging"))
	add(l(opRead), l("one", "limit+1", "read-only"), l("two"), l("persistent"))
	add(l(opRead), l("one", "limit+1", "256"), l("two"), l("direct", "direct-isolated"))
	add(l(opRead, opSource), l("one"), l("one"), l("isolated"))
	add(transfers, l("one", "256", "gaps", "512B"), l("two"), l("forced"))
	add(l(opRead), l("8", "9", "256", "512B"), l("one"), l("above-8"))
	add(l(opRead), l("256"), l("one"), l("never-register", "pool-empty", "no-pool", "second-use", "short-queue"))
	add(l(opWrite), l("256"), l("one"), l("forced-pool-empty", "forced-second-use", "short-queue"))
	add(l(opSource), l("one"), l("-"), l("pool-empty", "no-pool"))
	add(l(opRead), l("1024"), l("one"), l("fed"))
	return cases
}

// steppedFor is what a case's word for policy and pool means.
func steppedFor(profile sim.Profile, under string) steppedConfig {
	cfg := steppedConfig{
		profile: profile, seed: 1, idle: true, memory: 9 << 20,
		pool:   mrpool.Config{SyncMRs: 256},
		queues: transport.QueueCaps{MaxSendWR: 1000, MaxSendSGE: profile.Caps.MaxSendSGE},
	}
	if profile.Caps.FastReg.MaxPages > 0 {
		cfg.pool.FastMRs = 32
	}
	if profile.Caps.Windows != transport.NoWindows {
		cfg.pool.Windows = 128
	}
	switch under {
	case "staging":
		cfg.policy.Sink = rw.SinkStaging
		cfg.slots, cfg.slot = 64, 16<<10
		cfg.pool.SyncMRs++
	case "persistent":
		cfg.policy.Sink = rw.SinkPersistent
		cfg.sinks = true
		cfg.pool.SyncMRs++
	case "direct":
		cfg.policy.Sink = rw.SinkDirect
	case "direct-isolated":
		cfg.policy.Sink = rw.SinkDirect
		cfg.isolated = true
	case "isolated":
		cfg.isolated = true
	case "forced", "forced-pool-empty", "forced-second-use":
		cfg.policy.ForceRegistration = true
	case "above-8":
		cfg.policy.RegisterAbove = 8
	case "never-register":
		cfg.policy.RegisterAbove = -1
	case "no-pool":
		cfg.pool = mrpool.Config{}
	case "short-queue":
		cfg.queues.MaxSendWR = 4
	case "fed":
		cfg.policy.FeedReads = true
		cfg.depth = 8
	}
	return cfg
}

// memories are what shapes are cut from.
type memories struct {
	caps     *transport.Caps
	sendSGE  int
	region   *transport.Region
	readOnly *transport.Region
	vast     *transport.Region // larger than any message
}

// list makes a shape: pieces, and what part of them is meant (zero: all).
func (m *memories) list(op, shape string) (list []transport.Piece, offset, length uint64) {
	pages := func(n int) []transport.Piece { return apartBy(m.region, n, 4096, 8192, 0) }
	limit := m.sendSGE
	if op == opRead {
		limit = m.caps.ReadSGEs(m.sendSGE)
	}
	switch shape {
	case "one":
		return pages(1), 0, 0
	case "limit":
		return pages(limit), 0, 0
	case "limit+1":
		return pages(limit + 1), 0, 0
	case "8":
		return pages(8), 0, 0
	case "9":
		return pages(9), 0, 0
	case "256":
		return pages(256), 0, 0
	case "1024":
		return pages(1024), 0, 0
	case "64KiB":
		return apartBy(m.region, 16, 64<<10, 128<<10, 0), 0, 0
	case "gaps": // unaligned, and nothing ends where a page does
		return apartBy(m.region, 12, 1000, 4096, 100), 0, 0
	case "512B":
		return apartBy(m.region, 40, 512, 1024, 0), 0, 0
	case "adjacent":
		return apartBy(m.region, 64, 4096, 4096, 0), 0, 0
	case "two-regions": // to and fro
		for i := range uint64(4) {
			list = append(list, m.region.Piece(i<<13, 4096), m.vast.Piece(i<<13, 4096))
		}
		return list, 0, 0
	case "holes": // empty pieces between others
		for _, p := range pages(4) {
			list = append(list, m.region.Piece(0, 0), p, transport.Piece{})
		}
		return list, 0, 0
	case "part":
		return pages(16), 5000, 40000
	case "message+1":
		return []transport.Piece{m.vast.Piece(0, uint32(m.caps.MaxMsg+1))}, 0, 0
	case "nothing":
		return []transport.Piece{m.region.Piece(0, 0), m.region.Piece(4096, 0)}, 0, 0
	case "empty":
		return nil, 0, 0
	case "overflow":
		return []transport.Piece{{Addr: math.MaxUint64 - 4095, Len: 8192, Region: m.region.ID()}}, 0, 0
	case "outside":
		return []transport.Piece{m.region.Piece(m.region.Len()-4095, 4096)}, 0, 0
	case "offset-past":
		return pages(4), math.MaxUint64, 1
	case "length-past":
		return pages(4), 1, math.MaxUint64
	case "read-only":
		return []transport.Piece{m.readOnly.Piece(0, 4096)}, 0, 0
	}
	panic("no shape " + shape)
}

// apartBy makes n pieces of one size, each so far from the one before.
func apartBy(r *transport.Region, n int, size uint32, stride, offset uint64) (list []transport.Piece) {
	for i := range uint64(n) {
		list = append(list, r.Piece(offset+i*stride, size))
	}
	return list
}

// remotesFor makes the peer's ranges for n bytes.
func remotesFor(shape string, n uint64) (list []transport.Remote) {
	const key = transport.RKey(0x0bbb00)
	cutAt := func(sizes ...uint64) []transport.Remote {
		for i, size := range sizes {
			list = append(list, transport.Remote{Addr: 0x7000_0000_0000 + uint64(i)<<33 + uint64(i), Len: uint32(size), Key: key + transport.RKey(i)})
		}
		return list
	}
	switch shape {
	case "one", "-":
		return cutAt(n)
	case "two": // uneven, with nothing between them
		return cutAt(n/3+1, 0, n-n/3-1)
	case "17":
		sizes := make([]uint64, 17)
		for i := range uint64(16) {
			sizes[i] = n/17 - 8 + i
		}
		var sum uint64
		for _, size := range sizes {
			sum += size
		}
		sizes[16] = n - sum
		return cutAt(sizes...)
	case "short":
		return cutAt(n/2, n-n/2-1)
	case "long":
		return cutAt(n+5000, 1<<20)
	case "none":
		return nil
	case "wraps":
		return []transport.Remote{{Addr: math.MaxUint64 - n/2, Len: uint32(n), Key: key}}
	}
	panic("no remote " + shape)
}
