package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"rdmarw/transport"
)

type traceEvent struct {
	Phase    string `json:"ph"`
	Process  int    `json:"pid"`
	Thread   int    `json:"tid"`
	Name     string `json:"name"`
	Category string `json:"cat"`
	ID       string `json:"id"`
	Scope    string `json:"s"`
	TS       float64
	Dur      float64
	Args     map[string]any
}

// timelineOf runs a few requests that end in different ways.
func timelineOf(t *testing.T, name string, seed uint64) string {
	var buf bytes.Buffer
	func() {
		f := New(Config{Stepped: true, Seed: seed, Timeline: &buf})
		c := defaults(t, name)
		c.cfg.Stepped = true
		a, b := connectPair(t, f, &c)
		r := b.expose(0, 8192, remoteRW)
		a.post([]transport.WR{
			{Op: transport.OpWrite, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1},
			{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: r.RKey(0), NumSGE: 1, FirstSGE: 1, Flags: transport.Signaled},
		}, a.sge(0, 64), a.sink(64, 64))
		f.Drain()
		require.NoError(t, r.Unmap())
		a.post([]transport.WR{{Op: transport.OpRead, RemoteAddr: b.region.Addr(), RKey: 1, NumSGE: 1}, {Op: transport.OpRead, NumSGE: 1}}, a.sink(0, 8))
		f.Drain()
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
	}()
	return buf.String()
}

func TestTimelineIsATrace(t *testing.T) {
	for _, p := range Profiles() {
		out := timelineOf(t, p.Name, 1)
		require.Equal(t, out, timelineOf(t, p.Name, 1))
		require.NotEqual(t, out, timelineOf(t, p.Name, 2))
		var events []traceEvent
		require.NoError(t, json.Unmarshal([]byte(out), &events), out)
		open := make(map[string]string)
		names := make(map[string]string)
		seen := make(map[string]int)
		last := 0.0
		for _, e := range events {
			seen[e.Phase+" "+e.Name]++
			switch e.Phase {
			case "M":
				names[fmt.Sprint(e.Name, e.Process, e.Thread)] = e.Args["name"].(string)
				continue
			case "b":
				require.Empty(t, open[e.ID])
				open[e.ID] = e.Name
			case "n":
				require.NotEmpty(t, open[e.ID])
			case "e":
				require.Equal(t, open[e.ID], e.Name)
				require.NotEmpty(t, e.Args["status"])
				delete(open, e.ID)
			case "X":
				require.Equal(t, threadOfCalls, e.Thread)
				require.Positive(t, e.Dur)
				continue // they are told when they are over
			}
			require.GreaterOrEqual(t, e.TS, last)
			last = e.TS
			require.Contains(t, names, fmt.Sprint("thread_name", e.Process, e.Thread))
		}
		require.Empty(t, open, "what began ends")
		require.Positive(t, seen["X register"])
		require.Positive(t, seen["i error state"])
		require.Equal(t, 3, seen["b "+transport.OpRead.String()])
		require.Equal(t, 3, seen["e "+transport.OpRead.String()])
		require.Equal(t, 1, seen["i in "+transport.OpWrite.String()])
	}
}

func TestTimelineOfNothing(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, New(Config{Stepped: true, Timeline: &buf}).Close())
	var events []traceEvent
	require.NoError(t, json.Unmarshal(buf.Bytes(), &events))
	require.Empty(t, events)
}
