package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// association is one life of a controller: from the connection of its admin queue
// until one of its queues is lost.
type association struct {
	c      *Controller
	poller *rw.Poller
	stop   func() // ends the goroutine that polls
	// stepping is stepOnce where nothing moves by itself, else nil.
	stepping func() error

	admin    *queue
	io       []*queue
	next     atomic.Uint32 // queue to try first
	memory   *transport.Region
	memoryIs chan struct{} // a token: who has it may use the admin memory

	caps nvme.Capabilities
	id   nvme.Controller
	cntl uint16

	keepAlive   Request
	beating     atomic.Bool // it is in use, until its OnDone is through
	keepAliveAt time.Time

	mu     sync.Mutex
	queues []*queue
	err    error         // why it ended
	under  int           // requests under way
	lost   chan struct{} // closed when it has ended
	idle   chan struct{} // closed when, after that, nothing is under way
}

// adminMemory is the size of the buffer of admin commands.
const adminMemory = nvme.IdentifyLen

// exposedFor is what the controller does with the memory of a command.
func exposedFor(toTarget bool) mrpool.RemoteOps {
	if toTarget {
		return mrpool.ReadSource
	}
	return mrpool.WriteSink
}

// associate makes an association within a time. What it returns is to be ended, on error
// too, if not nil.
func (c *Controller) associate(ctx context.Context, limit time.Duration) (*association, error) {
	a := &association{c: c, memoryIs: make(chan struct{}, 1), lost: make(chan struct{}), idle: make(chan struct{})}
	a.memoryIs <- struct{}{}
	a.keepAlive.OnDone = a.keptAlive
	entries, err := c.completions()
	if err != nil {
		return nil, err
	}
	if err := a.startPolling(entries); err != nil {
		return nil, err
	}
	late := fmt.Errorf("no connection within %v: %w", limit, transport.ErrTimeout)
	if c.cfg.Step != nil {
		until := c.cfg.Now().Add(limit)
		a.stepping = func() error {
			if !c.cfg.Now().Before(until) {
				return late
			}
			return a.stepOnce()
		}
		err := a.connect(ctx)
		a.stepping = a.stepOnce
		return a, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	failed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(failed)
		a.fail(ctx.Err()) // or commands under way would get CancelGrace on top
	})
	err = a.connect(ctx)
	if stop() {
		return a, err
	}
	<-failed // also if it came up at the last moment
	switch cause := context.Cause(ctx); {
	case err == nil:
		err = cause
	case cause == late:
		err = fmt.Errorf("%w: %w", late, err)
	}
	return a, err
}

// connect connects the admin queue, asks the controller what it is, connects the I/O
// queues, and looks whether the namespaces are still the same.
func (a *association) connect(ctx context.Context) (err error) {
	c := a.c
	a.memory, err = c.cfg.Device.NewRegion(transport.RegionConfig{Size: adminMemory, Access: transport.LocalWrite | transport.BindWindow})
	if err != nil {
		return err
	}
	if err := c.pool.PD().AddRegion(a.memory); err != nil {
		return err
	}
	if a.admin, err = newQueue(ctx, a, 0, adminDepth, 0); err != nil {
		return err
	}
	if err := a.enable(ctx); err != nil {
		return err
	}
	if c.discovery {
		return nil
	}
	// That may take longer than the keep alive timeout.
	defer a.startTicking()()
	if err := a.connectIO(ctx); err != nil {
		return err
	}
	return a.recognize(ctx)
}

// startTicking has the clock looked at until the function that it returns is called.
func (a *association) startTicking() (stop func()) {
	if a.c.cfg.Step != nil {
		return func() {} // stepOnce does
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		every := time.NewTicker(a.c.patience())
		defer every.Stop()
		for {
			select {
			case <-over:
				return
			case <-every.C:
				a.tick(a.c.cfg.Now())
			}
		}
	}()
	return func() {
		close(over)
		<-ended
	}
}

// completions is room for those of all queues.
func (c *Controller) completions() (int, error) {
	admin, err := queueSizes(c.cfg.Device.Caps(), adminDepth, c.cfg.MaxTransfer)
	if err != nil || c.discovery {
		return admin.CQEntries, err
	}
	io, err := queueSizes(c.cfg.Device.Caps(), c.cfg.Depth, c.cfg.MaxTransfer)
	return min(admin.CQEntries+c.cfg.Queues*io.CQEntries, c.cfg.Device.Caps().MaxCQE), err
}

func (a *association) startPolling(entries int) (err error) {
	cfg := &a.c.cfg
	poll := rw.PollerConfig{Now: cfg.Now}
	if cfg.Step != nil {
		poll.Workers = -1
	}
	if a.poller, err = rw.NewPoller(cfg.Device, entries, poll); err != nil {
		return err
	}
	a.stop = func() {}
	if cfg.Step != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := a.poller.Run(ctx, nil); ctx.Err() == nil {
			a.fail(err)
			a.pollOn(ctx)
		}
	}()
	a.stop = func() {
		cancel()
		<-ended
	}
	return nil
}

// pollOn polls after the completion queue has failed: a command that was just about to go
// out then takes its exposure back, and only somebody who polls gets to know that it has.
func (a *association) pollOn(ctx context.Context) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			a.poll() // its error is known
		}
	}
}

// enable brings the controller up: NVMe Base 1.3, 7.6.1, in the order of fabrics.
func (a *association) enable(ctx context.Context) error {
	c := a.c
	cntl, err := a.connectQueue(ctx, a.admin, nvme.AnyController)
	if err != nil {
		return err
	}
	a.cntl = cntl
	v, err := a.property(ctx, nvme.PropCAP)
	if err != nil {
		return err
	}
	a.caps = nvme.Capabilities(v)
	if !a.caps.NVMCommandSet() && !c.discovery {
		return fmt.Errorf("a controller without the NVM command set: %w", ErrUnsupported)
	}
	for _, cc := range []nvme.Configuration{nvme.CCEntrySizes, nvme.CCEntrySizes | nvme.CCEnable} {
		if err := a.setProperty(ctx, nvme.PropCC, uint64(cc)); err != nil {
			return err
		}
	}
	if err := a.awaitStatus(ctx, nvme.ControllerStatus.Ready); err != nil {
		return err
	}
	cmd := nvme.Command{Opcode: nvme.Identify, CDW10: uint32(nvme.CNSController)}
	if err := a.fetch(ctx, "identify controller", cmd, nvme.IdentifyLen, a.id.Decode); err != nil {
		return err
	}
	a.keepAliveAt = c.cfg.Now().Add(c.cfg.KeepAlive / 2)
	switch {
	case a.id.SGLS&nvme.SGLSKeyed == 0:
		return fmt.Errorf("a controller without keyed SGLs: %w", ErrUnsupported)
	case a.id.InCapsuleOffset != 0:
		return fmt.Errorf("a controller whose in-capsule data has an offset (ICDOFF %d): %w", a.id.InCapsuleOffset, ErrUnsupported)
	case a.id.ControllerID != a.cntl:
		return fmt.Errorf("%w: Connect called the controller %d, Identify %d", ErrProtocol, a.cntl, a.id.ControllerID)
	}
	return nil
}

// connectIO asks for I/O queues and connects those that are granted.
func (a *association) connectIO(ctx context.Context) error {
	cfg := &a.c.cfg
	granted, err := a.execute(ctx, "set features: queues", nvme.Command{
		Opcode: nvme.SetFeatures, CDW10: uint32(nvme.FeatQueues), CDW11: nvme.Queues(cfg.Queues),
	})
	if err != nil {
		return err
	}
	depth := min(cfg.Depth, max(1, int(a.caps.MaxQueueEntries())))
	if most := int(a.id.MaxCommands); most > 0 {
		depth = min(depth, most)
	}
	inCapsule := 0
	if a.id.SGLS&nvme.SGLSOffset != 0 {
		inCapsule = a.id.InCapsule()
	}
	for id := range min(cfg.Queues, nvme.QueueCount(uint32(granted))) {
		q, err := newQueue(ctx, a, uint16(id+1), depth, inCapsule)
		if err == nil {
			_, err = a.connectQueue(ctx, q, a.cntl)
		}
		if err != nil {
			return err
		}
		a.io = append(a.io, q)
	}
	return nil
}

// connectQueue sends the Connect command, the first on any queue, and returns the
// controller's id.
func (a *association) connectQueue(ctx context.Context, q *queue, cntl uint16) (uint16, error) {
	cfg := &a.c.cfg
	connect := nvme.Connect{QueueID: q.id, SQSize: uint16(q.depth)}
	if q.id == 0 {
		connect.KeepAlive = cfg.keepAliveMillis()
	}
	data := nvme.ConnectData{HostID: cfg.HostID, ControllerID: cntl, Subsystem: a.c.nqn, Host: cfg.HostNQN}
	result, err := a.transact(ctx, q, fmt.Sprintf("connect queue %d", q.id), connect.Command(), nvme.ConnectDataLen, data.Encode, nil)
	var failed *CommandError
	if errors.As(err, &failed) {
		switch failed.Status.Code() {
		case nvme.ConnectInvalidParam, nvme.ConnectInvalidHost:
			return 0, fmt.Errorf("%w (%s)", err, complaint(failed.Result, &data))
		}
	}
	if err == nil && result>>16&3 != 0 {
		return 0, fmt.Errorf("a controller that asks for authentication: %w", ErrUnsupported)
	}
	return uint16(result), err
}

// complaint says what the result of a failed Connect is about.
func complaint(result uint64, told *nvme.ConnectData) string {
	switch result {
	case nvme.InvalidParam(nvme.ConnectAtSubsystem, true):
		return "the target has no subsystem of that name, or doesn't admit this host; host.Discover lists those that it shows"
	case nvme.InvalidParam(nvme.ConnectAtHost, true):
		return fmt.Sprintf("parameter: %s %s", nvme.ParamName(result), told.Host)
	}
	return "parameter: " + nvme.ParamName(result)
}

// awaitStatus polls CSTS until it is as wanted.
func (a *association) awaitStatus(ctx context.Context, wanted func(nvme.ControllerStatus) bool) error {
	for {
		v, err := a.property(ctx, nvme.PropCSTS)
		if err != nil {
			return err
		}
		switch status := nvme.ControllerStatus(v); {
		case wanted(status):
			return nil
		case status.Fatal():
			return fmt.Errorf("the controller reports a fatal error: %w", ErrLost)
		}
		if a.c.cfg.Step == nil {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// shutDown tells the controller of an orderly end.
func (a *association) shutDown(ctx context.Context) error {
	cc := nvme.CCEntrySizes | nvme.CCEnable | nvme.CCShutdownNormal
	if err := a.setProperty(ctx, nvme.PropCC, uint64(cc)); err != nil {
		return err
	}
	return a.awaitStatus(ctx, nvme.ControllerStatus.ShutdownComplete)
}

// add makes a queue one of the association's, and fails if that has ended meanwhile.
func (a *association) add(q *queue) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queues = append(a.queues, q)
	return a.err
}

// enter notes a request; leave its end.
func (a *association) enter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.err
	}
	a.under++
	return nil
}

func (a *association) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.under--
	if a.under == 0 && a.err != nil {
		close(a.idle)
	}
}

// fail ends the association: everything under way ends with the cause.
func (a *association) fail(cause error) {
	cause = lostBy(cause)
	a.mu.Lock()
	if a.err != nil {
		a.mu.Unlock()
		return
	}
	a.err = cause
	queues := a.queues
	close(a.lost)
	if a.under == 0 {
		close(a.idle)
	}
	a.mu.Unlock()
	for _, q := range queues {
		q.abort(cause)
	}
}

// lostBy is what commands end with when the connection does.
func lostBy(cause error) error {
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrLost, cause)
}

// end takes everything down. It waits until all requests are back.
func (a *association) end(cause error) error {
	a.fail(cause)
	var errs []error
	if _, err := await(context.Background(), a.step(), a.idle, nil); err != nil {
		return fmt.Errorf("commands don't come back: %w", err)
	}
	for _, q := range a.queues {
		q.ep.StartClose()
	}
	for _, q := range a.queues {
		if _, err := await(context.Background(), a.step(), q.ep.Closed(), nil); err != nil {
			return fmt.Errorf("close queue %d: %w", q.id, err)
		}
		errs = append(errs, q.ep.Close())
	}
	a.stop()
	errs = append(errs, a.poller.Close())
	for _, q := range a.queues {
		errs = append(errs, q.release())
	}
	if a.memory != nil {
		errs = append(errs, a.c.pool.PD().RemoveRegion(a.memory), a.memory.Close())
	}
	return errors.Join(errs...)
}

// tick does what time brings: keep alives, and the end of patience.
func (a *association) tick(now time.Time) {
	cfg := &a.c.cfg
	a.mu.Lock()
	queues, over := a.queues, a.err != nil
	a.mu.Unlock()
	if over {
		return
	}
	for _, q := range queues {
		if q.overdue(now) {
			a.fail(fmt.Errorf("queue %d: %w", q.id, ErrTimeout))
			return
		}
	}
	if cfg.KeepAlive < 0 || a.keepAliveAt.IsZero() || now.Before(a.keepAliveAt) {
		return
	}
	a.keepAliveAt = now.Add(cfg.KeepAlive / 2)
	if !a.beating.CompareAndSwap(false, true) {
		return // the deadline of the one under way will tell
	}
	a.keepAlive.prepare(nil, "keep alive", nvme.Command{Opcode: nvme.KeepAlive}, nil, 0)
	select {
	case i := <-a.admin.free:
		if err := a.admin.start(i, &a.keepAlive, cfg.KeepAlive); err != nil {
			a.fail(err)
		}
	default: // so busy that it is alive
		a.beating.Store(false)
	}
}

// keptAlive: a keep alive is over.
func (a *association) keptAlive(r *Request) {
	if r.err == nil {
		a.c.counters.keepAlives.Add(1)
	} else if !errors.Is(r.err, ErrLost) {
		a.fail(r.err)
	}
	a.beating.Store(false)
}
