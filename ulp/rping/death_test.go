package rping

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/transport/sim"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeath: one end's device dies without a word, in the middle of many pings. (What
// a kernel does for a killed process is kinder: see TestKilledClient.) Whoever has
// something on the way learns of it by its retries. Who just waits for a message
// doesn't, there being no keep-alive: the end of ctx has to do, on the dead side,
// where nothing completes any more, as well.
func TestDeath(t *testing.T) {
	for _, name := range []string{"rxe", "siw", "siw-kernel"} {
		for _, dies := range []string{"server", "client"} {
			t.Run(name+"/"+dies, func(t *testing.T) {
				profile, _ := sim.LookupProfile(name)
				server, client, addr := simulated(t, profile)
				var pings countPings
				addr, ends := serve(t, Server{Device: server, Log: slog.New(&pings)}, addr)
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() {
					_, err := (&Client{Device: client, Size: 65536}).Ping(ctx, addr)
					ended <- err
				}()
				require.Eventually(t, func() bool { return pings.Load() > 10 }, 30*time.Second, time.Millisecond)
				if dies == "server" {
					server.(*sim.Device).Kill()
				} else {
					client.(*sim.Device).Kill()
				}
				time.Sleep(50 * time.Millisecond)
				cancel()
				select {
				case err := <-ended:
					t.Log("client:", err)
					assert.Error(t, err) // canceled, device removed, retries exceeded ...
				case <-time.After(30 * time.Second):
					t.Fatal("the client does not end")
				}
				select {
				case e := <-ends:
					t.Log("server:", e.pings, e.err)
				default: // ends with Serve
				}
			})
		}
	}
}

// countPings counts what a server logs at level Debug.
type countPings struct {
	atomic.Int32
}

func (c *countPings) Enabled(context.Context, slog.Level) bool { return true }
func (c *countPings) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c *countPings) WithGroup(string) slog.Handler            { return c }
func (c *countPings) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelDebug {
		c.Add(1)
	}
	return nil
}
