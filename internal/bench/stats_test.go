package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestQuantile(t *testing.T) {
	tests := []struct {
		samples []float64
		q, want float64
	}{
		{[]float64{3}, 0.5, 3},
		{[]float64{3}, 1, 3},
		{[]float64{4, 1, 3, 2}, 0, 1},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 1, 4},
		{[]float64{5, 1, 3}, 0.5, 3},
		{[]float64{0, 10}, 0.95, 9.5},
	}
	for _, test := range tests {
		if got := quantile(test.samples, test.q); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("quantile(%v, %v): got %v, want %v", test.samples, test.q, got, test.want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of no samples: got %v, want NaN", got)
	}
	samples := []float64{3, 1, 2}
	quantile(samples, 0.5)
	if samples[0] != 3 {
		t.Errorf("the samples were sorted in place: %v", samples)
	}
}

func TestRatiosAreOfNeighbours(t *testing.T) {
	// The machine was half as fast during the second pair, and the ratio is the same.
	if got := median(ratios([]float64{2, 4, 2}, []float64{1, 2, 1})); got != 2 {
		t.Errorf("got %v, want 2", got)
	}
	if got := selfRatios([]float64{1, 2, 1}); len(got) != 2 || got[0] != 0.5 || got[1] != 2 {
		t.Errorf("got %v, want [0.5 2]", got)
	}
	if got := selfRatios([]float64{1}); got != nil {
		t.Errorf("got %v, want none", got)
	}
}

func TestDistribution(t *testing.T) {
	samples := make([]float64, 201)
	for i := range samples {
		samples[i] = float64(i)
	}
	d := distributionOf(samples)
	if len(d) != 101 || d[0] != 0 || d[50] != 100 || d[100] != 200 {
		t.Errorf("got %d quantiles from %v by %v to %v, want 101 from 0 by 100 to 200", len(d), d[0], d[50], d[100])
	}
	if got := distributionOf(nil); got != nil {
		t.Errorf("no samples: got %v, want none", got)
	}
}

func TestRounded(t *testing.T) {
	for v, want := range map[float64]float64{0: 0, 1.23456: 1.235, 123456: 123500, 0.000123456: 0.0001235, -1.23456: -1.235} {
		if got := rounded(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("%v: got %v, want %v", v, got, want)
		}
	}
}

func TestRankTest(t *testing.T) {
	// By hand: the ranks of a are 1, 2, 4 and 6, so U is 3 of 16, and its standard deviation is sqrt(12).
	if got, want := rankTest([]float64{1, 2, 4, 6}, []float64{3, 5, 7, 8}), -5/math.Sqrt(12); math.Abs(got-want) > 1e-9 {
		t.Errorf("got %v, want %v", got, want)
	}
	// The three equal values have the rank 3, so U is 5 of 6. They reduce the variance to 3 * (1 - 24/120).
	if got, want := rankTest([]float64{2, 2, 3}, []float64{1, 2}), 2/math.Sqrt(2.4); math.Abs(got-want) > 1e-9 {
		t.Errorf("with ties: got %v, want %v", got, want)
	}
	if got := rankTest([]float64{1, 1}, []float64{1}); !math.IsNaN(got) {
		t.Errorf("equal samples: got %v, want NaN", got)
	}
	// A shift by a tenth of the mean.
	random := rand.New(rand.NewPCG(1, 1))
	var a, same, shifted []float64
	for range 2000 {
		a, same = append(a, random.ExpFloat64()), append(same, random.ExpFloat64())
		shifted = append(shifted, random.ExpFloat64()+0.1)
	}
	if z := rankTest(a, same); math.Abs(z) > 3 {
		t.Errorf("equal distributions: z %v", z)
	}
	if z := rankTest(shifted, a); z < 4 {
		t.Errorf("a shift: z %v", z)
	}
}
