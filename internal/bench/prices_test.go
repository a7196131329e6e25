package bench

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A price of zero is reported as noise, and a small price is found in spite of larger
// noise.
func TestPriceOf(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const n = 400
	base, same, more := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range n {
		slow := 5 * random.Float64() // the same for both samples of a pair
		base[i] = 10 + slow + random.Float64()
		same[i] = 10 + slow + random.Float64()
		more[i] = 10.5 + slow + random.Float64()
	}
	if p := PriceOf("none", base, same); p.Noticed() || p.N != n || p.Low > p.Median || p.Median > p.High {
		t.Errorf("no price: got %+v", p)
	}
	if p := PriceOf("half", more, base); !p.Noticed() || p.Median < 0.4 || p.Median > 0.6 || p.Low <= 0 {
		t.Errorf("half a unit: got %+v", p)
	}
	if p := PriceOf("gain", base, more); !p.Noticed() || p.High >= 0 {
		t.Errorf("half a unit less: got %+v", p)
	}
	if p := PriceOf("few", []float64{3, 4, 9}, []float64{1, 2}); p.N != 2 || p.Median != 2 || p.Noticed() || p.With50 != 3.5 || p.Without50 != 1.5 {
		t.Errorf("two pairs: got %+v", p)
	}
	if p := PriceOf("none at all", nil, nil); p.N != 0 || p.Noticed() {
		t.Errorf("no pairs: got %+v", p)
	}
}

func TestPricesIntoDocument(t *testing.T) {
	p := NewPrices("v1")
	p.Lists = []PriceList{{Title: "A start", Unit: "ms", Prices: []Price{PriceOf("a|b", slices.Repeat([]float64{3}, 9), slices.Repeat([]float64{1}, 9)), PriceOf("c", []float64{1, 3}, []float64{2, 2})}}}
	p.End()
	document := "x\n" + pricesBegin + "\nold\n" + pricesEnd + "\ny\n"
	got, err := p.IntoDocument(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"x\n" + pricesBegin, pricesEnd + "\ny\n", "A start (ms):", `| a\|b | 3.000 | 3.000 | 1.000 | 1.000 | 2.000 | 2.000 to 2.000 | 9 |`,
		"| c | 2.000 | 2.900 | 2.000 | 2.000 | 0.000, noise | too few pairs | 2 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("got\n%s\nwith the old text", got)
	}
	if again, err := p.IntoDocument(got); err != nil || again != got {
		t.Errorf("a second time: got\n%s, %v", again, err)
	}
	if _, err := p.IntoDocument("x\n" + pricesBegin); err == nil {
		t.Error("a document without an end was written to")
	}
}
