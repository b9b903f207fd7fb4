package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/target/internal/core"
)

var numCPU = runtime.GOMAXPROCS(0)

// Errors with which connections and Serve end, for errors.Is.
var (
	// ErrClosed: the target was shut down.
	ErrClosed = errors.New("target closed")
	// ErrKeepAlive: the host was not heard of for as long as it said it would be.
	ErrKeepAlive = errors.New("keep alive timeout")
	// ErrHandshake: no Connect command came in time.
	ErrHandshake = errors.New("no Connect command")
	// ErrCapsule: a message that is no command capsule.
	ErrCapsule = errors.New("malformed capsule")
	// ErrAdminQueue: the queue's controller has lost its admin queue.
	ErrAdminQueue = errors.New("the admin queue is gone")
)

// Target serves subsystems. Its methods may be called from any goroutine.
type Target struct {
	cfg        Config
	log        *slog.Logger
	subsystems []*subsystem
	started    time.Time

	accepted, rejected, refused, invalidations, waits atomic.Uint64

	mu        sync.Mutex // guards all that follows, and what is decided in the directory
	directory *core.Directory
	queues    []*queue // in the order in which they came
	making    int      // queues that aren't among them yet
	ports     []*port  // attached
	closing   bool

	endMu  sync.Mutex
	ending []*queue // where nothing runs by itself: failed, and not gone yet

	closed    context.Context // ends with Shutdown
	close     context.CancelFunc
	serving   sync.WaitGroup
	watching  sync.Once
	watchDone chan struct{}
}

// New makes a target. It serves nobody yet. The error says what of cfg can't be: no
// subsystems, a number out of its range, a name that is none or is there twice, a
// namespace without a backend or with blocks that NVMe hosts wouldn't take.
func New(cfg Config) (*Target, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	t := &Target{cfg: cfg, log: cfg.Log, started: cfg.Now(), watchDone: make(chan struct{})}
	var subs []*core.Subsystem
	for i := range cfg.Subsystems {
		sub, err := newSubsystem(&cfg.Subsystems[i])
		if err != nil {
			return nil, fmt.Errorf("target: %w", err)
		}
		for _, other := range subs {
			if other.NQN == sub.NQN {
				return nil, fmt.Errorf("target: two subsystems %s", sub.NQN)
			}
		}
		t.subsystems = append(t.subsystems, sub)
		subs = append(subs, sub.Subsystem)
	}
	t.directory = core.NewDirectory(cfg.limits(), subs...)
	t.closed, t.close = context.WithCancel(context.Background())
	return t, nil
}

// Serve answers the hosts that come by a listener until ctx ends or the target is shut
// down, and then ends their connections. It returns ctx's error, [ErrClosed], or that of
// the listener or the device if it can't go on. Any number of Serve may be under way, on
// the same device or on others; device and listener stay the caller's.
func (t *Target) Serve(ctx context.Context, dev transport.Device, l transport.Listener) error {
	t.mu.Lock()
	if t.closing || t.cfg.Step != nil {
		t.mu.Unlock()
		if t.cfg.Step != nil {
			return errors.New("target: it runs by steps: Attach, not Serve")
		}
		return ErrClosed
	}
	t.serving.Add(1)
	t.mu.Unlock()
	defer t.serving.Done()
	t.watching.Do(func() { go t.watch() })
	p, err := newPort(t, dev)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(t.closed, func() { cancel(ErrClosed) })()
	err = p.serve(ctx, l)
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	cancel(err)
	return errors.Join(err, p.close(err))
}

// Shutdown ends the target: nobody is accepted any more, what hosts send from now on stays
// unanswered, so that they will do it again elsewhere; what is under way is completed and
// answered, until ctx ends. Then connections are ended, and when Shutdown returns every
// Serve is about to. It returns ctx's error if something was cut off.
func (t *Target) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.closing = true
	queues := slices.Clone(t.queues)
	t.mu.Unlock()
	for _, q := range queues {
		q.draining.Store(true)
	}
	var err error
	for _, q := range queues {
		for err == nil && q.executing.Load() > 0 && !q.failed.Load() {
			if err = t.pause(ctx); err != nil {
				err = fmt.Errorf("shutdown: commands under way: %w", err)
			}
		}
	}
	t.close()
	if t.cfg.Step != nil {
		return errors.Join(err, t.detach())
	}
	t.serving.Wait()
	t.watching.Do(func() { close(t.watchDone) }) // nobody ever served
	<-t.watchDone
	return err
}

// makeRoom reports whether there may be one more queue; made says that it is among the
// others now, or won't be.
func (t *Target) makeRoom() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queues)+t.making >= t.cfg.Connections {
		return false
	}
	t.making++
	return true
}

func (t *Target) made() {
	t.mu.Lock()
	t.making--
	t.mu.Unlock()
}

// crowded reports whether more than half of the connections that there may be are there.
func (t *Target) crowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return 2*len(t.queues) > t.cfg.Connections
}

// pause waits for a moment, or moves on.
func (t *Target) pause(ctx context.Context) error {
	if t.cfg.Step != nil {
		return errors.Join(ctx.Err(), t.cfg.Step())
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}

// watch looks at the clock: for hosts that went without a word, and for those that say
// nothing at all.
func (t *Target) watch() {
	defer close(t.watchDone)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.closed.Done():
			return
		case <-tick.C:
			t.expire(t.cfg.Now())
		}
	}
}

// expire ends the connections of whoever's time is up.
func (t *Target) expire(now time.Time) {
	type end struct {
		q     *queue
		cause error
	}
	var ends []end
	t.mu.Lock()
	for _, q := range t.queues {
		switch a := q.association.Load(); {
		case a == nil:
			if now.Sub(q.born) > t.cfg.HandshakeTimeout {
				ends = append(ends, end{q, ErrHandshake})
			}
		case a.heard.Swap(false):
			a.ctrl.Alive(now)
		}
	}
	for _, ctrl := range t.directory.Expire(now) {
		for _, q := range t.queues {
			if a := q.association.Load(); a != nil && a.ctrl == ctrl {
				a.ready.Store(false)
				ends = append(ends, end{q, ErrKeepAlive})
			}
		}
	}
	t.mu.Unlock()
	for _, e := range ends {
		e.q.fail(e.cause)
	}
}

// association is one host's controller, as all of its queues see it.
type association struct {
	ctrl *core.Controller
	sub  *subsystem // nil: discovery
	// ready tells that I/O commands are carried out: CC.EN, and no fatal error. It is
	// written under the target's lock.
	ready atomic.Bool
	// heard is set by commands, and cleared by who looks at the clock.
	heard atomic.Bool
}
