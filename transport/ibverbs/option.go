package ibverbs

import "rdmarw/transport"

// Option changes how a device is opened.
type Option func(*options)

type options struct {
	caps     []func(*transport.Caps)
	onDemand bool
}

// WithCaps lets edit change what is believed of the device, after quirks and
// probes: to hold back what should not be used, or to grant what a device can
// do that the table of quirks doesn't know.
func WithCaps(edit func(*transport.Caps)) Option {
	return func(o *options) { o.caps = append(o.caps, edit) }
}

// WithOnDemand registers memory for on-demand paging: the device faults pages in as
// it needs them, nothing is pinned and no limit of locked memory counts, at the price
// of a delay at the first access to a page. [Open] fails with
// transport.ErrUnsupported where the device can't do that for SEND, receive, READ and
// WRITE of reliable connections (the ODP capabilities of ibv_devinfo -v).
func WithOnDemand() Option { return func(o *options) { o.onDemand = true } }
