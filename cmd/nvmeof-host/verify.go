package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"

	"golang.org/x/sync/errgroup"
)

// fill writes what byte range [at, at+len(b)) of the pattern holds: words that are
// different at each place and for each seed.
func fill(b []byte, at int64, seed uint64) {
	for i := 0; i+8 <= len(b); i += 8 {
		x := uint64(at+int64(i)) ^ seed*0x9E3779B97F4A7C15
		x ^= x >> 31
		x *= 0xBF58476D1CE4E5B9
		x ^= x >> 27
		binary.LittleEndian.PutUint64(b[i:], x)
	}
}

// verify writes the pattern, and reads it back with other borders between transfers.
func verify(ctx context.Context, o *options, p *program) error {
	return o.opened(ctx, p, func(c *host.Controller, ns *host.Namespace) error {
		from, length, err := o.extent(ns)
		if err != nil {
			return err
		}
		block := int64(ns.BlockSize())
		if from%block != 0 || length%block != 0 {
			return fmt.Errorf("%d bytes at %d: blocks have %d bytes", length, from, block)
		}
		most := int64(o.size)
		if most == 0 {
			most = 1 << 20
		}
		begun := time.Now()
		v := &verification{c: c, ns: ns, seed: o.seed, most: max(most/block, 1) * block, workers: min(o.depth*o.queues, 16)}
		if err := v.pass(ctx, host.Write, from, length); err != nil {
			return err
		}
		if err := ns.Flush(ctx); err != nil {
			return err
		}
		written := time.Since(begun)
		if err := v.pass(ctx, host.Read, from, length); err != nil {
			return err
		}
		s := c.Stats()
		fmt.Fprintf(p.stdout, "verified %d bytes: written in %.1f s, read in %.1f s; %d commands, %d in capsule, %d exposed, %d remotely invalidated\n",
			length, written.Seconds(), time.Since(begun).Seconds()-written.Seconds(), s.Commands, s.InCapsule, s.Exposed, s.RemoteInvalidated)
		return nil
	})
}

type verification struct {
	c       *host.Controller
	ns      *host.Namespace
	seed    uint64
	most    int64 // bytes of the largest transfer
	workers int
}

// pass writes or checks the range, in transfers of mixed sizes, several at a time.
func (v *verification) pass(ctx context.Context, op host.Op, from, length int64) error {
	type job struct{ at, n int64 }
	jobs := make(chan job)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(jobs)
		random := rand.New(rand.NewPCG(v.seed, uint64(op)))
		block := int64(v.ns.BlockSize())
		for end := from + length; from < end; {
			// As many small ones as large ones, by magnitude.
			n := min(end-from, v.most, block<<random.IntN(12)+block*random.Int64N(8))
			select {
			case jobs <- job{from, n}:
			case <-ctx.Done():
				return ctx.Err()
			}
			from += n
		}
		return nil
	})
	for range v.workers {
		g.Go(func() (err error) {
			memory, err := v.c.NewRegion(int(v.most))
			if err != nil {
				return err
			}
			defer func() { err = joinClose(err, v.c, memory) }()
			want := make([]byte, v.most)
			for j := range jobs {
				fill(want[:j.n], j.at, v.seed)
				if err := v.move(ctx, op, memory, want[:j.n], j.at); err != nil {
					return fmt.Errorf("%d bytes at %d: %w", j.n, j.at, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (v *verification) move(ctx context.Context, op host.Op, memory *transport.Region, want []byte, at int64) error {
	data := memory.Bytes()[:len(want)]
	lba, piece := uint64(at)/uint64(v.ns.BlockSize()), memory.Piece(0, uint32(len(want)))
	if op == host.Write {
		copy(data, want)
		return v.ns.Write(ctx, lba, piece)
	}
	clear(data)
	if err := v.ns.Read(ctx, lba, piece); err != nil {
		return err
	}
	if !bytes.Equal(data, want) {
		i := 0
		for data[i] == want[i] {
			i++
		}
		return fmt.Errorf("byte %d is %#02x and should be %#02x: the target returned other data than was written", at+int64(i), data[i], want[i])
	}
	return nil
}
