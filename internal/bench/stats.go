package bench

import (
	"cmp"
	"math"
	"slices"
)

// quantile returns the value below which a part q of the samples lies, by linear
// interpolation between the two nearest samples. It is NaN if there are no samples.
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

// ratios divides each sample by its neighbour, so that a disturbance that lasts longer than
// a pair of runs affects both.
func ratios(samples, beside []float64) []float64 {
	out := make([]float64, min(len(samples), len(beside)))
	for i := range out {
		out[i] = samples[i] / beside[i]
	}
	return out
}

// differences subtracts each sample's neighbour from it.
func differences(samples, beside []float64) []float64 {
	out := make([]float64, min(len(samples), len(beside)))
	for i := range out {
		out[i] = samples[i] - beside[i]
	}
	return out
}

// selfRatios divides each sample by the next one. The result is what ratios gives for two
// equal things.
// Its spread is the noise of the machine: a difference that is smaller is no finding.
func selfRatios(samples []float64) []float64 {
	if len(samples) < 2 {
		return nil
	}
	return ratios(samples[:len(samples)-1], samples[1:])
}

// A distribution describes samples by 101 numbers: the quantiles 0, 0.01, ... 1.
// A load has thousands of samples; the report keeps these numbers only.
type distribution []float64

// distributionOf returns nil without samples.
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

// rounded keeps four significant digits, since the clocks are not more accurate.
func rounded(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// rankTest compares two samples by their ranks (Mann and Whitney) and returns z. If both come from one
// distribution, whatever its form is, z has nearly a standard normal distribution. It is positive if the
// first has the larger values. It is NaN without samples, or if all are equal.
func rankTest(a, b []float64) (z float64) {
	type sample struct {
		value float64
		first bool
	}
	var all []sample
	for _, v := range a {
		all = append(all, sample{v, true})
	}
	for _, v := range b {
		all = append(all, sample{v, false})
	}
	slices.SortFunc(all, func(x, y sample) int { return cmp.Compare(x.value, y.value) })
	var ranks, ties float64
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].value == all[i].value {
			j++
		}
		for _, s := range all[i:j] {
			if s.first {
				ranks += float64(i+j+1) / 2 // equal values share the mean of their ranks, which begin with 1
			}
		}
		same := float64(j - i)
		ties += same*same*same - same
		i = j
	}
	n, m := float64(len(a)), float64(len(b))
	u := ranks - n*(n+1)/2
	return (u - n*m/2) / math.Sqrt(n*m/12*(n+m+1-ties/((n+m)*(n+m-1))))
}
