package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"
	"rdmarw/ulp/nvmeof/backend"
	"rdmarw/ulp/nvmeof/target"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testNQN = "nqn.2014-08.org.example:disk"

// serve has a target with a namespace of 1 MiB on a simulated fabric, on which the
// commands' devices are opened.
func serve(t *testing.T, block int) {
	fabric := sim.New(sim.Config{})
	profile, _ := sim.LookupProfile("rxe")
	dev, err := fabric.NewDevice(profile, "target")
	require.NoError(t, err)
	disk, err := backend.NewMemory(1<<20, block)
	require.NoError(t, err)
	tgt, err := target.New(target.Config{Subsystems: []target.Subsystem{{NQN: testNQN, Serial: "\x1b[31mred\tand\nlines", Namespaces: []target.Namespace{{ID: 1, Backend: disk}}}}})
	require.NoError(t, err)
	l, err := dev.Listen("target:4420")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- tgt.Serve(context.Background(), dev, l) }()
	was := open
	open = func(name string) (transport.Device, error) { return fabric.NewDevice(profile, name) }
	t.Cleanup(func() {
		open = was
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, tgt.Shutdown(ctx))
		assert.ErrorIs(t, <-served, target.ErrClosed)
		assert.NoError(t, l.Close())
		assert.NoError(t, dev.Close())
		assert.NoError(t, disk.Close())
		assert.NoError(t, fabric.Err())
		assert.NoError(t, fabric.Close())
	})
}

var hosts = 0

// command runs one, by a device of its own.
func command(t *testing.T, stdin, args string) (code int, stdout, stderr string) {
	hosts++
	var out, errs bytes.Buffer
	all := append(strings.Fields(args), "-a", "target", "-d", "host"+string(rune('A'+hosts)))
	if !strings.HasPrefix(args, "discover") {
		all = append(all, "-n", testNQN)
	}
	code = run(all, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// TestCommands: each of them, on a simulated device.
func TestCommands(t *testing.T) {
	serve(t, 512)
	for _, test := range []struct{ args, want string }{
		{"discover", testNQN}, {"identify", "1048576 bytes in blocks of 512"},
		{"verify", "verified 1048576 bytes"}, {"verify -offset 512 -length 64k -size 4k", "verified 65536 bytes"},
		{"bench -time 50ms -depth 4 -queues 2", "randread of 4096 bytes"}, {"bench -op write -time 50ms -size 512", "write of 512 bytes"},
	} {
		code, out, errs := command(t, "", test.args)
		assert.Zero(t, code, "%s: %s", test.args, errs)
		assert.Contains(t, out, test.want, test.args)
	}
	code, out, errs := command(t, "", "identify")
	assert.Zero(t, code, errs)
	assert.Regexp(t, `\nserial number +\?\[31mred\?and\?lines\n`, out, "a target doesn't write to the terminal as it likes")
	code, _, errs = command(t, "some text", "write -offset 1024")
	assert.Zero(t, code, errs)
	code, out, errs = command(t, "", "read -offset 1024 -length 9")
	assert.Zero(t, code, errs)
	assert.Equal(t, "some text", out)
	f := filepath.Join(t.TempDir(), "out")
	code, _, errs = command(t, "", "read -f "+f)
	assert.Zero(t, code, errs)
	b, err := os.ReadFile(f)
	require.NoError(t, err)
	assert.Len(t, b, 1<<20)
	assert.Equal(t, "some text", string(b[1024:1033]))
}

// TestCommandsThatCanT: what can't be done is said, on one line, and status 1 says so too.
func TestCommandsThatCanT(t *testing.T) {
	serve(t, 4096)
	for _, test := range []struct{ args, want string }{
		{"read -offset 2m", "the namespace ends at 1048576"}, {"read -ns 2", "namespace"}, {"read -length 2m", "the namespace ends at"},
		{"verify -offset 512", "blocks have 4096"}, {"bench -size 512", "blocks have 4096"}, {"bench -size 2m", "the range"},
		{"write -offset 512", "blocks have 4096"},
		{"write -f /no/such/file", "no such file"}, {"read -f /no/such/dir/file", "no such file"},
	} {
		code, out, errs := command(t, "text", test.args)
		assert.Equal(t, 1, code, test.args)
		assert.Empty(t, out, test.args)
		assert.Contains(t, errs, test.want, test.args)
		assert.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
}

// TestWriteTooMuch: what doesn't fit isn't cut off without a word.
func TestWriteTooMuch(t *testing.T) {
	serve(t, 512)
	code, _, errs := command(t, strings.Repeat("x", 1<<20), "write")
	assert.Zero(t, code, errs)
	code, _, errs = command(t, strings.Repeat("y", 1<<20+1), "write")
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "more input than")
	f := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.WriteFile(f, make([]byte, 1<<20+1), 0o600))
	code, _, errs = command(t, "", "write -f "+f)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "there is room for 1048576")
	code, out, errs := command(t, "", "read -length 1")
	assert.Zero(t, code, errs)
	assert.Equal(t, "y", out, "nothing was written of the file")
	code, _, errs = command(t, strings.Repeat("y", 1<<20+1), "write -length 512")
	assert.Zero(t, code, "as much as was asked for: %s", errs)
}
