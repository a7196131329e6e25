package bench

import (
	"math"
	"slices"
)

// quantile returns the value below which a part q of the samples lies, between the
// two nearest of them by their distance. NaN if there are none.
func quantile(samples []float64, q float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := at - float64(low)
	return sorted[low]*(1-part) + sorted[low+1]*part
}

func median(samples []float64) float64 { return quantile(samples, 0.5) }

// ratios divides each sample by the one that was taken beside it, so that what
// disturbs the machine for longer than a pair of runs disturbs both.
func ratios(samples, beside []float64) []float64 {
	out := make([]float64, min(len(samples), len(beside)))
	for i := range out {
		out[i] = samples[i] / beside[i]
	}
	return out
}

// selfRatios divides each sample by the next: what ratios says of two things that
// are the same.
func selfRatios(samples []float64) []float64 {
	if len(samples) < 2 {
		return nil
	}
	return ratios(samples[:len(samples)-1], samples[1:])
}

// A distribution is samples in 101 numbers: the quantiles 0, 0.01, ... 1.
type distribution []float64

func distributionOf(samples []float64) distribution {
	if len(samples) == 0 {
		return nil
	}
	d := make(distribution, 101)
	for i := range d {
		d[i] = rounded(quantile(samples, float64(i)/100))
	}
	return d
}

// rounded keeps four digits: no clock here means more.
func rounded(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
