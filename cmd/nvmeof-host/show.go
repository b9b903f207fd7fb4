package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"

	"rdmarw/ulp/nvmeof/host"
)

// plain is text of a target's, which may be anything, for a terminal.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func discover(ctx context.Context, o *options, p *program) (err error) {
	dev, err := o.openDevice()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	entries, err := host.Discover(ctx, o.addr, o.config(dev, p.log))
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tTRANSPORT\tADDRESS\tPORT\tNQN")
	for _, e := range entries {
		fmt.Fprintf(w, "%v\t%v\t%s\t%s\t%s\n", e.Subsystem, e.Transport, plain(e.Address), plain(e.Service), plain(e.NQN))
	}
	return w.Flush()
}

func identify(ctx context.Context, o *options, p *program) error {
	return o.connected(ctx, p, func(c *host.Controller) error {
		id, caps := c.Identify(), c.Capabilities()
		queues, depth := c.Queues()
		w := tabwriter.NewWriter(p.stdout, 0, 8, 2, ' ', 0)
		row := func(name, format string, v ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", v...) }
		row("subsystem", "%s", plain(id.Subsystem))
		row("serial number", "%s", plain(id.Serial))
		row("model", "%s", plain(id.Model))
		row("firmware", "%s", plain(id.Firmware))
		row("NVMe version", "%v", id.Version)
		row("controller", "%d", id.ControllerID)
		row("queues", "%d of %d commands (it takes up to %d)", queues, depth, caps.MaxQueueEntries())
		row("largest transfer", "%d bytes here", c.MaxTransfer())
		row("in-capsule data", "%d bytes", id.InCapsule())
		row("volatile write cache", "%v", id.VolatileWriteCache&1 != 0)
		if health, err := c.Health(ctx); err == nil {
			row("commands served", "%d reads, %d writes", health.Reads, health.Writes)
		} else {
			row("health", "%v", err)
		}
		ids, err := c.Namespaces(ctx)
		if err != nil {
			return err
		}
		for _, id := range ids {
			ns, err := c.Namespace(ctx, id)
			if err != nil {
				row(fmt.Sprintf("namespace %d", id), "%v", err)
				continue
			}
			row(fmt.Sprintf("namespace %d", id), "%d bytes in blocks of %d", ns.Size(), ns.BlockSize())
		}
		return w.Flush()
	})
}
