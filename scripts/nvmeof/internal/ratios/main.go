// Command ratios compares our target with the kernel's: it reads what fio wrote (JSON),
// and prints medians and the ratio of each point, with an interval.
//
//	ratios FILE...
//
// Without a file it prints the head of the table. Each file is one point: jobs that are named kernel-1, ours-1, kernel-2, ours-2, ... in
// the order in which they ran. The file's name, without its end, is the point's.
//
// A ratio is the median of the ratios of neighbours, which share what else the machine
// was doing; its interval holds 95 % of the medians of 10,000 resampled sets of them
// (percentile bootstrap, a fixed seed).
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// direction is what fio says about the reads or the writes of a job.
type direction struct {
	IOPS    float64 `json:"iops"`
	Total   int     `json:"total_ios"`
	Latency struct {
		Mean float64 `json:"mean"`
	} `json:"lat_ns"`
}

type output struct {
	Jobs []struct {
		Name    string    `json:"jobname"`
		Error   int       `json:"error"`
		Read    direction `json:"read"`
		Write   direction `json:"write"`
		Options struct {
			Depth string `json:"iodepth"`
		} `json:"job options"`
	} `json:"jobs"`
}

// point is one workload, measured several times.
type point struct {
	name         string
	kernel, ours []direction
}

func load(path string) (p point, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	// fio may print words before the JSON.
	if i := strings.IndexByte(string(b), '{'); i > 0 {
		b = b[i:]
	}
	var out output
	if err := json.Unmarshal(b, &out); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	p.name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	for _, j := range out.Jobs {
		d := j.Read
		if j.Write.Total > 0 {
			d = j.Write
		}
		if j.Error != 0 || d.Total == 0 {
			return p, fmt.Errorf("%s: job %s: error %d, %d commands", path, j.Name, j.Error, d.Total)
		}
		switch {
		case strings.HasPrefix(j.Name, "kernel"):
			p.kernel = append(p.kernel, d)
		case strings.HasPrefix(j.Name, "ours"):
			p.ours = append(p.ours, d)
		default:
			return p, fmt.Errorf("%s: job %q is neither kernel's nor ours", path, j.Name)
		}
	}
	if len(p.kernel) != len(p.ours) || len(p.kernel) == 0 {
		return p, fmt.Errorf("%s: %d runs of the kernel's target, %d of ours", path, len(p.kernel), len(p.ours))
	}
	return p, nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}

// interval resamples.
func interval(v []float64) (low, high float64) {
	const rounds = 10000
	rng := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, rounds)
	sample := make([]float64, len(v))
	for i := range medians {
		for k := range sample {
			sample[k] = v[rng.IntN(len(v))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	return medians[rounds*25/1000], medians[rounds*975/1000-1]
}

func column(d []direction, f func(direction) float64) (v []float64) {
	for _, x := range d {
		v = append(v, f(x))
	}
	return v
}

func ratios(a, b []float64) (v []float64) {
	for i := range a {
		v = append(v, a[i]/b[i])
	}
	return v
}

func iops(d direction) float64         { return d.IOPS }
func milliseconds(d direction) float64 { return d.Latency.Mean / 1e6 }

func main() {
	const name = "%-19s"
	if len(os.Args) == 1 {
		fmt.Printf(name+" %11s %6s %6s %12s %10s %7s %6s %12s\n", "point", "kernel IOPS", "ours", "ratio", "95 %", "kernel ms", "ours", "ratio", "95 %")
	}
	for _, path := range os.Args[1:] {
		p, err := load(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, "ratios:", err)
			os.Exit(1)
		}
		fmt.Printf(name, p.name)
		compare(p, iops, " %11.0f %6.0f")
		compare(p, milliseconds, " %10.2f %7.2f")
		fmt.Println()
	}
}

// compare prints the medians of one quantity, in a format of its own, and their ratio.
func compare(p point, quantity func(direction) float64, format string) {
	k, o := column(p.kernel, quantity), column(p.ours, quantity)
	r := ratios(o, k)
	low, high := interval(r)
	fmt.Printf(format+" %6.2f %12s", median(k), median(o), median(r), fmt.Sprintf("%.2f..%.2f", low, high))
}
