package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"rdmarw/mrpool"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// Controller is a connection to a controller of a subsystem: an admin queue, and I/O
// queues. When it is lost it is made anew, unless that was forbidden; calls that wait
// go on then as if nothing had happened. Its methods may be called from any goroutine
// (but see Config.Step).
type Controller struct {
	cfg       Config
	addr, nqn string
	discovery bool
	pool      *mrpool.Pool
	reach     reach // before MDTS
	counters  counters
	copies    copies

	regionsMu sync.Mutex
	regions   map[*transport.Region]uint64 // numbered in the order they came; nil when closed
	added     uint64                       // regions so far

	namespacesMu sync.Mutex
	namespaces   map[uint32]*Namespace // that somebody may be using

	life  context.Context // ends when the controller is closed
	die   func()
	ended chan struct{} // closed when the goroutine of run is

	mu      sync.Mutex
	last    *association  // the newest that came up
	up      bool          // it is in use
	changed chan struct{} // closed when up or err changes
	err     error         // final
	closed  bool
}

// Connect connects to the subsystem of a name at "host:port". See [Discover] for
// finding out about both. The caller closes the controller.
//
// Errors match transport.ErrUnreachable, ErrRejected or ErrTimeout if there is nobody
// to talk to, an [nvme.Status] such as nvme.ConnectInvalidHost if the subsystem doesn't
// want this host, [ErrUnsupported], or ctx's.
func Connect(ctx context.Context, addr, nqn string, cfg Config) (*Controller, error) {
	return connect(ctx, addr, nqn, cfg, false)
}

func connect(ctx context.Context, addr, nqn string, cfg Config, discovery bool) (*Controller, error) {
	fail := func(err error) (*Controller, error) {
		return nil, fmt.Errorf("connect to %s at %s: %w", nqn, addr, err)
	}
	if err := nvme.CheckNQN(nqn); err != nil {
		return fail(err)
	}
	cfg, err := cfg.complete()
	if err != nil {
		return fail(err)
	}
	c := &Controller{cfg: cfg, addr: addr, nqn: nqn, discovery: discovery, regions: make(map[*transport.Region]uint64),
		namespaces: make(map[uint32]*Namespace), ended: make(chan struct{}), changed: make(chan struct{})}
	c.life, c.die = context.WithCancel(context.Background())
	if c.pool, err = c.newPool(); err != nil {
		return fail(err)
	}
	c.reach = reachOf(cfg.Device.Caps(), c.pool, cfg.MaxTransfer)
	a, err := c.associate(ctx, cfg.ConnectTimeout)
	if err != nil {
		if a != nil {
			a.end(err)
		}
		return fail(errors.Join(err, c.pool.Close()))
	}
	c.last, c.up = a, true
	cfg.Log.Info("connected", "subsystem", nqn, "address", addr, "controller", a.cntl, "queues", len(a.io))
	if cfg.Step == nil {
		go c.run(a)
	} else {
		close(c.ended)
	}
	return c, nil
}

// newPool makes the registrations of all queues. The protection domain is this
// controller's alone: its keys mean nothing to others.
func (c *Controller) newPool() (*mrpool.Pool, error) {
	commands := adminDepth
	if !c.discovery {
		commands += c.cfg.Queues * c.cfg.Depth
	}
	sizes, err := queueSizes(c.cfg.Device.Caps(), commands, c.cfg.MaxTransfer)
	if err != nil {
		return nil, err
	}
	if c.cfg.NoWindows {
		sizes.SyncMRs, sizes.Windows = sizes.SyncMRs+sizes.Windows, 0
	}
	return mrpool.NewIsolated(c.cfg.Device, mrpool.Config{
		FastMRs: sizes.FastMRs, FastPages: c.cfg.MaxTransfer/4096 + 1, Windows: sizes.Windows, SyncMRs: sizes.SyncMRs,
	})
}

// run keeps the controller connected until it is closed.
func (c *Controller) run(a *association) {
	defer close(c.ended)
	every := time.NewTicker(c.patience())
	defer every.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-every.C:
			a.tick(c.cfg.Now())
			continue
		case <-a.lost:
		}
		if a = c.recover(a); a == nil {
			return
		}
	}
}

// patience is how often to look at the clock.
func (c *Controller) patience() time.Duration {
	d := min(time.Second, c.cfg.CommandTimeout/4)
	if c.cfg.KeepAlive > 0 {
		d = min(d, c.cfg.KeepAlive/8)
	}
	return max(d, time.Millisecond)
}

// recover takes an association down that was lost, and makes another. It returns nil if
// the controller has come to its end.
func (c *Controller) recover(lost *association) *association {
	cause := lost.orLost(errStopped)
	log := c.cfg.Log.With("subsystem", c.nqn, "address", c.addr)
	c.set(lost, false, nil)
	log.Warn("connection lost", "err", cause)
	if err := lost.end(cause); err != nil {
		c.set(lost, false, err)
		return nil
	}
	if c.cfg.LossTimeout < 0 {
		c.set(lost, false, cause)
		return nil
	}
	ctx := c.life
	left := c.cfg.LossTimeout
	for until := c.cfg.Now().Add(left); ; {
		a, err := c.associate(ctx, min(left, c.cfg.ConnectTimeout))
		if err == nil {
			c.counters.reconnects.Add(1)
			log.Info("connected again", "controller", a.cntl, "queues", len(a.io))
			c.set(a, true, nil)
			return a
		}
		if a != nil {
			err = errors.Join(err, a.end(err))
		}
		if ctx.Err() != nil {
			c.set(lost, false, ErrClosed)
			return nil
		}
		// Giving up now and not in the middle of a pause after which there is no time left.
		if left = until.Sub(c.cfg.Now()) - c.cfg.ReconnectDelay; refused(err) || left <= 0 {
			c.set(lost, false, fmt.Errorf("%w; and could not be made anew: %w", cause, err))
			return nil
		}
		log.Warn("no new connection yet", "err", err)
		if c.pause(ctx) != nil {
			c.set(lost, false, ErrClosed)
			return nil
		}
	}
}

// pause waits for ReconnectDelay.
func (c *Controller) pause(ctx context.Context) error {
	if c.cfg.Step != nil {
		for until := c.cfg.Now().Add(c.cfg.ReconnectDelay); c.cfg.Now().Before(until); {
			if err := c.cfg.Step(); err != nil {
				return err
			}
		}
		return nil
	}
	select {
	case <-time.After(c.cfg.ReconnectDelay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Controller) set(a *association, up bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.up = a, up
	if c.err == nil {
		c.err = err
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// current returns the association that is in use, waiting for one if need be.
func (c *Controller) current(ctx context.Context) (*association, error) {
	for {
		c.mu.Lock()
		a, up, err, changed := c.last, c.up, c.err, c.changed
		c.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case up && a.orLost(errStopped) == nil:
			return a, nil
		}
		if c.cfg.Step != nil {
			c.recover(a)
			continue
		}
		select {
		case <-changed:
		case <-a.lost: // run is about to see it
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// again has f carried out, and again when the connection was lost meanwhile. It gives up
// when that has gone on for LossTimeout: f may be what costs the connections.
func (c *Controller) again(ctx context.Context, f func(*association) error) error {
	var until time.Time
	for {
		a, err := c.current(ctx)
		if err != nil {
			return err
		}
		err = f(a)
		if err == nil || !errors.Is(err, ErrLost) || ctx.Err() != nil {
			return err
		}
		switch now := c.cfg.Now(); {
		case until.IsZero():
			until = now.Add(c.cfg.LossTimeout)
		case now.After(until):
			return err
		}
	}
}

// Submit sends a prepared request on the I/O queue that is next, without waiting. If
// it returns an error, nothing was sent and the request is still prepared: [ErrFull] if
// all queues are, [ErrLost] while there is no connection, [ErrChanged] if its namespace is
// another by now, or what memory can't be exposed for. [ErrInUse] is a request that is under
// way, [ErrNotPrepared] one that is to be prepared first, each time, or that is for another
// controller's namespace. A request isn't sent again when the connection is lost: it ends with
// ErrLost.
//
// On devices where exposing memory is a call (Caps.MapBlocks) that call is made here.
func (c *Controller) Submit(r *Request) error {
	switch r.state.Load() {
	case requestIdle:
		return ErrNotPrepared
	case requestSubmitted:
		return ErrInUse
	}
	if r.ns.c != c {
		return fmt.Errorf("for a namespace of another controller: %w", ErrNotPrepared)
	}
	c.mu.Lock()
	a, up, err := c.last, c.up, c.err
	c.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !up:
		return ErrLost
	}
	// Looked at after the association was: before that was up, its namespaces were compared.
	if err := r.ns.Err(); err != nil {
		return err
	}
	first := a.next.Add(1)
	for k := range a.io {
		q := a.io[(int(first)+k)%len(a.io)]
		select {
		case i := <-q.free:
			return q.start(i, r, c.cfg.CommandTimeout)
		default:
		}
	}
	return ErrFull
}

// doIO carries out a prepared call on an I/O queue.
func (a *association) doIO(ctx context.Context, c *call) error {
	if len(a.io) == 0 {
		return fmt.Errorf("a controller without I/O queues: %w", ErrUnsupported)
	}
	first := int(a.next.Add(1)) % len(a.io)
	for k := range a.io {
		q := a.io[(first+k)%len(a.io)]
		select {
		case i := <-q.free:
			if err := q.start(i, &c.Request, a.c.cfg.CommandTimeout); err != nil {
				return err
			}
			return a.finish(ctx, c)
		default:
		}
	}
	return a.do(ctx, a.io[first], c)
}

// Poll takes in what has happened, without waiting. It is for a controller with a
// Config.Step: requests that were submitted end here, or in calls that wait.
func (c *Controller) Poll() error {
	c.mu.Lock()
	a, up, err := c.last, c.up, c.err
	c.mu.Unlock()
	if !up {
		return err
	}
	err = a.poll()
	a.tick(c.cfg.Now())
	return err
}

// AddRegion makes memory usable for requests. It must allow windows
// (transport.BindWindow), also where the device has none: transport.ErrAccess; and writes
// (transport.LocalWrite) to be read into. It may block. See transport.PD.
func (c *Controller) AddRegion(r *transport.Region) error {
	if r.Access()&transport.BindWindow == 0 {
		return fmt.Errorf("a region for requests needs transport.BindWindow: %w", transport.ErrAccess)
	}
	c.regionsMu.Lock()
	defer c.regionsMu.Unlock()
	if c.regions == nil {
		return ErrClosed
	}
	if err := c.pool.PD().AddRegion(r); err != nil {
		return err
	}
	c.added++
	c.regions[r] = c.added
	return nil
}

// RemoveRegion takes it out again. No request may use it. Close does it, too; removing
// what isn't there is harmless.
func (c *Controller) RemoveRegion(r *transport.Region) error {
	c.regionsMu.Lock()
	defer c.regionsMu.Unlock()
	if c.regions[r] == 0 {
		return nil
	}
	if err := c.pool.PD().RemoveRegion(r); err != nil {
		return err
	}
	delete(c.regions, r)
	return nil
}

// removeRegions takes all of them out, for good: in the order they came, so that stepped
// runs are the same.
func (c *Controller) removeRegions() error {
	c.regionsMu.Lock()
	defer c.regionsMu.Unlock()
	var errs []error
	order := func(r, q *transport.Region) int { return cmp.Compare(c.regions[r], c.regions[q]) }
	for _, r := range slices.SortedFunc(maps.Keys(c.regions), order) {
		errs = append(errs, c.pool.PD().RemoveRegion(r))
	}
	c.regions = nil
	return errors.Join(errs...)
}

// NewRegion allocates memory for requests. Free it by its own Close, after RemoveRegion
// or [Controller.Close].
func (c *Controller) NewRegion(size int) (*transport.Region, error) {
	r, err := c.cfg.Device.NewRegion(transport.RegionConfig{Size: size, Access: transport.LocalWrite | transport.BindWindow})
	if err != nil {
		return nil, err
	}
	if err := c.AddRegion(r); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// MaxTransfer is the most bytes that one request moves: what Config says, the
// controller (MDTS) and its smallest page size.
func (c *Controller) MaxTransfer() int { return int(c.limit().most) }

// limit is the reach of one command.
func (c *Controller) limit() reach {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reach
	if mdts := c.last.id.MDTS; mdts > 0 && mdts < 32 {
		r.most = min(r.most, 1<<(uint(mdts)+uint(c.last.caps.MinPageShift())))
	}
	return r
}

// Queues returns how many I/O queues there are, and how many commands each takes.
func (c *Controller) Queues() (n, depth int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.last.io); n > 0 {
		depth = c.last.io[0].depth
	}
	return n, depth
}

// Stats returns what was counted.
func (c *Controller) Stats() Stats { return c.counters.stats() }

// Err returns why the controller is at its end, or nil.
func (c *Controller) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close shuts the controller down, ends the connection and frees everything but regions
// that the caller made. Requests under way end with ErrClosed. Closing twice is harmless.
func (c *Controller) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.ended
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.die()
	<-c.ended
	c.mu.Lock()
	a, up := c.last, c.up
	c.mu.Unlock()
	var errs []error
	if up {
		if a.orLost(errStopped) == nil {
			ctx, cancel := context.WithTimeout(context.Background(), c.cfg.ConnectTimeout)
			if err := a.shutDown(ctx); err != nil {
				c.cfg.Log.Warn("no orderly shutdown", "subsystem", c.nqn, "address", c.addr, "err", err)
			}
			cancel()
		}
		c.set(a, false, ErrClosed)
		errs = append(errs, a.end(ErrClosed))
	}
	errs = append(errs, c.copies.close(c), c.removeRegions(), c.pool.Close())
	c.cfg.Log.Info("disconnected", "subsystem", c.nqn, "address", c.addr)
	return errors.Join(errs...)
}
