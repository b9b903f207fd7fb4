package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rdmarw/ulp/nvmeof/nvme"
)

// identity is what tells a namespace from another one under the same number, and what
// its commands are made with. Identifiers that it doesn't have are zero.
type identity struct {
	uuid, nguid [16]byte
	eui64       [8]byte
	shift       uint8 // log2 of the block size
	metadata    uint16
}

// sighting is a namespace as a controller described it once.
type sighting struct {
	identity
	info nvme.Namespace
}

// identify asks the controller what is there under a number.
func (a *association) identify(ctx context.Context, id uint32) (*sighting, error) {
	s := &sighting{}
	cmd := nvme.Command{Opcode: nvme.Identify, NSID: id, CDW10: uint32(nvme.CNSNamespace)}
	if err := a.fetch(ctx, fmt.Sprintf("identify namespace %d", id), cmd, nvme.IdentifyLen, s.info.Decode); err != nil {
		return nil, err
	}
	s.nguid, s.eui64, s.shift = s.info.NGUID, s.info.EUI64, s.info.BlockShift()
	if s.shift > 0 {
		s.metadata = s.info.Formats[s.info.Format].Metadata
	}
	if s.info.Size == 0 || a.id.Version < nvme.Version13 { // before that there is no list
		return s, nil
	}
	cmd.CDW10 = uint32(nvme.CNSDescriptors)
	err := a.fetch(ctx, fmt.Sprintf("identify descriptors of namespace %d", id), cmd, nvme.IdentifyLen, func(b []byte) error {
		list, _ := nvme.DecodeDescriptors(b) // of a list with a flaw, what is in front of that
		for _, d := range list {
			s.add(d)
		}
		return nil
	})
	if err != nil && !refused(err) { // not every controller has one, whatever its version
		return nil, err
	}
	return s, nil
}

// add takes in one identifier, which counts more than the namespace data's.
func (i *identity) add(d nvme.NamespaceDescriptor) {
	var id []byte
	switch d.Kind {
	case nvme.UUIDKind:
		id = i.uuid[:]
	case nvme.NGUIDKind:
		id = i.nguid[:]
	case nvme.EUI64Kind:
		id = i.eui64[:]
	}
	if len(d.ID) == len(id) {
		copy(id, d.ID)
	}
}

// usable refuses what this host can't use.
func (s *sighting) usable() error {
	switch {
	case s.info.Size == 0:
		return fmt.Errorf("is not active: %w", nvme.InvalidNamespace)
	case s.shift < 9 || s.shift > 16:
		return fmt.Errorf("has blocks of 2^%d bytes: %w", s.shift, ErrUnsupported)
	case s.metadata != 0:
		return fmt.Errorf("has metadata: %w", ErrUnsupported)
	case s.info.Size > 1<<62>>s.shift:
		return fmt.Errorf("has %d blocks: %w", s.info.Size, ErrProtocol)
	}
	return nil
}

// differs says in what a namespace is not what it was, if in anything that matters. That
// it has grown doesn't.
func (s *sighting) differs(was identity, blocks uint64) string {
	var all []string
	note := func(what string, was, is any) {
		if was != is {
			all = append(all, fmt.Sprintf("%s %v, now %v", what, was, is))
		}
	}
	note("UUID", identifier(was.uuid[:]), identifier(s.uuid[:]))
	note("NGUID", identifier(was.nguid[:]), identifier(s.nguid[:]))
	note("EUI64", identifier(was.eui64[:]), identifier(s.eui64[:]))
	note("bytes per block", 1<<was.shift, 1<<s.shift)
	note("bytes of metadata", was.metadata, s.metadata)
	note("blocks", blocks, min(blocks, s.info.Size))
	return strings.Join(all, "; ")
}

// identifier is for people.
func identifier(id []byte) string {
	for _, b := range id {
		if b != 0 {
			return fmt.Sprintf("%x", id)
		}
	}
	return "none"
}

// refused reports that a controller answered that it won't carry a command out, however
// often it is asked.
func refused(err error) bool {
	var answered *CommandError
	return errors.As(err, &answered) && answered.Status&nvme.DNR != 0
}

// compare takes note of how a namespace was seen again, and reports whether it is the
// same. If not, it is at its end.
func (ns *Namespace) compare(s *sighting) bool {
	err := s.usable()
	if s.info.Size > 0 {
		if difference := s.differs(ns.identity, ns.info.Load().Size); difference != "" {
			err = errors.New(difference)
		}
	}
	if err != nil {
		ns.fail(err)
		return false
	}
	ns.info.Store(&s.info)
	return true
}

// fail ends the namespace for good.
func (ns *Namespace) fail(why error) {
	err := fmt.Errorf("namespace %d: %w (%w)", ns.id, ErrChanged, why)
	if ns.err.CompareAndSwap(nil, &err) {
		ns.c.cfg.Log.Warn("namespace changed", "subsystem", ns.c.nqn, "address", ns.c.addr, "namespace", ns.id, "why", why)
	}
}

// handOut returns the namespace that an association has seen: the one that is known, if it
// is still the same.
func (c *Controller) handOut(a *association, id uint32, s *sighting) (*Namespace, error) {
	c.namespacesMu.Lock()
	defer c.namespacesMu.Unlock()
	// Once it is lost, the next association may have compared all that are known.
	if err := a.orLost(errStopped); err != nil {
		return nil, err
	}
	if ns := c.namespaces[id]; ns != nil && ns.compare(s) {
		return ns, nil
	}
	delete(c.namespaces, id)
	if err := s.usable(); err != nil {
		return nil, fmt.Errorf("namespace %d %w", id, err)
	}
	ns := &Namespace{c: c, id: id, identity: s.identity}
	ns.info.Store(&s.info)
	c.namespaces[id] = ns
	return ns, nil
}

// recognize looks, on an association that is new, whether the namespaces that are known are
// still the same. No command of theirs goes out before: neither those that wait nor those
// that are sent again may meet another disk, or blocks of another size.
func (a *association) recognize(ctx context.Context) error {
	c := a.c
	c.namespacesMu.Lock()
	all := maps.Clone(c.namespaces)
	c.namespacesMu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		ns := all[id]
		s, err := a.identify(ctx, id)
		switch {
		case err == nil && ns.compare(s):
			continue
		case refused(err):
			ns.fail(err)
		case err != nil:
			return err // maybe the next association is told
		}
		c.forget(ns)
	}
	return nil
}

// forget ends the interest in a namespace that is at its end.
func (c *Controller) forget(ns *Namespace) {
	c.namespacesMu.Lock()
	defer c.namespacesMu.Unlock()
	if c.namespaces[ns.id] == ns {
		delete(c.namespaces, ns.id)
	}
}
