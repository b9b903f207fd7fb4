package rping

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is where a server and a client can meet.
type place struct {
	name string
	// open makes a server's and a client's device, and says where to listen.
	// Whatever a test does, nothing may be left of it when they are closed.
	open func(t *testing.T) (server, client transport.Device, addr string)
}

// places are the simulated devices with a way of their own (windows and direct
// READs, calls for both, fast registration for both), and the real ones that there
// are.
func places(t *testing.T) []place {
	all := realPlaces()
	for _, name := range []string{"rxe", "siw", "siw-kernel"} {
		profile, ok := sim.LookupProfile(name)
		require.True(t, ok, name)
		all = append(all, place{name, func(t *testing.T) (server, client transport.Device, addr string) {
			return simulated(t, profile)
		}})
	}
	return all
}

func simulated(t *testing.T, profile sim.Profile) (server, client transport.Device, addr string) {
	t.Helper()
	fabric := sim.New(sim.Config{})
	server, err := fabric.NewDevice(profile, "server")
	require.NoError(t, err)
	client, err = fabric.NewDevice(profile, "client")
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.NoError(t, client.Close())
		assert.NoError(t, fabric.Err())
		assert.NoError(t, fabric.Close())
	})
	return server, client, "server:7174"
}

// end is how one connection of a server ended.
type end struct {
	pings int
	err   error
}

// serve runs a server until the test ends, and returns its address and the ends of
// its connections.
func serve(t *testing.T, s Server, addr string) (string, <-chan end) {
	t.Helper()
	l, err := s.Device.Listen(addr)
	require.NoError(t, err)
	ends := make(chan end, 64)
	s.OnEnd = func(_ string, pings int, err error) { ends <- end{pings, err} }
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-served:
			assert.ErrorIs(t, err, context.Canceled)
		case <-time.After(30 * time.Second):
			t.Error("Serve does not return")
		}
		assert.NoError(t, l.Close())
	})
	return l.Addr(), ends
}

func next(t *testing.T, ends <-chan end) end {
	t.Helper()
	select {
	case e := <-ends:
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("the connection does not end")
		return end{}
	}
}

// timeout is longer than anything takes, on emulated machines too.
func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestPing(t *testing.T) {
	for _, at := range places(t) {
		for _, size := range []int{1, 23, 4095, 65536, MaxSize} {
			t.Run(fmt.Sprintf("%s/%d", at.name, size), func(t *testing.T) {
				dev, peer, addr := at.open(t)
				addr, ends := serve(t, Server{Device: dev, MaxSize: size, Verify: true}, addr)
				count := 100
				if size > 65536 {
					count = 5
				}
				client := Client{Device: peer, Size: size, Count: count, Verify: true}
				pings, err := client.Ping(timeout(t), addr)
				require.NoError(t, err)
				assert.Equal(t, count, pings)
				assert.Equal(t, end{pings: count}, next(t, ends))
			})
		}
	}
}

func TestManyClients(t *testing.T) {
	for _, at := range places(t) {
		t.Run(at.name, func(t *testing.T) {
			const clients = 8
			dev, peer, addr := at.open(t)
			addr, ends := serve(t, Server{Device: dev, Verify: true, MaxClients: clients}, addr)
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					client := Client{Device: peer, Size: 5000, Count: 20, Verify: true}
					pings, err := client.Ping(timeout(t), addr)
					assert.NoError(t, err)
					assert.Equal(t, 20, pings)
				})
			}
			wg.Wait()
			for range clients {
				assert.Equal(t, end{pings: 20}, next(t, ends))
			}
		})
	}
}

func TestCancel(t *testing.T) {
	for _, at := range places(t) {
		t.Run(at.name, func(t *testing.T) {
			dev, peer, addr := at.open(t)
			addr, ends := serve(t, Server{Device: dev}, addr)
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			client := Client{Device: peer, Size: 4096}
			pings, err := client.Ping(ctx, addr)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			e := next(t, ends)
			if e.err != nil { // it was in the middle of a ping
				assert.ErrorIs(t, e.err, transport.ErrDisconnected)
			}
			assert.InDelta(t, pings, e.pings, 1)
		})
	}
}

func TestTooLarge(t *testing.T) {
	for _, at := range places(t) {
		t.Run(at.name, func(t *testing.T) {
			dev, peer, addr := at.open(t)
			addr, ends := serve(t, Server{Device: dev, MaxSize: 1000}, addr)
			client := Client{Device: peer, Size: 1001}
			_, err := client.Ping(timeout(t), addr)
			assert.ErrorIs(t, err, transport.ErrDisconnected)
			assert.ErrorIs(t, next(t, ends).err, ErrSize)
		})
	}
	_, err := (&Client{Size: MaxSize + 1}).Ping(timeout(t), "nowhere:1")
	assert.ErrorIs(t, err, ErrSize)
	assert.ErrorIs(t, (&Server{MaxSize: -1}).Serve(timeout(t), nil), ErrSize)
}

func TestTooManyClients(t *testing.T) {
	for _, at := range places(t) {
		t.Run(at.name, func(t *testing.T) {
			dev, peer, addr := at.open(t)
			addr, ends := serve(t, Server{Device: dev, MaxClients: 1}, addr)
			first := connect(t, peer, addr)
			_, err := (&Client{Device: peer, Count: 1}).Ping(timeout(t), addr)
			assert.ErrorIs(t, err, transport.ErrRejected)
			require.NoError(t, first.close())
			next(t, ends)
			_, err = (&Client{Device: peer, Count: 1}).Ping(timeout(t), addr)
			assert.NoError(t, err)
		})
	}
}

func TestNobodyListens(t *testing.T) {
	for _, at := range places(t) {
		t.Run(at.name, func(t *testing.T) {
			_, peer, addr := at.open(t)
			_, err := (&Client{Device: peer, Count: 1}).Ping(timeout(t), addr)
			assert.Error(t, err)
			t.Log(err)
		})
	}
}
