package main

import (
	"rdmarw/mrpool"
	"rdmarw/rw"
	"rdmarw/transport"
)

// side is one end of the connection with what it takes.
type side struct {
	dev    transport.Device
	pd     transport.PD
	pool   *mrpool.Pool
	poller *rw.Poller
	ep     *rw.Endpoint
	depth  int // of READs

	scattered  area // the shape's pieces
	contiguous area // as many bytes in one piece
	message    area // a few bytes to send or receive
}

// open makes everything but the endpoint.
func (s *side) open(r *rig, sh shape) error {
	var err error
	if s.pd, err = s.dev.NewPD(); err != nil {
		return err
	}
	r.onClose(s.pd.Close)
	if err := s.allocate(r, &s.scattered, sh.lengths()); err != nil {
		return err
	}
	if err := s.allocate(r, &s.contiguous, []int{sh.bytes}); err != nil {
		return err
	}
	if err := s.allocate(r, &s.message, []int{8}); err != nil {
		return err
	}
	if s.pool, err = mrpool.New(s.pd, s.poolConfig(sh)); err != nil {
		return err
	}
	r.onClose(s.pool.Close)
	// Devices may grant more than was asked for, so there is room for several times
	// as much. No workers: blocking calls are made, and measured, inside Poll.
	q := s.queues(sh)
	entries := min(4*(q.MaxSendWR+q.MaxRecvWR), s.dev.Caps().MaxCQE)
	if s.poller, err = rw.NewPoller(s.dev, entries, rw.PollerConfig{Workers: -1}); err != nil {
		return err
	}
	r.onClose(s.poller.Close)
	return nil
}

func (s *side) allocate(r *rig, a *area, lengths []int) error {
	placed, size := layout(lengths)
	access := transport.LocalWrite
	if s.dev.Caps().Windows != transport.NoWindows {
		access |= transport.BindWindow
	}
	region, err := s.dev.NewRegion(transport.RegionConfig{Size: size, Access: access})
	if err != nil {
		return err
	}
	r.onClose(region.Close)
	if err := s.pd.AddRegion(region); err != nil {
		return err
	}
	r.onClose(func() error { return s.pd.RemoveRegion(region) })
	placed.place(region)
	*a = placed
	return nil
}

// queues are sizes that hold the longest chain for a shape: a registration, a
// transfer and an invalidation for each piece. One slot is kept for the end.
func (s *side) queues(sh shape) transport.QueueCaps {
	caps := s.dev.Caps()
	return transport.QueueCaps{
		MaxSendWR:  min(max(128, 3*sh.pieces+1), caps.MaxSendWR),
		MaxRecvWR:  1, // nothing is received
		MaxSendSGE: caps.MaxSendSGE,
		MaxRecvSGE: 1,
	}
}

// poolConfig has as many registrations as the shape takes, of each kind that the
// device has. Not more: fast ones with remote rights are used in turn, so that
// all of them are warm after the warm-up.
func (s *side) poolConfig(sh shape) mrpool.Config {
	caps := s.dev.Caps()
	cfg := mrpool.Config{SyncMRs: sh.pieces}
	if pages := caps.FastReg.MaxPages; pages > 0 {
		cfg.FastPages, cfg.PageShift = min(pages, 256), pageShift
		for _, a := range []*area{&s.scattered, &s.contiguous} {
			cfg.FastMRs = max(cfg.FastMRs, fastRegistrations(a.pieces, cfg.FastPages, caps.FastReg.Gaps))
		}
	} else if caps.Windows != transport.NoWindows {
		cfg.Windows = sh.pieces
	}
	return cfg
}

func fastRegistrations(list []transport.Piece, pages int, gaps bool) (n int) {
	for at := (transport.Cursor{}); at.Piece < len(list); n++ {
		at = transport.Coverage(list, at, 0, pageShift, pages, gaps).Next
	}
	return n
}
