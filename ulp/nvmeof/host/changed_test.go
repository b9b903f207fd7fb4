package host_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/host"
	"rdmarw/ulp/nvmeof/nvme"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// carry has a backend carry out one operation from its first block on.
func carry(t *testing.T, b backend.Backend, op backend.Op, data []byte) {
	t.Helper()
	done := make(chan error, 1)
	b.Submit(&backend.Request{
		Op: op, Blocks: uint32(len(data)) >> b.Geometry().BlockShift, Data: data,
		Done: func(_ *backend.Request, err error) { done <- err },
	})
	require.NoError(t, <-done)
}

// TestAnotherNamespaceBehindReconnect: while the connection is lost, namespace 1 becomes
// another one. No command that was meant for the first reaches it, however it is sent;
// other namespaces go on; and who asks again gets what is there now.
func TestAnotherNamespaceBehindReconnect(t *testing.T) {
	everywhere(t, anotherNamespaceBehindReconnect)
}

func anotherNamespaceBehindReconnect(t *testing.T, at place) {
	const size = 128 << 10
	smaller, err := backend.NewMemory(4<<20, 512)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, smaller.Close()) })
	same := [16]byte{1}
	for _, becomes := range []struct {
		name string
		disk backend.Backend // nil: none
		uuid [16]byte
		says string
	}{
		{"another disk", memory(t, 512), [16]byte{9}, "UUID 01000000000000000000000000000000, now 09000000000000000000000000000000"},
		{"other blocks", memory(t, 4096), same, "bytes per block 512, now 4096"},
		{"a smaller one", smaller, same, "blocks 16384, now 8192"},
		{"none", nil, same, "is not active"},
	} {
		t.Run(becomes.name, func(t *testing.T) {
			r := newRig(t, at, target.Config{Subsystems: []target.Subsystem{{NQN: nqn, Serial: "rdmarw1", Namespaces: []target.Namespace{
				{ID: 1, Backend: memory(t, 512), UUID: same}, {ID: 7, Backend: memory(t, 4096)},
			}}}})
			c := r.connect(host.Config{ReconnectDelay: 10 * time.Millisecond})
			ns, err := c.Namespace(timeout(t), 1)
			require.NoError(t, err)
			other, err := c.Namespace(timeout(t), 7)
			require.NoError(t, err)
			m := region(t, c, 64<<10)
			var prepared host.Request
			require.NoError(t, ns.Prepare(&prepared, host.IO{Op: host.Write, Data: []transport.Piece{m.Piece(0, 4096)}}))

			r.shutdown()
			ones := bytes.Repeat([]byte{0xFF}, size)
			namespaces := r.cfg.Subsystems[0].Namespaces[1:]
			if becomes.disk != nil {
				carry(t, becomes.disk, backend.Write, ones)
				namespaces = append(namespaces, target.Namespace{ID: 1, Backend: becomes.disk, UUID: becomes.uuid})
			}
			calls := map[string]func() error{
				"write":         func() error { return ns.Write(timeout(t), 8, m.Piece(0, 4096)) },
				"write zeroes":  func() error { return ns.WriteZeroes(timeout(t), 8, 8) },
				"write durably": func() error { return ns.WriteDurably(timeout(t), 8, m.Piece(0, 4096)) },
				"write at":      func() error { _, err := ns.WriteAt(make([]byte, 4096), 4096); return err },
				"read at":       func() error { _, err := ns.ReadAt(make([]byte, 4096), 4096); return err },
				"discard":       func() error { return ns.Discard(timeout(t), nvme.Range{LBA: 8, Blocks: 8}) },
				"flush":         func() error { return ns.Flush(timeout(t)) },
			}
			waiting := make(map[string]chan error)
			for name, call := range calls {
				ended := make(chan error, 1)
				waiting[name] = ended
				go func() { ended <- call() }()
			}
			time.Sleep(20 * time.Millisecond)
			r.cfg.Subsystems = []target.Subsystem{{NQN: nqn, Serial: "rdmarw1", Namespaces: namespaces}}
			r.serve()
			for name, ended := range waiting {
				err := <-ended
				assert.ErrorIs(t, err, host.ErrChanged, name)
				assert.ErrorContains(t, err, becomes.says, name)
			}
			for name, call := range calls {
				assert.ErrorIs(t, call(), host.ErrChanged, "%s, begun later", name)
			}
			assert.ErrorIs(t, c.Submit(&prepared), host.ErrChanged)
			assert.ErrorIs(t, ns.Prepare(&prepared, host.IO{Op: host.Flush}), host.ErrChanged)
			assert.ErrorIs(t, ns.Err(), host.ErrChanged)

			assert.NoError(t, other.Err())
			assert.NoError(t, other.Write(timeout(t), 8, m.Piece(0, 4096)), "another namespace")
			again, err := c.Namespace(timeout(t), 1)
			if becomes.disk == nil {
				assert.ErrorIs(t, err, nvme.InvalidNamespace)
				return
			}
			require.NoError(t, err)
			got := make([]byte, size)
			_, err = again.ReadAt(got, 0)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(ones, got), "what is there now was written to")
			_, err = again.WriteAt(make([]byte, 4096), 0)
			assert.NoError(t, err)
			assert.ErrorIs(t, ns.Flush(timeout(t)), host.ErrChanged, "for good")
		})
	}
}

// TestLargerNamespaceBehindReconnect: a namespace that has grown is the same, and all of it
// can be used.
func TestLargerNamespaceBehindReconnect(t *testing.T) {
	r := newRig(t, simulated(t, "mlx5-kernel"), target.Config{})
	c := r.connect(host.Config{ReconnectDelay: 10 * time.Millisecond})
	ns, err := c.Namespace(timeout(t), 1)
	require.NoError(t, err)
	require.Equal(t, int64(8<<20), ns.Size())
	r.shutdown()
	larger, err := backend.NewMemory(16<<20, 512)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, larger.Close()) })
	r.cfg.Subsystems = []target.Subsystem{{NQN: nqn, Serial: "rdmarw1", Namespaces: []target.Namespace{{ID: 1, Backend: larger}}}}
	r.serve()
	require.NoError(t, ns.Flush(timeout(t)))
	assert.Equal(t, int64(16<<20), ns.Size())
	_, err = ns.WriteAt(make([]byte, 512), 16<<20-512)
	assert.NoError(t, err)
}

// TestNamespaceAskedAgain: as long as it is the same, so is what is returned. If it is
// another, without any reconnect, what was there is at its end.
func TestNamespaceAskedAgain(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	id := [8]byte{1}
	s.data = identified(func(info *nvme.Namespace) { info.EUI64 = id })
	c, ns := s.connect(s.config())
	again, err := c.Namespace(context.Background(), 1)
	require.NoError(t, err)
	assert.Same(t, ns, again)
	id[0] = 2
	again, err = c.Namespace(context.Background(), 1)
	require.NoError(t, err)
	assert.NotSame(t, ns, again)
	assert.NoError(t, again.Flush(context.Background()))
	assert.ErrorIs(t, ns.Flush(context.Background()), host.ErrChanged)
	assert.ErrorContains(t, ns.Err(), "EUI64 0100000000000000, now 0200000000000000")
}

// identified has a fake's namespace changed before the host hears of it.
func identified(change func(*nvme.Namespace)) func(*nvme.Command, []byte) {
	return func(cmd *nvme.Command, page []byte) {
		if nvme.CNS(cmd.CDW10) != nvme.CNSNamespace {
			return
		}
		var info nvme.Namespace
		if info.Decode(page) == nil {
			change(&info)
			info.Encode(page)
		}
	}
}

// lose ends the connection of a stepped host: a Flush isn't answered within CommandTimeout.
// It returns how the Flush ended, that was sent again then.
func (s *stepped) lose(ns *host.Namespace) error {
	lost := false
	s.answer = func(cmd *nvme.Command, _ *fakeAnswer) bool {
		if cmd.Opcode != nvme.Flush || lost {
			return true
		}
		lost = true
		return false
	}
	return ns.Flush(context.Background())
}

// TestIdentifiers: each kind tells one namespace from another, wherever it is told. What has
// none is known by its geometry.
func TestIdentifiers(t *testing.T) {
	for _, test := range []struct {
		name   string
		tell   func(cmd *nvme.Command, page []byte, id byte)
		denied bool // the list of descriptors
		want   string
	}{
		{name: "NGUID", want: "NGUID 01", tell: func(cmd *nvme.Command, page []byte, id byte) {
			identified(func(info *nvme.Namespace) { info.NGUID[0] = id })(cmd, page)
		}},
		{name: "EUI64", want: "EUI64 01", tell: func(cmd *nvme.Command, page []byte, id byte) {
			identified(func(info *nvme.Namespace) { info.EUI64[0] = id })(cmd, page)
		}},
		{name: "UUID descriptor", want: "UUID 01", tell: described(nvme.UUIDKind, 16)},
		{name: "NGUID descriptor", want: "NGUID 01", tell: described(nvme.NGUIDKind, 16)},
		{name: "EUI64 descriptor", want: "EUI64 01", tell: described(nvme.EUI64Kind, 8)},
		{name: "metadata", want: "metadata 0, now 8", tell: func(cmd *nvme.Command, page []byte, id byte) {
			identified(func(info *nvme.Namespace) { info.Formats[0].Metadata = uint16(id-1) * 8 })(cmd, page)
		}},
		{name: "a descriptor of a wrong length", tell: described(nvme.UUIDKind, 8)},
		{name: "a descriptor of an unknown kind", tell: described(200, 16)},
		{name: "none", tell: func(*nvme.Command, []byte, byte) {}},
		{name: "no list", denied: true, tell: func(*nvme.Command, []byte, byte) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStepped(t, "mlx5-kernel", sim.Config{})
			id := byte(1)
			s.data = func(cmd *nvme.Command, page []byte) {
				switch nvme.CNS(cmd.CDW10) {
				case nvme.CNSController:
					var info nvme.Controller
					require.NoError(t, info.Decode(page))
					info.Version = nvme.Version13
					info.Encode(page)
				case nvme.CNSDescriptors:
					clear(page)
				}
				test.tell(cmd, page, id)
			}
			s.answer = func(cmd *nvme.Command, a *fakeAnswer) bool {
				if test.denied && cmd.Opcode == nvme.Identify && nvme.CNS(cmd.CDW10) == nvme.CNSDescriptors {
					a.Status = nvme.InvalidField | nvme.DNR
				}
				return true
			}
			cfg := s.config()
			cfg.CommandTimeout = time.Second
			c, ns := s.connect(cfg)
			before := s.answer
			require.NoError(t, s.lose(ns), "the same")
			id, s.answer = 2, before
			err := s.lose(ns)
			if test.want == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, host.ErrChanged)
				assert.ErrorContains(t, err, test.want)
			}
			assert.EqualValues(t, 2, c.Stats().Reconnects)
			assert.NoError(t, c.Err())
		})
	}
}

// described tells an identifier by a list of descriptors.
func described(kind nvme.DescriptorKind, n int) func(*nvme.Command, []byte, byte) {
	return func(cmd *nvme.Command, page []byte, id byte) {
		if nvme.CNS(cmd.CDW10) == nvme.CNSDescriptors {
			full := make([]byte, n)
			full[0] = id
			nvme.EncodeDescriptors(page, []nvme.NamespaceDescriptor{{Kind: kind, ID: full}})
		}
	}
}

// TestNamespaceNotReadyBehindReconnect: a controller that can't tell yet what is there is
// asked again, by another connection; nothing is sent until it can.
func TestNamespaceNotReadyBehindReconnect(t *testing.T) {
	s := newStepped(t, "rxe", sim.Config{})
	cfg := s.config()
	cfg.CommandTimeout = time.Second
	c, ns := s.connect(cfg)
	lost, asked, flushed := false, 0, 0
	s.answer = func(cmd *nvme.Command, a *fakeAnswer) bool {
		switch {
		case cmd.Opcode == nvme.Flush && !lost:
			lost = true
			return false
		case cmd.Opcode == nvme.Flush:
			flushed++
			assert.Equal(t, 4, asked, "before it was known what is there")
		case cmd.Opcode == nvme.Identify && nvme.CNS(cmd.CDW10) == nvme.CNSNamespace:
			if asked++; asked <= 3 {
				a.Status = nvme.NamespaceNotReady
			}
		}
		return true
	}
	require.NoError(t, ns.Flush(context.Background()))
	assert.Equal(t, 4, asked)
	assert.Equal(t, 1, flushed)
	assert.EqualValues(t, 1, c.Stats().Reconnects)
}
