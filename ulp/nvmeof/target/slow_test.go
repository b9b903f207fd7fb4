package target

import (
	"testing"

	"rdmarw/ulp/nvmeof/backend"
)

// slowBackend ends a request when it is told to.
type slowBackend struct {
	backend.Backend
	arrived, release chan struct{}
}

func newSlowBackend(t testing.TB) *slowBackend {
	return &slowBackend{Backend: memory512(t, 1<<20), arrived: make(chan struct{}, 64), release: make(chan struct{})}
}

func (s *slowBackend) Submit(r *backend.Request) {
	go func() {
		s.arrived <- struct{}{}
		<-s.release
		s.Backend.Submit(r)
	}()
}
