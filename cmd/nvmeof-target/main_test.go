package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"rdmarw/transport"
	"rdmarw/transport/sim"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWrongUsage(t *testing.T) {
	for _, args := range []string{
		"", "-x", "-a 10.0.0.1", "-ns memory:1G", "-a 10.0.0.1 -ns memory:1G extra", "-a :0 -ns memory:1M", "-a 10.0.0.1:99999 -ns memory:1M",
		"-a 10.0.0.1 -ns memory:", "-a 10.0.0.1 -ns memory:0", "-a 10.0.0.1 -ns memory:1X", "-a 10.0.0.1 -ns memory:1M,readonly",
		"-a 10.0.0.1 -ns /dev/x,nothing", "-a 10.0.0.1 -ns /dev/x,workers=0", "-a 10.0.0.1 -ns ,block=512", "-a 10.0.0.1 -ns memory:1M -nqn disk",
		"-a 10.0.0.1 -ns memory:1M -host me", "-a 10.0.0.1 -a 10.0.0.2 -d rxe0 -ns memory:1M", "-a 10.0.0.1 -ns memory:1M -transfer 8E",
		"-a 10.0.0.1 -ns memory:1M -depth 0", "-a 10.0.0.1 -ns memory:1M -queues -1", "-a 10.0.0.1 -ns memory:1M -transfer 0", "-a 10.0.0.1 -ns memory:1M -memory -1",
		"-a 10.0.0.1 -ns memory:1M -grace -1s", "-a 10.0.0.1 -a 10.0.0.1:4420 -ns memory:1M", "-a 10.0.0.1 -ns memory:1M -connections 0", "-a 10.0.0.1 -ns memory:1M -controllers 0",
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 2, run(strings.Fields(args), &stdout, &stderr), args)
		assert.Empty(t, stdout.String())
		assert.Equal(t, 1, strings.Count(stderr.String(), "\n"), "%s: %s", args, &stderr)
	}
}

// TestMemory: a size is asked for, and may be written in large and small letters.
func TestMemory(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Equal(t, 2, run([]string{"-a", "10.0.0.1", "-ns", "memory"}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "did you mean memory:1G?")
	for _, text := range []string{"memory:1m", "memory:1M", "memory:1048576"} {
		s, err := parseSpec(text)
		require.NoError(t, err)
		assert.EqualValues(t, 1<<20, s.memory)
	}
	s, err := parseSpec("./memory,size=2m")
	require.NoError(t, err)
	assert.Equal(t, "./memory", s.path)
	assert.EqualValues(t, 2<<20, s.file.Size)
}

// TestFailures: what can't be served is said, and nothing is left.
func TestFailures(t *testing.T) {
	for args, want := range map[string]string{
		"-a 10.0.0.1 -ns /no/such/file":                  "no such file",
		"-a 10.0.0.1 -ns memory:1M -depth 1":             "queue depth 1",
		"-a 10.0.0.1 -ns memory:1M -transfer 5000":       "power of two",
		"-a 10.0.0.1 -ns memory:1M,block=1024":           "block size 1024",
		"-a 10.0.0.1 -ns memory:1M -http 999.0.0.1:http": "statistics",
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, 1, run(strings.Fields(args), &stdout, &stderr), args)
		assert.Contains(t, stderr.String(), want)
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	assert.Equal(t, 0, run([]string{"-h"}, &stdout, &stderr))
	assert.Equal(t, usage, stdout.String())
	for line := range strings.Lines(usage) {
		assert.LessOrEqual(t, len(line), 99, line)
	}
}

// TestServe: on a simulated device, until it is told to end.
func TestServe(t *testing.T) {
	fabric := sim.New(sim.Config{})
	defer fabric.Close()
	profile, _ := sim.LookupProfile("rxe")
	was := openDevice
	openDevice = func(name string) (transport.Device, error) { return fabric.NewDevice(profile, name) }
	defer func() { openDevice = was }()
	o, err := parse([]string{"-a", "target", "-ns", "memory:1M", "-ns", filepath.Join(t.TempDir(), "disk") + ",size=1M,block=4096", "-http", "127.0.0.1:0", "-v", "-json"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var stdout, log lockedBuffer
	served := make(chan error, 1)
	go func() { served <- o.serve(ctx, &stdout, o.logger(&log)) }()
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "listening on target:4420") }, 10*time.Second, time.Millisecond)
	url := regexp.MustCompile(`http://[^"]*`).FindString(log.String())
	resp, err := http.Get(url)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Contains(t, string(text), "\nnvmeof_target_controllers 0\n")
	assert.Contains(t, string(text), "\nnvmeof_target_commands_total{subsystem=\"nqn.2014-08.org.rdmarw:disk\",namespace=\"2\",op=\"read\"} 0\n")
	assert.Regexp(t, `^(# (HELP|TYPE) nvmeof_target_\w+ .+\n|nvmeof_target_\w+(\{(\w+="[^"]*",?)+\})? \d+\n)+$`, string(text))
	cancel()
	require.NoError(t, <-served)
	_, err = http.Get(url)
	assert.Error(t, err)
}
