package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// row is one line of the output. Its JSON is an interface: names don't change.
type row struct {
	Device        string `json:"device"`
	Protocol      string `json:"protocol"`
	Op            string `json:"op"`
	Pieces        int    `json:"pieces"`
	Bytes         int    `json:"bytes"`
	Strategy      string `json:"strategy"`
	WRs           int    `json:"wrs"`
	Registrations int    `json:"registrations"`
	Invalidations int    `json:"invalidations"`
	// ReadsInFlight is the smaller of the transfer's READs and the depth.
	ReadsInFlight int   `json:"reads_in_flight"`
	CPUNS         int64 `json:"cpu_ns"`
	// FloorNS is null: floors are measured by bench cpu.
	FloorNS *int64 `json:"floor_ns"`
	Allocs  int64  `json:"allocs"`
	// ModelledUS is the simulator's; nil on real devices.
	ModelledUS *float64 `json:"modelled_us"`
	Verified   bool     `json:"verified"`
	// Alternatives are what else the transfer could take on this device, by name;
	// nil for what the device can't do. Nil on real devices.
	Alternatives map[string]*alternativeRow `json:"alternatives"`
}

// columns are the headings of the table, with those of the alternatives or without.
func columns(alternative bool) []string {
	all := []string{"device", "op", "pieces", "bytes", "strategy", "WRs", "registrations", "invalidations", "CPU ns", "allocations", "modelled µs"}
	if alternative {
		for _, alt := range alternatives {
			all = append(all, alt.heading)
		}
	}
	return append(all, "verified")
}

func (r row) cells(alternative bool) []string {
	verified := "yes"
	if !r.Verified {
		verified = "NO"
	}
	cells := []string{r.Device, r.Op}
	for _, v := range []any{r.Pieces, r.Bytes, r.Strategy, r.WRs, r.Registrations, r.Invalidations, r.CPUNS, r.Allocs, microseconds(r.ModelledUS)} {
		cells = append(cells, fmt.Sprint(v))
	}
	if alternative {
		cells = append(cells, r.alternativeCells()...)
	}
	return append(cells, verified)
}

// writeTable prints rows under their headings.
func writeTable(w io.Writer, rows []row, alternative bool) error {
	headings := columns(alternative)
	lines := [][]string{slices.Clone(headings)}
	for _, r := range rows {
		lines = append(lines, r.cells(alternative))
	}
	for i, heading := range headings {
		switch heading {
		case "device", "op", "strategy": // words to the left, numbers to the right
			alignLeft(lines, i)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, line := range lines {
		fmt.Fprintf(tw, "%s\t\n", strings.Join(line, "\t"))
	}
	if err := tw.Flush(); err != nil || !alternative {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s", legend)
	return err
}

func alignLeft(lines [][]string, column int) {
	width := 0
	for _, line := range lines {
		width = max(width, len(line[column]))
	}
	for _, line := range lines {
		line[column] = fmt.Sprintf("%-*s", width, line[column])
	}
}
