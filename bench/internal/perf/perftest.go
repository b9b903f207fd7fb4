package perf

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// perftest runs a program of that suite at both ends of a device, and returns what
// it says: MiB/s on average, or the typical latency in microseconds.
func perftest(ctx context.Context, c Case, device, addr string, port int) (float64, error) {
	args := []string{"-d", device, "-R", "-F", "-p", strconv.Itoa(port), "-s", strconv.Itoa(c.Size), "-n", strconv.Itoa(c.Messages)}
	if !c.Latency {
		args = append(args, "-t", strconv.Itoa(c.Depth))
	}
	if !c.NoEvents {
		args = append(args, "-e")
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	server := exec.CommandContext(ctx, c.Program, args...)
	var serverSaid bytes.Buffer
	server.Stdout, server.Stderr = &serverSaid, &serverSaid
	if err := server.Start(); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() { done <- server.Wait() }()
	defer func() {
		cancel()
		<-done
	}()
	// There is no word of its being ready. A client that comes too early fails at
	// once, and there may be another.
	for try := 0; ; try++ {
		time.Sleep(300 * time.Millisecond)
		out, err := exec.CommandContext(ctx, c.Program, append(args, addr)...).CombinedOutput()
		if err == nil {
			return reported(string(out), c.Latency)
		}
		select {
		case serverErr := <-done:
			done <- serverErr
			return 0, fmt.Errorf("%s: %w: %s; its server: %v", c.Program, err, out, serverErr)
		default:
		}
		if try == 10 || ctx.Err() != nil {
			return 0, fmt.Errorf("%s: %w: %s; its server said: %s", c.Program, err, out, serverSaid.String())
		}
	}
}

// reported reads the result out of what a program printed: the line below the one
// that names the columns.
func reported(out string, latency bool) (float64, error) {
	column := 3 // #bytes, #iterations, BW peak, BW average
	if latency {
		column = 4 // t_min, t_max, t_typical
	}
	heading := false
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if heading {
			if f := strings.Fields(line); len(f) > column {
				return strconv.ParseFloat(f[column], 64)
			}
			break
		}
		heading = strings.HasPrefix(line, "#bytes")
	}
	return 0, fmt.Errorf("no result in what was printed: %q", out)
}
