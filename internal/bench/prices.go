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

// A Price is the cost of one thing. Samples with it and without it take turns (A B A B), so
// that a disturbance that lasts longer than a pair affects both.
type Price struct {
	Name string
	// The quantiles of the samples, in their unit.
	With50, With95, Without50, Without95 float64
	// Median is the median of the differences of all pairs. Low and High are the bounds of
	// its 95 % confidence interval, which holds for any distribution of the samples.
	Median, Low, High float64
	N                 int // number of pairs
}

// PriceOf compares samples with the samples that were taken in turns with them.
// Samples without a partner at the end are left out.
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

// medianBounds returns the samples that bound the 95 % confidence interval of the median.
// The number of samples below the true median has a binomial distribution, so the bounds
// are 1.96 of its standard deviations (sqrt(n)/2) away. With too few samples the bounds are
// infinite.
// The interval needs no assumption about the shape of the distribution: whether a sample is
// above or below the median is a fair coin.
func medianBounds(samples []float64) (low, high float64) {
	n := len(samples)
	below := int(math.Floor(float64(n)/2 - 0.98*math.Sqrt(float64(n))))
	if below < 1 { // all samples together are not enough
		return math.Inf(-1), math.Inf(1)
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[below-1], sorted[n-below]
}

// Noticed reports whether the price differs from zero by more than noise.
func (p Price) Noticed() bool { return p.Low > 0 || p.High < 0 }

// A PriceList has the prices of one unit, for one table.
type PriceList struct {
	Title  string
	Unit   string
	Prices []Price
}

// Prices has all results of one run.
type Prices struct {
	Version string
	Time    time.Time
	Took    time.Duration
	Machine Machine
	Lists   []PriceList
}

// NewPrices begins a run. End sets Took.
func NewPrices(version string) *Prices {
	p := &Prices{Version: version, Time: time.Now().UTC(), Machine: describeMachine()}
	p.Machine.LoadBefore = loadAverage()
	return p
}

// Markdown writes the tables, and the machine on which they were measured.
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

// bounds is the confidence interval as text.
func (p Price) bounds() string {
	if math.IsInf(p.Low, 0) {
		return "too few pairs"
	}
	return fixed(p.Low) + " to " + fixed(p.High)
}

// fixed has three decimals: the prices are small, and equal digits are easier to compare in a
// column.
func fixed(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

const (
	pricesBegin = "<!-- prices of boundaries -->"
	pricesEnd   = "<!-- end of prices -->"
)

// IntoDocument returns a document with the text between its marks replaced by the tables.
func (p *Prices) IntoDocument(document string) (string, error) {
	var b strings.Builder
	if err := p.Markdown(&b); err != nil {
		return "", err
	}
	return between(document, pricesBegin, pricesEnd, b.String())
}

// End records the end of a run.
func (p *Prices) End() {
	p.Took = time.Since(p.Time)
	p.Machine.LoadAfter = loadAverage()
}

// between replaces the text between two marks of a document.
// The marks stay, so that the next run finds them.
func between(document, begin, end, text string) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", errors.New("the document has no lines " + begin + " and " + end + " to write between")
	}
	return before + begin + "\n\n" + text + "\n" + end + after, nil
}
