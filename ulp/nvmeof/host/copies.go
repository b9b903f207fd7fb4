package host

import (
	"context"
	"errors"
	"sync"

	"rdmarw/transport"
)

// copies is the memory that ReadAt and WriteAt copy through: buffers of one size, in
// one region that is made when it is first needed.
type copies struct {
	mu     sync.Mutex
	region *transport.Region
	size   int      // of a buffer in bytes
	free   chan int // offsets
	closed bool
}

// with has f use a buffer: size bytes of r, at an offset.
func (s *copies) with(ctx context.Context, c *Controller, f func(r *transport.Region, at, size int) (int, error)) (int, error) {
	if err := s.prepare(c); err != nil {
		return 0, err
	}
	at, err := await(ctx, c.cfg.Step, s.free, c.life.Done())
	if err != nil {
		return 0, ErrClosed
	}
	defer func() { s.free <- at }()
	return f(s.region, at, s.size)
}

func (s *copies) prepare(c *Controller) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.region != nil {
		return nil
	}
	s.size = (c.MaxTransfer() + 1<<16 - 1) &^ (1<<16 - 1) // holds a block of any size
	s.region, err = c.NewRegion(c.cfg.CopyBuffers * s.size)
	if err != nil {
		return err
	}
	s.free = make(chan int, c.cfg.CopyBuffers)
	for i := range c.cfg.CopyBuffers {
		s.free <- i * s.size
	}
	return nil
}

// close frees the memory, when nobody uses it any more: all commands are over.
func (s *copies) close(c *Controller) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if s.region == nil {
		return nil
	}
	for range cap(s.free) {
		<-s.free
	}
	return errors.Join(c.RemoveRegion(s.region), s.region.Close())
}
