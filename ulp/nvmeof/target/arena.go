package target

import (
	"errors"
	"net"
	"slices"
	"time"

	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// arena is what a queue's messages and data lie in, what its transfers are registered by, and
// the slots of its commands: a region, in a protection domain that one host uses at a time,
// or one address alone if it may not pass from host to host.
type arena struct {
	kind   arenaKind
	region *transport.Region
	pool   *mrpool.Pool
	slots  []slot
	timer  *time.Timer // while it is a spare

	// Under the port's lock.
	users  int  // queues whose queue pair is in its protection domain
	doomed bool // no other queue gets it: it is freed when it has no users any more
}

// arenaKind is what arenas have to have in common to take each other's place.
type arenaKind struct {
	admin   bool
	entries int
	// address is that of the host that it stays with. Empty: it may pass to another.
	address string
}

// stayWith is the address that arenas of a connection stay with, or empty. Where the region
// itself is the sink of READs, hosts see its key. With that, on siw, where nothing checks the
// right to READ, the next host could read what this one has left; and this one can have left
// a registration that it has killed. Where a sink can be READ, the strict one is no better
// before the data has come.
func (p *port) stayWith(remote string) string {
	if p.policy.Sink == rw.SinkStrict && !p.dev.Caps().RemoteReadUnchecked {
		return ""
	}
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}

// spareLife is for how long an arena is kept for the next queue. Making one takes time by
// its size; hosts that reset their controllers come back at once.
const spareLife = time.Second

// newArena makes an arena, or takes a spare one. Its user drops it.
func (p *port) newArena(kind arenaKind, size int, cfg mrpool.Config) (*arena, error) {
	if a := p.takeSpare(func(a *arena) bool { return a.kind == kind }); a != nil {
		return a, nil
	}
	// The region grants a peer nothing: all data is moved from here.
	region, err := p.dev.NewRegion(transport.RegionConfig{Size: size, Access: transport.LocalWrite})
	if err != nil {
		return nil, err
	}
	pool, err := mrpool.NewIsolated(p.dev, cfg, region)
	if err != nil {
		return nil, errors.Join(err, region.Close())
	}
	return &arena{kind: kind, region: region, pool: pool, users: 1}, nil
}

// close frees the arena.
func (a *arena) close() error { return errors.Join(a.pool.Close(), a.region.Close()) }

// whole reports whether nothing of the arena is in use any more. The queue pair is gone or has
// failed, and with it whoever knew a key.
func (a *arena) whole() bool {
	for kind := range transport.NumRegistrationKinds {
		s := a.pool.Stats(transport.RegistrationKind(kind))
		if s.Out+s.Broken+s.Reserved > 0 {
			return false
		}
	}
	return true
}

// offer makes the arena a spare, for a while, if nothing of it is in use. Its user may have a
// queue pair left, of which nothing is under way.
func (p *port) offer(a *arena) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing || p.target.cfg.Step != nil || !a.whole() {
		return false
	}
	p.spares = append(p.spares, a)
	a.timer = time.AfterFunc(spareLife, func() {
		p.freeing.Lock()
		defer p.freeing.Unlock()
		if p.takeSpare(func(other *arena) bool { return other == a }) != nil {
			p.free(a)
		}
	})
	return true
}

// drop is the end of a use of the arena. If it is doomed, by this user or another, the last one
// frees it: a protection domain can't be freed before the queue pairs in it.
func (p *port) drop(a *arena, doomed bool) error {
	p.mu.Lock()
	a.users--
	a.doomed = a.doomed || doomed
	free := a.doomed && a.users == 0
	p.mu.Unlock()
	if !free {
		return nil
	}
	return a.close()
}

// retire is the end of a use of the arena: the next queue may have it if this one has ended well.
func (p *port) retire(a *arena, well bool) error { return p.drop(a, !well || !p.offer(a)) }

// takeSpare takes a spare arena, and is its user then, or returns nil. The latest comes first: it
// is in caches.
func (p *port) takeSpare(fits func(*arena) bool) *arena {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.spares) - 1; i >= 0; i-- {
		if a := p.spares[i]; fits(a) {
			p.spares = slices.Delete(p.spares, i, i+1)
			a.timer.Stop()
			a.users++
			return a
		}
	}
	return nil
}

// free frees an arena that was a spare.
func (p *port) free(a *arena) {
	if err := p.drop(a, true); err != nil {
		p.target.log.Error("memory of an ended connection can't be freed", "err", err)
	}
}

// freeSpares frees all spare arenas, and has none kept any more.
func (p *port) freeSpares() {
	p.freeing.Lock() // one may be about to be freed by its timer
	defer p.freeing.Unlock()
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	for {
		a := p.takeSpare(func(*arena) bool { return true })
		if a == nil {
			return
		}
		p.free(a)
	}
}
