package main

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"

	"rdmarw/transport/ibverbs"
)

// real opens an RDMA device for both sides.
func (r *rig) real(name string, _ uint64) (addr string, err error) {
	dev, err := ibverbs.Open(name)
	if err != nil {
		return "", &setupError{err}
	}
	r.onClose(dev.Close)
	ip, err := addressOf(dev.Caps().Device)
	if err != nil {
		return "", &setupError{err}
	}
	r.a.dev, r.b.dev = dev, dev
	runtime.LockOSThread() // whose clock is read
	r.onClose(func() error { runtime.UnlockOSThread(); return nil })
	r.clock, r.clockSkipsIdling = threadClock, true
	return net.JoinHostPort(ip.String(), "0"), nil
}

// addressOf finds an address that a device can be reached at.
func addressOf(device string) (netip.Addr, error) {
	infos, err := ibverbs.Devices()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, info := range infos {
		if info.Name != device {
			continue
		}
		usable := func(a netip.Addr) bool { return !a.IsLinkLocalUnicast() }
		if i := slices.IndexFunc(info.Addrs, usable); i >= 0 {
			return info.Addrs[i], nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no IP address to connect to: give its network device one", device)
}
