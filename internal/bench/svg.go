package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Sizes in the picture, in its user units.
const (
	svgWidth   = 720
	panelTop   = 22
	panelTall  = 120
	panelGap   = 34
	panelLeft  = 44
	panelRight = 12
)

// seriesColours are colours that people with colour blindness can tell apart.
var seriesColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// SVG draws the distributions. Each curve shows which part of the runs (vertical) took at
// most how long (horizontal, logarithmic).
func (r *Report) SVG(w io.Writer) error {
	var b strings.Builder
	tall := len(r.Distributions)*(panelTop+panelTall+panelGap) + 6
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", svgWidth, tall)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", svgWidth, tall)
	for i, d := range r.Distributions {
		d.draw(&b, i*(panelTop+panelTall+panelGap))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// draw draws one panel with its top at y.
// The axis is logarithmic, since the slowest run takes many times as long as the median.
func (d Distribution) draw(b *strings.Builder, y int) {
	low, high := d.bounds()
	top, left, wide := float64(y+panelTop), float64(panelLeft), float64(svgWidth-panelLeft-panelRight)
	x := func(v float64) float64 {
		return left + wide*(math.Log10(max(v, low))-math.Log10(low))/(math.Log10(high)-math.Log10(low))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", panelLeft, y+14, html.EscapeString(d.Name))
	legend := left + wide
	for i := len(d.Series) - 1; i >= 0; i-- {
		legend -= float64(16 + 7*len(d.Series[i].Name))
		fmt.Fprintf(b, `<text x="%.0f" y="%d" fill="%s">%s</text>`+"\n", legend, y+14, seriesColours[i%len(seriesColours)], html.EscapeString(d.Series[i].Name))
	}
	for _, v := range ticks(low, high) {
		fmt.Fprintf(b, `<path d="M%.1f %.1fv%d" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle" fill="#555">%s</text>`+"\n",
			x(v), top, panelTall, x(v), top+panelTall+14, trimZeros(fmt.Sprintf("%.3f", v))+" "+d.Unit)
	}
	for _, q := range []int{0, 50, 95, 100} {
		at := top + panelTall*(1-float64(q)/100)
		fmt.Fprintf(b, `<path d="M%.1f %.1fh%.1f" stroke="#ddd"/>`+"\n", left, at, wide)
		if q != 100 {
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="#555">%d %%</text>`+"\n", left-4, at+4, q)
		}
	}
	for i, s := range d.Series {
		var line strings.Builder
		for q, v := range s.Quantiles {
			fmt.Fprintf(&line, "%.1f,%.1f ", x(v), top+panelTall*(1-float64(q)/100))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke-width="1.5" stroke="%s" points="%s"/>`+"\n", seriesColours[i%len(seriesColours)], strings.TrimSpace(line.String()))
	}
}

// bounds returns the ends of the axis: the smallest and largest time, with some margin.
func (d Distribution) bounds() (low, high float64) {
	low, high = math.Inf(1), 0
	for _, s := range d.Series {
		low, high = min(low, s.Quantiles[0]), max(high, s.Quantiles[len(s.Quantiles)-1])
	}
	// A logarithm needs a number above 0.
	const least = 0.001
	low = max(low/1.1, least)
	return low, max(high*1.1, low*2)
}

// ticks returns the 1, 2 and 5 of each power of ten between low and high. The axis is
// logarithmic, so these are about equally far apart.
func ticks(low, high float64) []float64 {
	var out []float64
	for power := math.Floor(math.Log10(low)); math.Pow(10, power) <= high; power++ {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * math.Pow(10, power); v >= low && v <= high {
				out = append(out, v)
			}
		}
	}
	return out
}
