package rw_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"rdmarw/transport"
	"rdmarw/transport/sim"
)

// trouble is one thing that goes wrong, at a time that was drawn.
type trouble struct {
	kind  troubleKind
	side  int // that devices and connections end on
	after int // how many of the kind's occasions go well first
	times int // how many then don't; for what can fail again
	w     *workload
}

type troubleKind int

const (
	requestFails troubleKind = iota
	postRefused
	allocationFails
	deviceDies
	deviceRemoved
	connectionDies
	disconnected
	numTroubles
)

func (k troubleKind) String() string {
	return [...]string{"request fails", "post refused", "allocation fails", "device dies", "device removed", "connection dies", "disconnected"}[k]
}

// now reports whether it is time.
func (x *trouble) now() bool {
	if x.w == nil { // still being set up
		return false
	}
	x.after--
	if x.after >= 0 || x.after < -x.times {
		return false
	}
	x.w.broken = true
	return true
}

func drawTrouble(c choose) *trouble {
	x := &trouble{kind: troubleKind(c(int(numTroubles), "trouble")), side: c(2, "side of the trouble"), times: 1}
	x.after = c(40, "after")
	if x.kind == allocationFails {
		x.times = 1 + c(4, "times")
		x.after /= 4
	}
	return x
}

// plan enters the trouble in a configuration.
func (x *trouble) plan(cfg *steppedConfig) {
	switch x.kind {
	case requestFails:
		cfg.faults.Run = func(*sim.QP, uint64, *transport.WR) transport.Status {
			if x.now() {
				return transport.StatusGeneral
			}
			return transport.StatusOK
		}
	case postRefused:
		cfg.faults.Post = func(*sim.QP, uint64, *transport.WR) error {
			if x.now() {
				return transport.ErrNoMemory
			}
			return nil
		}
	case allocationFails:
		cfg.faults.Allocate = func(*sim.Device, sim.Allocation) error {
			if x.now() {
				return transport.ErrNoMemory
			}
			return nil
		}
	}
}

// strike is called after each step.
func (x *trouble) strike() {
	if x.kind < deviceDies || !x.now() {
		return
	}
	x.w.dead = true
	e := x.w.ends[x.side]
	switch conn := e.ep.Conn().(*witnessConn); x.kind {
	case deviceDies:
		e.sim.Kill()
	case deviceRemoved:
		e.sim.Remove()
	case connectionDies:
		conn.Conn.(*sim.Conn).Kill()
	case disconnected:
		_ = conn.Disconnect() // as a program would that is about to exit
	}
}

// Whatever goes wrong: every context comes back once, memory that isn't the target
// of anything stays as it is, what is said to have been read was, and credits, pool
// and keys are as they were, at once or, if the endpoint failed, when it is closed.
func TestRandomTroubleLosesNothing(t *testing.T) {
	struck := make(map[troubleKind]int)
	for _, profiles := range profileGroups() {
		t.Run(profiles[0].Name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := drawn(t)
				cfg := randomConfig(c, profiles[c(len(profiles), "profile")])
				x := drawTrouble(c)
				x.plan(&cfg)
				w := newWorkload(t, c, cfg)
				x.w, w.tick = w, x.strike
				for range 1 + c(3, "rounds") {
					if w.failed() || w.dead {
						break
					}
					w.round()
				}
				w.requireRules()
				x.w, w.tick = nil, nil // closing is another matter
				w.finish()
				if w.broken {
					struck[x.kind]++
				}
			})
		})
	}
	for kind := range numTroubles {
		require.Greater(t, struck[kind], 5, "%v: not often enough to say anything", kind)
	}
}
