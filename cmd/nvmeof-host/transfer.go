package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"rdmarw/ulp/nvmeof/host"
)

// chunk is how much is moved at a time. It is a multiple of any block size.
const chunk = 1 << 20

// extent is the range that was asked for, in bytes of a namespace.
func (o *options) extent(ns *host.Namespace) (from, length int64, err error) {
	from, length = int64(o.offset), int64(o.length)
	if from > ns.Size() {
		return 0, 0, fmt.Errorf("-offset %d: the namespace ends at %d", from, ns.Size())
	}
	if length == 0 {
		length = ns.Size() - from
	}
	if length > ns.Size()-from {
		return 0, 0, fmt.Errorf("-length %d at %d: the namespace ends at %d", length, from, ns.Size())
	}
	return from, length, nil
}

func read(ctx context.Context, o *options, p *program) error {
	return o.opened(ctx, p, func(_ *host.Controller, ns *host.Namespace) (err error) {
		from, length, err := o.extent(ns)
		if err != nil {
			return err
		}
		out := p.stdout
		if o.file != "" {
			f, failed := os.Create(o.file)
			if failed != nil {
				return failed
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			out = f
		}
		buf := make([]byte, chunk)
		for length > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(length, chunk)
			if _, err := ns.ReadAt(buf[:n], from); err != nil && err != io.EOF {
				return err
			}
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
			from, length = from+n, length-n
		}
		return nil
	})
}

func write(ctx context.Context, o *options, p *program) error {
	return o.opened(ctx, p, func(_ *host.Controller, ns *host.Namespace) error {
		from, length, err := o.extent(ns)
		if err != nil {
			return err
		}
		in := p.stdin
		if o.file != "" {
			f, err := os.Open(o.file)
			if err != nil {
				return err
			}
			defer f.Close()
			if info, err := f.Stat(); err == nil && o.length == 0 && info.Size() > length {
				return fmt.Errorf("%s has %d bytes, and there is room for %d (-length cuts it)", o.file, info.Size(), length)
			}
			in = f
		}
		all := in
		in = io.LimitReader(in, length)
		buf := make([]byte, chunk)
		total := int64(0)
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := io.ReadFull(in, buf)
			if n > 0 {
				whole := (n + ns.BlockSize() - 1) / ns.BlockSize() * ns.BlockSize()
				if whole != n {
					// The rest of the last block stays what it is.
					if _, err := ns.ReadAt(buf[n:whole], from+int64(n)); err != nil && err != io.EOF {
						return err
					}
				}
				if _, err := ns.WriteAt(buf[:whole], from); err != nil {
					return err
				}
				from, total = from+int64(whole), total+int64(n)
			}
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				break
			}
			if err != nil {
				return err
			}
		}
		if err := ns.Flush(ctx); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "%d bytes written and flushed\n", total)
		if n, _ := io.ReadFull(all, buf[:1]); n > 0 && o.length == 0 {
			return errors.New("there is more input than room (-length cuts it)")
		}
		return nil
	})
}
