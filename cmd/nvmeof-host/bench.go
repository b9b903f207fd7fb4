package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"rdmarw/transport"
	"rdmarw/ulp/nvmeof/host"
)

var benchOps = map[string]bool{"read": true, "write": true, "randread": true, "randwrite": true, "randrw": true}

func joinClose(err error, c *host.Controller, r *transport.Region) error {
	return errors.Join(err, c.RemoveRegion(r), r.Close())
}

// bench keeps so many commands under way for so long.
func bench(ctx context.Context, o *options, p *program) error {
	depth := o.depth
	o.depth = (depth + o.queues - 1) / o.queues
	return o.opened(ctx, p, func(c *host.Controller, ns *host.Namespace) error {
		from, length, err := o.extent(ns)
		if err != nil {
			return err
		}
		size := int64(o.size)
		if size == 0 {
			size = 4096
		}
		if size%int64(ns.BlockSize()) != 0 || size > length || from%int64(ns.BlockSize()) != 0 {
			return fmt.Errorf("commands of %d bytes at %d: blocks have %d bytes, and the range %d", size, from, ns.BlockSize(), length)
		}
		places := length / size
		ctx, cancel := context.WithTimeout(ctx, o.time)
		defer cancel()
		var wg sync.WaitGroup
		latencies := make([][]time.Duration, depth)
		errs := make([]error, depth)
		begun := time.Now()
		for w := range depth {
			wg.Go(func() {
				memory, err := c.NewRegion(int(size))
				if err != nil {
					errs[w] = err
					return
				}
				defer func() { errs[w] = joinClose(errs[w], c, memory) }()
				random := rand.New(rand.NewPCG(o.seed, uint64(w)))
				for i := int64(w); ctx.Err() == nil; i += int64(depth) {
					place := i % places
					if strings.HasPrefix(o.op, "rand") {
						place = random.Int64N(places)
					}
					lba := uint64(from+place*size) / uint64(ns.BlockSize())
					op := host.Read
					if strings.HasSuffix(o.op, "write") || o.op == "randrw" && random.IntN(2) == 0 {
						op = host.Write
					}
					t := time.Now()
					// Not ctx: a command that has begun is to end.
					if op == host.Write {
						err = ns.Write(context.Background(), lba, memory.Piece(0, uint32(size)))
					} else {
						err = ns.Read(context.Background(), lba, memory.Piece(0, uint32(size)))
					}
					if err != nil {
						errs[w] = err
						return
					}
					latencies[w] = append(latencies[w], time.Since(t))
				}
			})
		}
		wg.Wait()
		took := time.Since(begun)
		if err := errors.Join(errs...); err != nil {
			return err
		}
		all := slices.Concat(latencies...)
		slices.Sort(all)
		if len(all) == 0 {
			return errors.New("no command came to its end in time")
		}
		at := func(q float64) time.Duration {
			return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Microsecond)
		}
		fmt.Fprintf(p.stdout, "%s of %d bytes, depth %d, %d queues: %.0f IOPS, %.1f MB/s, latency median %v, 99 %% %v, most %v\n",
			o.op, size, depth, o.queues, float64(len(all))/took.Seconds(), float64(len(all))*float64(size)/took.Seconds()/1e6, at(0.5), at(0.99), at(1))
		return nil
	})
}
