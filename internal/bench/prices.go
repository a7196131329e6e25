package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Price is what one thing costs: samples of something with it and without it, which
// took turns, A B A B, so that what disturbs the machine for longer than a pair
// disturbs both.
type Price struct {
	Name string
	// The quantiles of each, in the unit of the samples.
	With50, With95, Without50, Without95 float64
	// Median is that of the differences of all pairs, and what lies between Low and
	// High is where it lies in 95 of 100 such runs, whatever the samples' distribution.
	Median, Low, High float64
	N                 int // pairs
}

// PriceOf compares samples with those that were taken beside them.
func PriceOf(name string, with, without []float64) Price {
	n := min(len(with), len(without))
	with, without = with[:n], without[:n]
	differences := make([]float64, n)
	for i := range differences {
		differences[i] = with[i] - without[i]
	}
	low, high := medianBounds(differences)
	return Price{
		Name: name, N: n,
		With50: median(with), With95: quantile(with, 0.95), Without50: median(without), Without95: quantile(without, 0.95),
		Median: median(differences), Low: low, High: high,
	}
}

// medianBounds are two of the samples: how many lie below the true median is binomial,
// and 1.96 of its standard deviations to each side are 95 of 100 cases. So few samples
// that none are sure enough have infinite bounds.
func medianBounds(samples []float64) (low, high float64) {
	n := len(samples)
	below := int(math.Floor(float64(n)/2 - 0.98*math.Sqrt(float64(n))))
	if below < 1 { // not even all of them are so sure
		return math.Inf(-1), math.Inf(1)
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[below-1], sorted[n-below]
}

// Noticed reports whether the price is more than noise.
func (p Price) Noticed() bool { return p.Low > 0 || p.High < 0 }

// A PriceList is prices of one unit, for one table.
type PriceList struct {
	Title  string
	Unit   string
	Prices []Price
}

// Prices are all that one run found.
type Prices struct {
	Version string
	Time    time.Time
	Took    time.Duration
	Machine Machine
	Lists   []PriceList
}

// NewPrices begins a run; Took counts from here when it is written.
func NewPrices(version string) *Prices {
	p := &Prices{Version: version, Time: time.Now().UTC(), Machine: describeMachine()}
	p.Machine.LoadBefore = loadAverage()
	return p
}

// Markdown writes the tables, with where they were made.
func (p *Prices) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(origin(p.Version, p.Time, p.Took.Round(time.Second).String(), p.Machine))
	for _, l := range p.Lists {
		fmt.Fprintf(&b, "\n%s (%s):\n\n| without | with it, p50 | p95 | without, p50 | p95 | price | 95 %% sure | pairs |\n|---|---|---|---|---|---|---|---|\n", l.Title, l.Unit)
		for _, v := range l.Prices {
			price := fixed(v.Median)
			if !v.Noticed() {
				price += ", noise"
			}
			cells := []string{
				v.Name, fixed(v.With50), fixed(v.With95), fixed(v.Without50), fixed(v.Without95),
				price, v.bounds(), strconv.Itoa(v.N),
			}
			b.WriteString("| " + strings.Join(escaped(cells), " | ") + " |\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Price) bounds() string {
	if math.IsInf(p.Low, 0) {
		return "too few pairs"
	}
	return fixed(p.Low) + " to " + fixed(p.High)
}

func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

const (
	pricesBegin = "<!-- prices of boundaries -->"
	pricesEnd   = "<!-- end of prices -->"
)

// IntoDocument returns a document with what stands between its marks replaced.
func (p *Prices) IntoDocument(document string) (string, error) {
	var b strings.Builder
	if err := p.Markdown(&b); err != nil {
		return "", err
	}
	return between(document, pricesBegin, pricesEnd, b.String())
}

// End notes when a run ended.
func (p *Prices) End() {
	p.Took = time.Since(p.Time)
	p.Machine.LoadAfter = loadAverage()
}

// between replaces what stands between two marks of a document.
func between(document, begin, end, text string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", errors.New("it has no lines " + begin + " and " + end + " to write between")
	}
	return before + begin + "\n\n" + text + "\n" + end + after, nil
}
