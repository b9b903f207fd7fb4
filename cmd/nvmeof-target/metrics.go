package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"rdmarw/ulp/nvmeof/target"
)

// serveMetrics serves a target's statistics at /metrics, and profiles at /debug/pprof/, until
// the function it returns is called.
func serveMetrics(addr string, t *target.Target, log *slog.Logger) (stop func() error, err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("statistics: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		writeMetrics(w, t.Stats())
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	log.Info("statistics", "url", "http://"+l.Addr().String()+"/metrics")
	return func() error {
		err := srv.Close()
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}

// writeMetrics writes statistics in Prometheus' text format.
func writeMetrics(w io.Writer, s target.Stats) {
	metric := func(name, kind, help string, values func(sample func(labels string, v uint64))) {
		fmt.Fprintf(w, "# HELP nvmeof_target_%s %s\n# TYPE nvmeof_target_%s %s\n", name, help, name, kind)
		values(func(labels string, v uint64) { fmt.Fprintf(w, "nvmeof_target_%s%s %d\n", name, labels, v) })
	}
	one := func(name, kind, help string, v uint64) {
		metric(name, kind, help, func(sample func(string, uint64)) { sample("", v) })
	}
	one("controllers", "gauge", "Controllers that hosts have.", uint64(s.Controllers))
	one("queues", "gauge", "Connected queues, admin queues among them.", uint64(s.Queues))
	one("connections_accepted_total", "counter", "Connections accepted.", s.Accepted)
	one("connections_rejected_total", "counter", "Connection requests rejected.", s.Rejected)
	one("commands_refused_total", "counter", "Commands answered with an error before anything was done.", s.Refused)
	one("invalidations_total", "counter", "Responses that invalidated a key of the host's.", s.Invalidations)
	one("memory_waits_total", "counter", "Commands that waited for memory of their queue.", s.Waits)
	each := func(name, help string, labels []string, value func(*target.NamespaceStats) []uint64) {
		metric(name, "counter", help, func(sample func(string, uint64)) {
			for i := range s.Namespaces {
				n := &s.Namespaces[i]
				for k, v := range value(n) {
					label := ""
					if labels != nil {
						label = `,op="` + labels[k] + `"`
					}
					sample(fmt.Sprintf("{subsystem=%s,namespace=\"%d\"%s}", strconv.Quote(n.Subsystem), n.ID, label), v)
				}
			}
		})
	}
	each("commands_total", "I/O commands that succeeded.", []string{"read", "write", "flush", "other"}, func(n *target.NamespaceStats) []uint64 {
		return []uint64{n.Reads, n.Writes, n.Flushes, n.Others}
	})
	each("bytes_total", "Bytes of reads and writes.", []string{"read", "write"}, func(n *target.NamespaceStats) []uint64 {
		return []uint64{n.BytesRead, n.BytesWritten}
	})
	each("backend_failures_total", "Commands that a backend failed.", nil, func(n *target.NamespaceStats) []uint64 {
		return []uint64{n.Failures}
	})
}
