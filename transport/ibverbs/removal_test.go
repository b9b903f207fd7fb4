//go:build ibverbs && linux && cgo

package ibverbs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/transport/ibverbs"

	"github.com/stretchr/testify/require"
)

func init() { ibverbs.HelpRemoval = helpRemoval }

// party is one end of a loopback connection in a child process, where there is no
// testing.T.
type party struct {
	dev    transport.Device
	pd     transport.PD
	pool   *mrpool.Pool
	poller *rw.Poller
	region *transport.Region
	ep     *rw.Endpoint
	stop   context.CancelFunc
	done   chan error
}

func newParty(dev transport.Device) (*party, error) {
	p := &party{dev: dev, done: make(chan error, 1)}
	var err error
	if p.pd, err = dev.NewPD(); err != nil {
		return nil, err
	}
	if p.region, err = dev.NewRegion(transport.RegionConfig{Size: 4 << 20, Access: transport.LocalWrite | transport.BindWindow}); err != nil {
		return nil, err
	}
	if err := p.pd.AddRegion(p.region); err != nil {
		return nil, err
	}
	cfg := mrpool.Config{SyncMRs: 64}
	if dev.Caps().Windows != transport.NoWindows {
		cfg.Windows = 8
	}
	if p.pool, err = mrpool.New(p.pd, cfg); err != nil {
		return nil, err
	}
	if p.poller, err = rw.NewPoller(dev, 1024, rw.PollerConfig{}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.done <- p.poller.Run(ctx, nil) }()
	return p, nil
}

func (p *party) close() error {
	err := p.ep.Close()
	p.stop()
	if e := <-p.done; !errors.Is(e, context.Canceled) {
		err = errors.Join(err, e)
	}
	return errors.Join(err, p.poller.Close(), p.pool.Close(), p.pd.RemoveRegion(p.region), p.region.Close(), p.pd.Close())
}

// helpRemoval keeps READs and WRITEs going on a device until it is removed, and
// then ends: everything is to come back and to be closed.
func helpRemoval(name, addr, end string) error {
	dev, err := ibverbs.Open(name)
	if err != nil {
		return err
	}
	a, err := newParty(dev)
	if err != nil {
		return err
	}
	b, err := newParty(dev)
	if err != nil {
		return err
	}
	l, err := dev.Listen(net.JoinHostPort(addr, "0"))
	if err != nil {
		return err
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Next(context.Background())
		if err == nil {
			b.ep, err = b.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: b.pool})
		}
		if err == nil {
			_, err = b.ep.Accept(context.Background(), transport.ConnParams{})
		}
		accepted <- err
	}()
	conn, err := dev.Resolve(context.Background(), l.Addr())
	if err != nil {
		return err
	}
	if a.ep, err = a.poller.NewEndpoint(conn, rw.EndpointConfig{Pool: a.pool}); err != nil {
		return err
	}
	if _, err = a.ep.Connect(context.Background(), transport.ConnParams{}); err != nil {
		return err
	}
	if err := <-accepted; err != nil {
		return err
	}
	var x rw.Exposure
	if err := b.ep.Expose(&x, []transport.Piece{b.region.Piece(0, 1<<20)}, mrpool.ReadSource|mrpool.WriteSink); err != nil {
		return err
	}
	if err := b.ep.Do(context.Background(), &x.Grant); err != nil {
		return err
	}

	const load = 8
	var cs [load]rw.Context
	var ended, resubmitted atomic.Int64
	over := make(chan error, load)
	submit := func(c *rw.Context, i int) error {
		err := a.ep.Prepare(c, rw.Transfer{Op: []rw.Op{rw.Read, rw.Write}[i%2],
			Local: []transport.Piece{a.region.Piece(uint64(i)<<18, 60000)}, Remote: x.Remotes()})
		if err != nil {
			return err
		}
		return a.ep.Submit(c)
	}
	for i := range cs {
		cs[i].OnDone = func(c *rw.Context) {
			ended.Add(1)
			if err := c.Err(); err != nil {
				over <- err
				return
			}
			told := errors.Is(a.ep.Err(), transport.ErrDeviceRemoved)
			switch err := submit(c, i); {
			case err == nil:
				resubmitted.Add(1)
			case told && !errors.Is(err, transport.ErrDeviceRemoved):
				over <- fmt.Errorf("not told of the removal, which was known: %v", err)
			default:
				over <- err
			}
		}
		if err := submit(&cs[i], i); err != nil {
			return err
		}
	}
	for resubmitted.Load() < 2*load {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("loaded")

	var ev transport.Event
	for ev = range dev.Events() {
		if ev.Kind == transport.EventDeviceRemoved {
			break
		}
	}
	fmt.Printf("event: %s\n", ev.Detail)
	for range cs {
		// Both ends are on the device, and one is torn down first: on siw the other's WRITE fails then
		// in the middle of being sent (siw_qp_tx.c). What waits to be posted, or is submitted, between
		// the first flush and the news of the removal hears that the queue pair failed.
		err := <-over
		if !errors.Is(err, transport.ErrDeviceRemoved) && !errors.Is(err, transport.StatusFlushed) && !errors.Is(err, transport.StatusLocalQPOp) &&
			!errors.Is(err, rw.ErrQPFailed) {
			return fmt.Errorf("an operation ended by %w", err)
		}
	}
	fmt.Printf("ended: %d operations\n", ended.Load())
	<-a.ep.Conn().Done()
	<-b.ep.Conn().Done()
	for _, p := range []*party{a, b} {
		if err := p.ep.Conn().Err(); !errors.Is(err, transport.ErrDeviceRemoved) {
			return fmt.Errorf("a connection ended by %w", err)
		}
	}
	if _, err := l.Next(context.Background()); !errors.Is(err, transport.ErrDeviceRemoved) {
		return fmt.Errorf("the listener ended by %w", err)
	}
	if err := errors.Join(a.close(), b.close(), l.Close(), dev.Close()); err != nil {
		return err
	}
	if n := ibverbs.InUse(); n != (ibverbs.Objects{}) {
		return fmt.Errorf("left: %+v", n)
	}
	if _, err := ibverbs.Open(name); !errors.Is(err, transport.ErrNoDevice) {
		return fmt.Errorf("opened again: %w", err)
	}
	fmt.Println("closed")
	if end == "stay" {
		select {}
	}
	return nil
}

// An administrator deletes a device under load. The process is told, all that it has
// under way ends, it closes everything, and the deletion, which waits for that,
// returns.
func TestRemovalUnderLoad(t *testing.T) {
	if os.Getenv("RDMARW_GUEST") == "" {
		t.Skip("makes and deletes devices: in the guest only")
	}
	for i, driver := range []string{"rxe", "siw"} {
		t.Run(driver, func(t *testing.T) {
			for j, end := range []string{"exit", "stay"} {
				t.Run(end, func(t *testing.T) {
					removeUnderLoad(t, driver, fmt.Sprintf("10.79.%d.1", 2*i+j), end)
				})
			}
		})
	}
}

func removeUnderLoad(t *testing.T, driver, addr, end string) {
	name, netdev := driver+"9", "dummy9"
	sh := func(line string) {
		out, err := exec.Command("sh", "-c", line).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
	}
	sh("ip link add " + netdev + " type dummy && ip addr add " + addr + "/24 dev " + netdev + " && ip link set " + netdev + " up")
	defer sh("ip link delete " + netdev)
	sh("rdma link add " + name + " type " + driver + " netdev " + netdev)
	for range 500 { // GIDs take a moment
		gids, _ := exec.Command("sh", "-c", "grep -lv 0000:0000:0000:0000:0000:0000:0000:0000 /sys/class/infiniband/"+name+"/ports/1/gids/*").Output()
		if len(strings.Fields(string(gids))) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}

	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "RDMARW_HELPER=removal "+name+" "+addr+" "+end)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	await := func(want string) {
		t.Helper()
		for {
			select {
			case l, open := <-lines:
				require.True(t, open, "it ended before %q", want)
				t.Log(l)
				if strings.HasPrefix(l, want) {
					return
				}
			case <-time.After(20 * time.Second):
				cmd.Process.Signal(os.Interrupt)
				require.Fail(t, "hangs", "before %q", want)
			}
		}
	}
	defer cmd.Process.Kill()
	await("loaded")

	start := time.Now()
	deletion := make(chan error, 1)
	go func() {
		out, err := exec.Command("rdma", "link", "delete", name).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		deletion <- err
	}()
	await("event: ")
	await("ended: ")
	await("closed")
	if end == "exit" {
		await("OK")
		require.NoError(t, cmd.Wait())
		// This bound is what is promised; it took a tenth of it under emulation.
		require.Less(t, time.Since(start), 5*time.Second, "from the deletion to the exit")
	}
	// Also without: librdmacm closes its context of a device that nobody uses any more.
	require.NoError(t, <-deletion)
	t.Logf("the deletion took %v", time.Since(start))
	if end == "stay" {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait(), "killed")
	}
}
