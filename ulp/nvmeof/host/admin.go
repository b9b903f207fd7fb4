package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/nvme"
)

// call is a request that somebody waits for.
type call struct {
	Request
	done chan struct{}
	list []transport.Piece // of the data, where that is a part of another
	left bool              // nobody waits for it any more, and it isn't over
}

var calls = sync.Pool{New: func() any {
	c := &call{done: make(chan struct{}, 1)}
	c.OnDone = func(*Request) { c.done <- struct{}{} }
	return c
}}

// free keeps the call for another use, unless it may still end.
func (c *call) free() {
	if !c.left {
		calls.Put(c)
	}
}

// do carries out a prepared call on a queue, and waits.
func (a *association) do(ctx context.Context, q *queue, c *call) error {
	i, err := await(ctx, a.step(), q.free, a.lost)
	if err != nil {
		return a.orLost(err)
	}
	if err := q.start(i, &c.Request, a.c.cfg.CommandTimeout); err != nil {
		return err
	}
	return a.finish(ctx, c)
}

// finish waits for a call that was started. What the device has can't be taken back: if
// ctx ends it waits for CancelGrace, and then ends the connection to get the memory
// back. So when it returns, the memory is the caller's in any case.
func (a *association) finish(ctx context.Context, c *call) error {
	if _, err := await(ctx, a.step(), c.done, nil); err == nil {
		return c.err
	} else if ctx.Err() == nil { // a simulation that doesn't move
		c.left = true
		a.fail(err)
		return err
	}
	if a.awaitGrace(c) != nil {
		a.fail(fmt.Errorf("%s was canceled and is not answered: %w", c.name, ctx.Err()))
		if _, err := await(context.Background(), a.step(), c.done, nil); err != nil {
			c.left = true
			return errors.Join(ctx.Err(), err)
		}
	}
	if errors.Is(c.err, ErrLost) {
		return ctx.Err()
	}
	return c.err // it made it
}

// awaitGrace waits for a call for CancelGrace.
func (a *association) awaitGrace(c *call) error {
	cfg := &a.c.cfg
	ctx, step := context.Background(), a.step()
	if step == nil {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, cfg.CancelGrace)
		defer cancel()
	} else {
		until := cfg.Now().Add(cfg.CancelGrace)
		step = func() error {
			if !cfg.Now().Before(until) {
				return context.DeadlineExceeded
			}
			return a.stepOnce()
		}
	}
	_, err := await(ctx, step, c.done, nil)
	return err
}

// orLost is why the association ended, if that is what stopped a wait.
func (a *association) orLost(err error) error {
	if !errors.Is(err, errStopped) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// execute carries out an admin command without data and returns its result.
func (a *association) execute(ctx context.Context, name string, cmd nvme.Command) (uint64, error) {
	c := calls.Get().(*call)
	defer c.free()
	if err := c.prepare(nil, name, cmd, nil, 0); err != nil {
		return 0, err
	}
	err := a.do(ctx, a.admin, c)
	return c.result, err
}

// transact carries out a command with n bytes of data in the admin memory, which put
// fills, or get reads.
func (a *association) transact(ctx context.Context, q *queue, name string, cmd nvme.Command, n int, put func([]byte), get func([]byte) error) (uint64, error) {
	if _, err := await(ctx, a.step(), a.memoryIs, a.lost); err != nil {
		return 0, a.orLost(err)
	}
	defer func() { a.memoryIs <- struct{}{} }()
	data := a.memory.Bytes()[:n]
	clear(data)
	if put != nil {
		put(data)
	}
	c := calls.Get().(*call)
	defer c.free()
	if err := c.prepare(nil, name, cmd, []transport.Piece{a.memory.Piece(0, uint32(n))}, uint64(n)); err != nil {
		return 0, err
	}
	err := a.do(ctx, q, c)
	if err == nil && get != nil {
		err = get(data)
	}
	return c.result, err
}

// fetch carries out an admin command that returns n bytes.
func (a *association) fetch(ctx context.Context, name string, cmd nvme.Command, n int, get func([]byte) error) error {
	_, err := a.transact(ctx, a.admin, name, cmd, n, nil, get)
	return err
}

func (a *association) property(ctx context.Context, p nvme.Property) (uint64, error) {
	access := nvme.PropertyAccess{Property: p, Wide: p == nvme.PropCAP}
	v, err := a.execute(ctx, fmt.Sprintf("get property %#x", uint32(p)), access.Command(nvme.PropertyGet))
	if !access.Wide {
		v &= 1<<32 - 1
	}
	return v, err
}

func (a *association) setProperty(ctx context.Context, p nvme.Property, v uint64) error {
	access := nvme.PropertyAccess{Property: p, Value: v}
	_, err := a.execute(ctx, fmt.Sprintf("set property %#x", uint32(p)), access.Command(nvme.PropertySet))
	return err
}

// Identify returns what the controller says about itself: as it was asked when it was
// last connected.
func (c *Controller) Identify() nvme.Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.id
}

// Capabilities returns the controller's property CAP, as it was when it was last
// connected.
func (c *Controller) Capabilities() nvme.Capabilities {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.caps
}

// Property reads a controller property.
func (c *Controller) Property(ctx context.Context, p nvme.Property) (v uint64, err error) {
	err = c.again(ctx, func(a *association) error {
		v, err = a.property(ctx, p)
		return err
	})
	return v, err
}

// Namespaces returns the ids of the controller's active namespaces, in ascending
// order.
func (c *Controller) Namespaces(ctx context.Context) ([]uint32, error) {
	var all []uint32
	for {
		cmd := nvme.Command{Opcode: nvme.Identify, CDW10: uint32(nvme.CNSActiveList)}
		if len(all) > 0 {
			cmd.NSID = all[len(all)-1] // those above it
		}
		var ids []uint32
		err := c.fetch(ctx, "identify active namespaces", cmd, nvme.IdentifyLen, func(b []byte) (err error) {
			ids, err = nvme.DecodeActive(b)
			return err
		})
		if err != nil {
			return nil, err
		}
		last := cmd.NSID
		for _, id := range ids {
			if id <= last { // or the list might never end
				return nil, fmt.Errorf("%w: namespace %d is listed behind %d", ErrProtocol, id, last)
			}
			last = id
		}
		all = append(all, ids...)
		if len(ids) < nvme.MaxActive {
			return all, nil
		}
	}
}

// Log fills dst with a log page from an offset on: a multiple of 4, as the length must
// be. nsid is [nvme.AllNamespaces] for logs of the controller.
func (c *Controller) Log(ctx context.Context, page nvme.LogPage, nsid uint32, offset uint64, dst []byte) error {
	if len(dst)%4 != 0 || offset%4 != 0 {
		return fmt.Errorf("log page: %d bytes at %d, both have to be multiples of 4: %w", len(dst), offset, transport.ErrInvalid)
	}
	for len(dst) > 0 {
		n := min(len(dst), adminMemory)
		request := nvme.LogRequest{Page: page, Length: uint64(n), Offset: offset}
		err := c.fetch(ctx, fmt.Sprintf("get log page %#x", uint8(page)), request.Command(nsid), n, func(b []byte) error {
			copy(dst, b)
			return nil
		})
		if err != nil {
			return err
		}
		dst, offset = dst[n:], offset+uint64(n)
	}
	return nil
}

// Health returns the SMART log.
func (c *Controller) Health(ctx context.Context) (h nvme.Health, err error) {
	var b [nvme.HealthLen]byte
	if err := c.Log(ctx, nvme.LogHealth, nvme.AllNamespaces, 0, b[:]); err != nil {
		return h, err
	}
	return h, h.Decode(b[:])
}

// Feature returns the current value of a feature.
func (c *Controller) Feature(ctx context.Context, f nvme.Feature) (v uint32, err error) {
	err = c.again(ctx, func(a *association) error {
		r, err := a.execute(ctx, fmt.Sprintf("get feature %#x", uint8(f)), nvme.Command{Opcode: nvme.GetFeatures, CDW10: uint32(f)})
		v = uint32(r)
		return err
	})
	return v, err
}

// KeepAlive sends a Keep Alive and waits for the answer: proof that the controller is
// there.
func (c *Controller) KeepAlive(ctx context.Context) (took time.Duration, err error) {
	begun := c.cfg.Now()
	err = c.again(ctx, func(a *association) error {
		_, err := a.execute(ctx, "keep alive", nvme.Command{Opcode: nvme.KeepAlive})
		return err
	})
	return c.cfg.Now().Sub(begun), err
}

func (c *Controller) fetch(ctx context.Context, name string, cmd nvme.Command, n int, get func([]byte) error) error {
	return c.again(ctx, func(a *association) error { return a.fetch(ctx, name, cmd, n, get) })
}
