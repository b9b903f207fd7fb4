package main

import (
	"bytes"
	"strings"
	"testing"

	"rdmarw/transport"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, 0, run([]string{"-h"}, nil, &out, &errs))
	assert.Contains(t, out.String(), "usage: nvmeof-host")
	for name := range commands {
		assert.Contains(t, out.String(), "\n  "+name+" ", "the help tells of it")
	}
	for _, args := range []string{"", "jump -a 1.2.3.4", "read", "read -a 1.2.3.4", "discover -a 1.2.3.4 more", "discover -x",
		"bench -a 1.2.3.4 -n nqn.2014-08.org.example:d -op sort", "read -a 1.2.3.4 -n nqn.2014-08.org.example:d -offset 12x",
		"discover -a 1.2.3.4 -depth 0", "discover -a 1.2.3.4 -hostid 12-34", "discover -a 1.2.3.4:99999", "discover -a 1.2.3.4:", "discover -a :4420",
		"read -a 1.2.3.4 -n disk", "discover -a 1.2.3.4 -hostnqn me", "bench -a 1.2.3.4 -n nqn.2014-08.org.example:d -time 0s",
		"bench -a 1.2.3.4 -n nqn.2014-08.org.example:d -size 4g", "verify -a 1.2.3.4 -n nqn.2014-08.org.example:d -size 4g"} {
		errs.Reset()
		assert.Equal(t, 2, run(strings.Fields(args), nil, &out, &errs), args)
		assert.Contains(t, errs.String(), "-h for help")
	}
}

func TestCommandComesFirst(t *testing.T) {
	for args, want := range map[string]string{
		"-a 1.2.3.4 discover":            "the command comes first: nvmeof-host discover -a 1.2.3.4 (",
		"-a 1.2.3.4 -v verify -n nqn -v": "the command comes first: nvmeof-host verify -a 1.2.3.4 -v -n nqn -v (",
		"-a 1.2.3.4 jump":                "which command?",
		"-a 1.2.3.4":                     "which command?",
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, 2, run(strings.Fields(args), nil, &out, &errs), args)
		assert.Contains(t, errs.String(), want)
	}
}

// TestRoute: whose address it is that there is no device of.
func TestRoute(t *testing.T) {
	was := open
	defer func() { open = was }()
	open = func(name string) (transport.Device, error) {
		return nil, &transport.Error{Op: "open", Device: name, WR: -1, Err: transport.ErrNoDevice}
	}
	var out, errs bytes.Buffer
	assert.Equal(t, 1, run(strings.Fields("discover -a 127.0.0.1"), nil, &out, &errs))
	assert.Contains(t, errs.String(), "the route to 127.0.0.1:4420 leaves by 127.0.0.1: ")
	errs.Reset()
	assert.Equal(t, 1, run(strings.Fields("discover -a 127.0.0.1 -d rxe7"), nil, &out, &errs))
	assert.NotContains(t, errs.String(), "route")
	assert.Contains(t, errs.String(), "rxe7")
}

func TestParse(t *testing.T) {
	o, err := parse(strings.Fields("verify -a 192.0.2.1 -n nqn.2014-08.org.example:d -length 256m -offset 4k -hostid 6d2f2c3e-5f0a-4c58-9a37-0d7f3c1b9a01"))
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.1:4420", o.addr)
	assert.EqualValues(t, 256<<20, o.length)
	assert.EqualValues(t, 4096, o.offset)
	id, err := o.parseHostID()
	require.NoError(t, err)
	assert.EqualValues(t, 0x6d, id[0])
	assert.EqualValues(t, 0x01, id[15])
	o, err = parse(strings.Fields("discover -a [2001:db8::1]:5000"))
	require.NoError(t, err)
	assert.Equal(t, "[2001:db8::1]:5000", o.addr)
	o, err = parse(strings.Fields("discover -a 2001:db8::1"))
	require.NoError(t, err)
	assert.Equal(t, "[2001:db8::1]:4420", o.addr)
	o, err = parse(strings.Fields("discover -a [2001:db8::1]"))
	require.NoError(t, err)
	assert.Equal(t, "[2001:db8::1]:4420", o.addr)
}

// TestFill: the pattern is the same wherever a transfer begins, and another at each
// place and for each seed.
func TestFill(t *testing.T) {
	all, part := make([]byte, 1<<16), make([]byte, 4096)
	fill(all, 8192, 3)
	fill(part, 8192+512*5, 3)
	assert.Equal(t, all[512*5:512*5+4096], part)
	fill(part, 8192+512*5, 4)
	assert.NotEqual(t, all[512*5:512*5+4096], part)
	seen := map[string]bool{}
	for i := 0; i < len(all); i += 8 {
		seen[string(all[i:i+8])] = true
	}
	assert.Len(t, seen, len(all)/8)
}
