package ibverbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"rdmarw/transport"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// RDMA netlink (include/uapi/rdma/rdma_netlink.h). It is the one place that
// tells a device's driver and network device for every kind of device: names
// can be changed (rdma dev set), software devices have no parent in sysfs, and
// iWARP devices no network device in their GID table.
const (
	nldevGet        = nl.RDMA_NLDEV_CMD_GET
	nldevPortGet    = 5
	nldevGetChardev = 15

	attrDevIndex    = nl.RDMA_NLDEV_ATTR_DEV_INDEX
	attrDevName     = nl.RDMA_NLDEV_ATTR_DEV_NAME
	attrPortIndex   = nl.RDMA_NLDEV_ATTR_PORT_INDEX
	attrNdevName    = nl.RDMA_NLDEV_ATTR_NDEV_NAME
	attrDevProtocol = 67
	attrChardevType = 69
	attrDriverID    = 73
)

type nldevLink struct {
	name     string
	index    uint32
	protocol transport.Protocol
	driver   driverID
	netdevs  []string
}

// nldev runs one request and returns the attributes of each answer.
func nldev(cmd, flags int, attrs ...*nl.RtAttr) ([]map[uint16][]byte, error) {
	req := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|cmd, flags)
	for _, a := range attrs {
		req.AddData(a)
	}
	msgs, err := req.Execute(unix.NETLINK_RDMA, 0)
	if err != nil {
		return nil, err
	}
	answers := make([]map[uint16][]byte, 0, len(msgs))
	for _, m := range msgs {
		list, err := nl.ParseRouteAttr(m)
		if err != nil {
			return nil, fmt.Errorf("RDMA netlink: %w", err)
		}
		answer := make(map[uint16][]byte, len(list))
		for _, a := range list {
			answer[a.Attr.Type] = a.Value
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func attrString(b []byte) string {
	if n := len(b); n > 0 && b[n-1] == 0 {
		b = b[:n-1]
	}
	return string(b)
}

func attrUint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// nldevLinks lists the devices, in the kernel's order.
func nldevLinks() ([]nldevLink, error) {
	devs, err := nldev(nldevGet, unix.NLM_F_DUMP)
	if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EINVAL) {
		return nil, nil // no ib_core, so no devices
	}
	if err != nil {
		return nil, err
	}
	links := make([]nldevLink, 0, len(devs))
	for _, d := range devs {
		l := nldevLink{name: attrString(d[attrDevName]), index: attrUint32(d[attrDevIndex])}
		switch attrString(d[attrDevProtocol]) {
		case "iw":
			l.protocol = transport.IWARP
		case "roce":
			l.protocol = transport.RoCE
		}
		index := nl.NewRtAttr(attrDevIndex, nl.Uint32Attr(l.index))
		for port := range attrUint32(d[attrPortIndex]) {
			ports, err := nldev(nldevPortGet, 0, index, nl.NewRtAttr(attrPortIndex, nl.Uint32Attr(port+1)))
			if err != nil {
				continue // a port that can't be asked is a port without network device
			}
			for _, p := range ports {
				if n := attrString(p[attrNdevName]); n != "" && !slices.Contains(l.netdevs, n) {
					l.netdevs = append(l.netdevs, n)
				}
			}
		}
		// Fails on kernels before 5.1 or without ib_uverbs: driver unknown.
		if chars, err := nldev(nldevGetChardev, 0, index, nl.NewRtAttr(attrChardevType, nl.ZeroTerminated("uverbs"))); err == nil {
			for _, c := range chars {
				l.driver = driverID(attrUint32(c[attrDriverID]))
			}
		}
		links = append(links, l)
	}
	return links, nil
}
