package host

import (
	"context"
	"errors"
	"fmt"

	"rdmarw/ulp/nvmeof/nvme"
)

// maxRecords bounds what a discovery controller can make this host read.
const maxRecords = 1 << 16

// Discover asks the discovery controller at "host:port" for the subsystems that it
// knows. Queues, depths and keep alives of cfg mean nothing here. See [Connect] for the
// errors.
func Discover(ctx context.Context, addr string, cfg Config) (entries []nvme.DiscoveryEntry, err error) {
	// To NVMe-oF 1.1 a keep alive timeout asks for a connection that is to stay; targets of
	// the time of 1.0 refuse it.
	cfg.LossTimeout, cfg.KeepAlive = -1, -1
	c, err := connect(ctx, addr, nvme.DiscoveryNQN, cfg, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	// The log may change while it is read, which its generation tells.
	for range 5 {
		before, err := c.discoveryHeader(ctx)
		if err != nil {
			return nil, err
		}
		if before.RecordFormat != 0 || before.Records > maxRecords {
			return nil, fmt.Errorf("discovery log of %d records in format %d: %w", before.Records, before.RecordFormat, ErrUnsupported)
		}
		log := make([]byte, before.Records*nvme.DiscoveryEntryLen)
		if err := c.Log(ctx, nvme.LogDiscovery, nvme.AllNamespaces, nvme.DiscoveryHeaderLen, log); err != nil {
			return nil, err
		}
		after, err := c.discoveryHeader(ctx)
		if err != nil {
			return nil, err
		}
		if after.Generation != before.Generation {
			continue
		}
		entries = make([]nvme.DiscoveryEntry, before.Records)
		for i := range entries {
			if err := entries[i].Decode(log[i*nvme.DiscoveryEntryLen:]); err != nil {
				return nil, err
			}
		}
		return entries, nil
	}
	return nil, errors.New("the discovery log changes faster than it can be read")
}

func (c *Controller) discoveryHeader(ctx context.Context) (h nvme.DiscoveryHeader, err error) {
	var b [nvme.DiscoveryHeaderLen]byte
	if err := c.Log(ctx, nvme.LogDiscovery, nvme.AllNamespaces, 0, b[:]); err != nil {
		return h, err
	}
	return h, h.Decode(b[:])
}
