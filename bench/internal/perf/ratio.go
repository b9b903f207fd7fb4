package perf

import (
	"math/rand/v2"
	"slices"
)

// Ratio is the median of the ratios of pairs, with the interval that 95 of 100
// medians of resampled pairs lie in (percentile bootstrap).
type Ratio struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// MaxWidth is the width of an interval beyond which it says nothing.
const MaxWidth = 0.3

// Wide tells that the interval is too wide for a verdict.
func (r Ratio) Wide() bool { return r.High-r.Low > MaxWidth }

const resamples = 4000

func ratioOf(ratios []float64) Ratio {
	if len(ratios) == 0 {
		return Ratio{}
	}
	rng := rand.New(rand.NewPCG(1, uint64(len(ratios))))
	medians := make([]float64, resamples)
	sample := make([]float64, len(ratios))
	for i := range medians {
		for k := range sample {
			sample[k] = ratios[rng.IntN(len(ratios))]
		}
		medians[i] = median(sample)
	}
	slices.Sort(medians)
	return Ratio{Median: median(ratios), Low: medians[resamples*25/1000], High: medians[resamples*975/1000-1]}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n%2 == 1 {
		return s[n/2]
	}
	return (s[n/2-1] + s[n/2]) / 2
}
