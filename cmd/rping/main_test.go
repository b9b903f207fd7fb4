package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWrongUsage(t *testing.T) {
	for _, args := range []string{
		"", "-s -c", "-x", "-c", "-s extra", "-sim nothing", "-sim rxe -a 10.0.0.1", "-c -a x -P", "-s -p 0", "-s -p 65536", "-s -p x",
		"-sim rxe -S 0", "-s -S 0", "-sim rxe -S -1", "-sim rxe -S 1048577", "-sim rxe -C -1",
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, run(strings.Fields(args), &stdout, &stderr), args)
		assert.Empty(t, stdout.String())
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "%s: %s", args, &stderr)
	}
}

// TestRoute: whose address it is that there is no device of.
func TestRoute(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Equal(t, 1, run(strings.Fields("-c -a 127.0.0.1"), &stdout, &stderr))
	assert.Contains(t, stderr.String(), "the route to 127.0.0.1:7174 leaves by 127.0.0.1: ")
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Equal(t, 0, run([]string{"-h"}, &stdout, &stderr))
	assert.Equal(t, usage, stdout.String())
	for line := range strings.Lines(usage) {
		assert.LessOrEqual(t, len(line), 90, line)
	}
}

func TestSimulate(t *testing.T) {
	for _, profile := range []string{"rxe", "siw", "siw-kernel"} {
		var stdout, stderr bytes.Buffer
		args := []string{"-sim", profile, "-C", "7", "-S", "1000", "-V", "-v"}
		assert.Equal(t, 0, run(args, &stdout, &stderr), &stderr)
		assert.Contains(t, stdout.String(), "7 pings of 1000 bytes")
		assert.Contains(t, stderr.String(), "rdma-ping-6: GHI")
	}
}
