//go:build ibverbs && linux && cgo

package ibverbs

import (
	"fmt"
	"strings"
	"sync"

	"rdmarw/transport"
)

// kind names what an object can be used by.
type kind uint8

const (
	kindPD kind = iota
	kindCQ
	kindRegion
	kindConn
	kindListener
	kindQP
	kindSRQ
	kindRegistration
	numKinds
)

var kindNames = [numKinds]string{
	"protection domain", "CQ", "region", "connection", "listener", "queue pair", "shared receive queue", "registration",
}

// children counts what uses an object, and keeps it from being closed under
// them: verbs would refuse some of that, and crash on the rest.
type children struct {
	mu     sync.Mutex
	n      [numKinds]int
	closed bool // nobody may use it any more

	destroying sync.Mutex
	destroyed  bool
}

// add notes a user. It fails with ErrClosed.
func (c *children) add(k kind) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return transport.ErrClosed
	}
	c.n[k]++
	return nil
}

func (c *children) drop(k kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[k]--
}

// close shuts the object for new users, and destroys it, once. It fails with
// ErrBusy while there are users. Where destroy fails the object stays shut, and the
// next call tries again, so destroy must go on from where it failed.
func (c *children) close(what, device string, destroy func() error) error {
	if err := c.shut(what, device); err != nil {
		return err
	}
	c.destroying.Lock()
	defer c.destroying.Unlock()
	if c.destroyed {
		return nil
	}
	if err := destroy(); err != nil {
		return err
	}
	c.destroyed = true
	return nil
}

func (c *children) shut(what, device string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []string
	for k, n := range c.n {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s(s)", n, kindNames[k]))
		}
	}
	if left != nil {
		return &transport.Error{Op: "close " + what, Device: device, WR: -1, Err: transport.ErrBusy,
			Detail: "still open: " + strings.Join(left, ", ")}
	}
	c.closed = true
	return nil
}
