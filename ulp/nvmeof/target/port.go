package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// port is a device that hosts come by.
type port struct {
	target *Target
	dev    transport.Device
	policy rw.Policy
	// depth is the largest number of entries of a queue that the device has room for.
	depth int

	mu      sync.Mutex
	pollers []*poller
	queues  sync.WaitGroup // in the making, or alive
	list    map[*queue]struct{}
	spares  []*arena
	ending  chan struct{} // closed when nobody lingers any more
	closing bool          // no arena is kept any more
	freeing sync.Mutex    // held while a spare is freed, and before mu

	// Where nothing runs by itself: what Poll looks at.
	listener transport.Listener
	settling []*queue // accepted, and not connected yet
}

// poller is a completion queue, and the goroutine that polls it.
type poller struct {
	*rw.Poller
	sweep  sweep
	room   int // completions that no queue has claimed
	queues int
	failed bool // it gets no more queues
	stop   context.CancelFunc
	ended  chan error
}

func newPort(t *Target, dev transport.Device) (*port, error) {
	p := &port{target: t, dev: dev, policy: policy(dev.Caps()), list: make(map[*queue]struct{}), ending: make(chan struct{})}
	caps := dev.Caps()
	// Twice as many receives as entries: see slot.
	p.depth = min(t.cfg.QueueDepth, caps.MaxRecvWR/2)
	if p.depth < 2 || caps.MaxRecvSGE < 2 && t.cfg.InCapsule > 0 {
		return nil, fmt.Errorf("target: %s has too small queues", caps.Device)
	}
	if _, err := p.sizes(p.depth, t.cfg.MaxTransfer); err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	return p, nil
}

// adminDepth is the largest number of entries of an admin queue.
func (p *port) adminDepth() int { return min(adminDepth, p.dev.Caps().MaxRecvWR/2) }

// policy is how READs are protected. On iWARP the host sees the sink's key; where
// registering each sink takes calls, the queue's own memory is the sink: its protection
// domain belongs to this host alone, and so does what it holds (see stayWith), and no right to
// write to it exists. What is left to the host is to kill its own connection.
func policy(caps *transport.Caps) rw.Policy {
	if caps.Protocol == transport.IWARP && caps.FastReg.MaxPages == 0 && !caps.ReadSinkNeedsRemoteWrite {
		return rw.Policy{Sink: rw.SinkDirect}
	}
	return rw.Policy{}
}

// sizes are what a queue takes: each command may READ or WRITE once, and has a response.
func (p *port) sizes(entries, transfer int) (rw.Sizes, error) {
	return rw.Size(rw.Workload{
		Reads: entries, Writes: entries, Bytes: uint64(transfer), Aligned: true, Sends: entries, Recvs: 2 * entries,
	}, p.dev.Caps(), p.policy, 1)
}

// serve takes connection requests until ctx ends.
func (p *port) serve(ctx context.Context, l transport.Listener) error {
	for {
		conn, err := l.Next(ctx)
		if err != nil {
			return err
		}
		p.queues.Add(1)
		go func() {
			if !p.welcome(ctx, conn) {
				p.queues.Done()
			}
		}()
	}
}

// rejection is a connection request that is not accepted.
type rejection nvme.RejectReason

func (r rejection) Error() string { return nvme.RejectReason(r).String() }

// welcome answers a connection request. It reports whether there is a queue now, which
// says itself when it has ended.
func (p *port) welcome(ctx context.Context, conn transport.Conn) bool {
	q := p.admit(conn)
	if q == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, p.target.cfg.HandshakeTimeout)
	defer cancel()
	// Receives are posted: the host may send as soon as it hears of this.
	if _, err := q.ep.Accept(ctx, q.acceptance()); err != nil {
		q.fail(fmt.Errorf("accept: %w", err))
		return true
	}
	p.target.accepted.Add(1)
	return true
}

// admit makes the queue of a connection request, ready to be accepted, or rejects it and
// returns nil.
func (p *port) admit(conn transport.Conn) *queue {
	q, err := p.prepare(conn)
	if err == nil {
		return q
	}
	log := p.target.log.With("host", conn.RemoteAddr())
	p.target.rejected.Add(1)
	reason := nvme.RejectNoResources
	var r rejection
	if errors.As(err, &r) {
		reason = nvme.RejectReason(r)
	}
	log.Warn("connection rejected", "err", err)
	private := make([]byte, nvme.ConnRejectLen)
	(&nvme.ConnReject{Reason: reason}).Encode(private)
	if err := errors.Join(conn.Reject(private), conn.Close()); err != nil {
		log.Debug("reject failed", "err", err)
	}
	return nil
}

// prepare makes the queue of a connection request, ready to be accepted.
func (p *port) prepare(conn transport.Conn) (*queue, error) {
	info := conn.Request()
	var r nvme.ConnRequest
	if r.Decode(info.PrivateData) != nil {
		return nil, rejection(nvme.RejectLength)
	}
	entries, largest := int(r.SendQueueSize)+1, min(p.depth, p.target.cfg.QueueDepth)
	if r.QueueID == 0 {
		largest = p.adminDepth()
	}
	switch {
	case r.RecordFormat != 0:
		return nil, rejection(nvme.RejectRecordFormat)
	case int(r.QueueID) > p.target.cfg.IOQueues:
		return nil, rejection(nvme.RejectQueueID)
	case entries < 2 || entries > largest:
		return nil, rejection(nvme.RejectSendQueueSize)
	case r.RecvQueueSize == 0:
		return nil, rejection(nvme.RejectRecvQueueSize)
	case info.InitiatorDepth == 0:
		return nil, rejection(nvme.RejectIRD) // the host lets nobody READ
	}
	if !p.target.makeRoom() {
		return nil, rejection(nvme.RejectNoResources)
	}
	defer p.target.made()
	return newQueue(p, conn, &r, entries)
}

// assign finds a poller with room for a queue, or starts one.
func (p *port) assign(entries int) (*poller, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *poller
	for _, x := range p.pollers {
		if !x.failed && x.room >= entries && (best == nil || x.queues < best.queues) {
			best = x
		}
	}
	if best == nil || best.queues > 0 && len(p.pollers) < p.target.cfg.Pollers {
		// Room for a few queues, so that pollers are as many as were asked for, mostly.
		size := max(min(16*entries, p.dev.Caps().MaxCQE), entries)
		started := &poller{room: size, ended: make(chan error, 1)}
		cfg := rw.PollerConfig{Now: p.target.cfg.Now, Spin: p.target.cfg.Spin, Swept: started.sweep.end}
		stepped := p.target.cfg.Step != nil
		if stepped {
			cfg.Workers = -1
		}
		x, err := rw.NewPoller(p.dev, size, cfg)
		switch {
		case err == nil:
			var ctx context.Context
			ctx, started.stop = context.WithCancel(context.Background())
			started.Poller = x
			best = started
			p.pollers = append(p.pollers, best)
			if stepped {
				best.ended <- context.Canceled // it never began
				break
			}
			go p.run(ctx, best)
		case best == nil:
			return nil, err
		}
	}
	best.room -= entries
	best.queues++
	return best, nil
}

// run polls until the poller is stopped. When its completion queue fails, so have the queues
// that use it: it gets no others, but what those leave for it to do has to be done.
func (p *port) run(ctx context.Context, x *poller) {
	err := x.Run(ctx, nil)
	p.mu.Lock()
	x.failed = true
	p.mu.Unlock()
	for ctx.Err() == nil {
		x.Poll(nil)
		time.Sleep(time.Millisecond)
	}
	x.ended <- err
}

func (p *port) resign(x *poller, entries int) {
	p.mu.Lock()
	x.room += entries
	x.queues--
	p.mu.Unlock()
}

// close ends all connections, and waits until nothing of them is left.
func (p *port) close(cause error) error {
	if !errors.Is(cause, ErrClosed) {
		cause = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	close(p.ending)
	ended := make(chan struct{})
	go func() { p.queues.Wait(); close(ended) }()
	for {
		p.mu.Lock()
		for q := range p.list {
			q.fail(cause)
		}
		p.mu.Unlock()
		select {
		case <-ended:
			p.freeSpares()
			return p.closePollers()
		case <-time.After(10 * time.Millisecond): // one in the making may have come
		}
	}
}

func (p *port) closePollers() error {
	var errs []error
	for _, x := range p.pollers {
		x.stop()
		if err := <-x.ended; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}

// registrations are what a queue's pool holds.
func registrations(s *rw.Sizes, transfer int, caps *transport.Caps) mrpool.Config {
	cfg := mrpool.Config{FastMRs: s.FastMRs, SyncMRs: s.SyncMRs, Windows: s.Windows}
	if cfg.FastMRs > 0 {
		cfg.FastPages = min(transfer/page+1, caps.FastReg.MaxPages)
	}
	return cfg
}

// discoveryEntry is how hosts find this port: as the one who asks has found it.
func (p *port) discoveryEntry(local string) (e nvme.DiscoveryEntry) {
	host, service, err := net.SplitHostPort(local)
	if err != nil {
		host = local
	}
	ip, err := netip.ParseAddr(host)
	if err == nil {
		ip = ip.Unmap().WithZone("") // a zone means something here only
		host = ip.String()
	}
	e.Address, e.Service, e.PortID, e.AdminQueueSize = host, service, 1, uint16(p.adminDepth())
	e.Family = nvme.FamilyIPv4
	if ip.Is6() {
		e.Family = nvme.FamilyIPv6
	}
	switch p.dev.Caps().Protocol {
	case transport.InfiniBand:
		e.Provider = nvme.ProviderIB
	case transport.RoCE:
		e.Provider = nvme.ProviderRoCEv2
	case transport.IWARP:
		e.Provider = nvme.ProviderIWARP
	}
	return e
}
