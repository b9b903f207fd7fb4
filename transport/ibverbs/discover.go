package ibverbs

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"rdmarw/transport"

	"github.com/Mellanox/rdmamap"
)

// Info describes an RDMA device without opening it.
type Info struct {
	// Name is the device's name, such as "mlx5_0" or "rxe0".
	Name string
	// Driver is the kernel driver, such as "mlx5" or "siw"; "unknown" if the
	// kernel doesn't tell or the number is new.
	Driver string
	// Protocol is the wire protocol of port 1.
	Protocol transport.Protocol
	// NetDevs are the network devices of the ports.
	NetDevs []string
	// Addrs are the addresses of these network devices.
	Addrs []netip.Addr
	// CharDevs are the character devices: what a container must be given.
	CharDevs []string
	// Quirks are what is known of the driver and taken care of, in words. See also
	// [Probe].
	Quirks []string

	driver driverID
}

// String formats the device for a person who looks for one.
func (i Info) String() string {
	s := fmt.Sprintf("%s (%s, driver %s", i.Name, i.Protocol, i.Driver)
	if len(i.NetDevs) > 0 {
		s += ", on " + strings.Join(i.NetDevs, ", ")
	}
	for _, a := range i.Addrs {
		s += " " + a.String()
	}
	return s + ")"
}

// Devices lists the RDMA devices of this network namespace by name. It needs
// neither cgo nor rights. Without any device it returns an empty list and no
// error.
func Devices() ([]Info, error) {
	links, err := nldevLinks()
	if err != nil && len(rdmamap.GetRdmaDeviceList()) > 0 {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	infos := make([]Info, 0, len(links))
	for _, l := range links {
		i := Info{
			Name:     l.name,
			Driver:   l.driver.String(),
			Protocol: l.protocol,
			NetDevs:  l.netdevs,
			CharDevs: rdmamap.GetRdmaCharDevices(l.name),
			driver:   l.driver,
		}
		q := quirkOf(l.driver, l.protocol)
		i.Quirks = q.notes()
		for _, n := range l.netdevs {
			i.Addrs = append(i.Addrs, addrsOf(n)...)
		}
		infos = append(infos, i)
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

func addrsOf(netdev string) []netip.Addr {
	ifc, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil // renamed or gone since
	}
	nets, err := ifc.Addrs()
	if err != nil {
		return nil
	}
	var addrs []netip.Addr
	for _, n := range nets {
		ipn, ok := n.(*net.IPNet)
		if !ok {
			continue
		}
		a, ok := netip.AddrFromSlice(ipn.IP)
		if !ok {
			continue
		}
		if a = a.Unmap(); a.IsLinkLocalUnicast() && a.Is6() {
			a = a.WithZone(netdev)
		}
		addrs = append(addrs, a)
	}
	return addrs
}

// find looks up a device by its own name, by a network device, or by a local
// address.
func find(name string, infos []Info) (Info, error) {
	for _, i := range infos {
		if i.Name == name {
			return i, nil
		}
	}
	for _, i := range infos {
		if slices.Contains(i.NetDevs, name) {
			return i, nil
		}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		addr = addr.Unmap()
		for _, i := range infos {
			if slices.ContainsFunc(i.Addrs, func(a netip.Addr) bool {
				return a == addr || addr.Zone() == "" && a.WithZone("") == addr
			}) {
				return i, nil
			}
		}
	} else if len(infos) > 0 {
		// A network device on top of the port's own, a VLAN for one, has entries
		// in the table of GIDs.
		if dev, err := rdmamap.GetRdmaDeviceForNetdevice(name); err == nil {
			for _, i := range infos {
				if i.Name == dev {
					return i, nil
				}
			}
		}
	}
	have := "there is none (rdma link show; modules ib_uverbs and rdma_ucm are needed too)"
	if len(infos) > 0 {
		all := make([]string, len(infos))
		for n, i := range infos {
			all[n] = i.String()
		}
		have = "there are: " + strings.Join(all, ", ")
	}
	return Info{}, &transport.Error{Op: "open", Device: name, WR: -1, Err: transport.ErrNoDevice, Detail: have}
}
