package rping

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"rdmarw/rw"
	"rdmarw/transport"
)

// Server answers clients. Fields are not to be changed once it serves.
type Server struct {
	// Device is what the listener listens on.
	Device transport.Device
	// MaxSize is the largest ping in bytes that is taken, at most [MaxSize]. Zero:
	// 64 KiB.
	MaxSize int
	// MaxClients is how many are served at a time; more are rejected. Zero: 64.
	MaxClients int
	// Verify checks what was read against the pattern that clients send.
	Verify bool
	// Log gets connections at level Info and pings at level Debug. Nil: nothing is
	// logged.
	Log *slog.Logger
	// OnEnd, if not nil, is called when a connection has ended, with how many pings
	// were answered and nil if the client disconnected between two of them. Calls
	// for different connections may come at the same time.
	OnEnd func(client string, pings int, err error)
}

// MaxSize is the largest ping: what one fast registration of usual size covers.
// C's rping stops at 65,535 bytes.
const MaxSize = 1 << 20

// Serve answers the clients of a listener until ctx ends, and then ends their
// connections. It returns ctx's error, or that of the listener or the device if it
// can't go on. The listener stays the caller's.
func (s *Server) Serve(ctx context.Context, l transport.Listener) (err error) {
	log := logger(s.Log)
	size, err := sizeOr(s.MaxSize, 64<<10)
	if err != nil {
		return err
	}
	clients := s.MaxClients
	if clients == 0 {
		clients = 64
	}
	poller, stop, err := startPoller(s.Device, clients)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		wg.Wait()
		err = errors.Join(err, stop())
	}()
	slots := make(chan struct{}, clients)
	for {
		conn, err := l.Next(ctx)
		if err != nil {
			return err
		}
		peer := conn.RemoteAddr()
		select {
		case slots <- struct{}{}:
		default:
			log.Warn("client rejected: too many", "client", peer, "most", clients)
			err := errors.Join(conn.Reject(nil), conn.Close())
			if err != nil {
				log.Warn("reject failed", "client", peer, "err", err)
			}
			continue
		}
		wg.Go(func() {
			pings, err := s.serveConn(ctx, log.With("client", peer), poller, conn, size)
			<-slots
			if err != nil {
				log.Warn("client failed", "client", peer, "pings", pings, "err", err)
			} else {
				log.Info("client left", "client", peer, "pings", pings)
			}
			if s.OnEnd != nil {
				s.OnEnd(peer, pings, err)
			}
		})
	}
}

// serveConn answers one client until it disconnects.
func (s *Server) serveConn(ctx context.Context, log *slog.Logger, poller *rw.Poller, conn transport.Conn, size int) (pings int, err error) {
	l, err := newLink(s.Device, poller, conn, size)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	if err := l.postReceive(); err != nil { // the client speaks first, and may be quick
		return 0, err
	}
	// A client that is gone by now may have said something before: that comes first.
	if err := establish(ctx, l.ep.Accept); err != nil && !errors.Is(err, transport.ErrDisconnected) {
		return 0, err
	}
	log.Info("client connected")
	want := make([]byte, size)
	for {
		source, err := l.receive(ctx)
		if errors.Is(err, transport.ErrDisconnected) {
			return pings, nil // how a session ends
		}
		left := false
		if err == nil {
			left, err = s.answer(ctx, l, pings, source, want)
		}
		if err != nil {
			return pings, fmt.Errorf("ping %d: %w", pings, err)
		}
		log.Debug("answered", "ping", pings, "data", shown(l.region.Bytes()[:source.Len]))
		pings++
		if left {
			return pings, nil
		}
	}
}

// answer answers ping n, which is in the client's memory at source. It reports
// whether the client has left meanwhile.
func (s *Server) answer(ctx context.Context, l *link, n int, source transport.Remote, want []byte) (left bool, err error) {
	if err := checkOffer(source, 1, len(want)); err != nil {
		return false, err
	}
	data, want := l.region.Bytes()[:source.Len], want[:source.Len]
	if s.Verify {
		fill(want, n)
		spoil(data, want)
	}
	local := []transport.Piece{l.region.Piece(0, source.Len)}
	if err := l.ep.Read(ctx, local, source); err != nil {
		return false, err
	}
	if s.Verify {
		if err := compare(data, want); err != nil {
			return false, err
		}
	}

	if err := l.postReceive(); err != nil {
		return false, err
	}
	if err := l.tell(ctx, transport.Remote{}); err != nil {
		return false, err
	}
	sink, err := l.receive(ctx)
	if err != nil {
		return false, err
	}
	if err := checkOffer(sink, len(data), 1<<32-1); err != nil {
		return false, err
	}

	if err := l.postReceive(); err != nil {
		return false, err
	}
	if err := l.ep.Prepare(&l.write, rw.Transfer{Op: rw.Write, Local: local, Remote: []transport.Remote{sink}}); err != nil {
		return false, err
	}
	err = l.tell(ctx, transport.Remote{}, &l.write)
	if errors.Is(err, transport.ErrDisconnected) {
		// A client may leave as soon as it has this message: before the
		// acknowledgement got here.
		return true, nil
	}
	return false, err
}
