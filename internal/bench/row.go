package bench

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// A Row is one line of the table: one thing that was measured. A number that there
// is not is nil.
type Row struct {
	Name string `json:"name"`
	// Title says in a few words what it is.
	Title string `json:"title"`
	Unit  string `json:"unit"`
	// Value is skillrun's, Bare the baseline's in the same run; Against says what
	// that is if it is not the same program started bare.
	Value   *float64 `json:"value"`
	Bare    *float64 `json:"bare"`
	Against string   `json:"against,omitempty"`
	// Ratio is the quantile of the ratios of all pairs of neighbours, and not the
	// ratio of the two quantiles; of rates it is Value by Bare.
	Ratio *float64 `json:"ratio"`
	// Noise is the same quantile of the baseline's ratios to itself: what Ratio would
	// be for two things that are the same.
	Noise *float64 `json:"noise,omitempty"`
	// Target bounds Ratio or Value, as TargetOf says, from above or from below.
	Target   *float64 `json:"target"`
	TargetOf string   `json:"target_of,omitempty"` // "ratio" or "value"
	TargetIs string   `json:"target_is,omitempty"` // "at most" or "at least"
	// N is how many samples there are, of each.
	N int `json:"n"`
	// Peers are the other systems that ran beside.
	Peers map[string]PeerValue `json:"peers,omitempty"`
	// NotRun says why the row could not be measured here; that is no failure.
	NotRun string `json:"not_run,omitempty"`
	// Broken says what failed.
	Broken string `json:"broken,omitempty"`
	// Note is what a reader should know of the figure.
	Note string `json:"note,omitempty"`
}

// PeerValue is what another system took for the same, and that by the baseline.
type PeerValue struct {
	Value  float64  `json:"value"`
	Ratio  *float64 `json:"ratio"`
	Broken string   `json:"broken,omitempty"`
}

// A bound is a target.
type bound struct {
	of, is string
	target float64
}

func ratioAtMost(v float64) bound  { return bound{"ratio", "at most", v} }
func ratioAtLeast(v float64) bound { return bound{"ratio", "at least", v} }
func valueAtMost(v float64) bound  { return bound{"value", "at most", v} }
func valueAtLeast(v float64) bound { return bound{"value", "at least", v} }

func (b bound) row(name, title, unit string) Row {
	return Row{Name: name, Title: title, Unit: unit, Target: &b.target, TargetOf: b.of, TargetIs: b.is}
}

// free is a row without a target.
func free(name, title, unit string) Row { return Row{Name: name, Title: title, Unit: unit} }

// against says what the baseline is.
func (r Row) against(what string) Row {
	r.Against = what
	return r
}

// Measured reports whether the row has its figure.
func (r *Row) Measured() bool { return r.Value != nil && r.Broken == "" && r.NotRun == "" }

// FallsShort reports whether the row was measured and misses its target.
func (r *Row) FallsShort() bool {
	if r.Target == nil || !r.Measured() {
		return false
	}
	got := r.Value
	if r.TargetOf == "ratio" {
		got = r.Ratio
	}
	switch {
	case got == nil:
		return false
	case r.TargetIs == "at least":
		return *got < *r.Target
	}
	return *got > *r.Target
}

// set gives the row its value.
func (r *Row) set(value float64, n int) {
	r.Value, r.N = number(value), n
}

// setRatio gives it a value, the baseline's, and one by the other.
func (r *Row) setRatio(value, bare float64, n int) {
	r.set(value, n)
	r.Bare, r.Ratio = number(bare), number(value/bare)
}

// setPairs gives it the quantile q of samples, of those that were taken beside them,
// and of their ratios.
func (r *Row) setPairs(samples, beside []float64, q float64) {
	r.set(quantile(samples, q), len(samples))
	r.Bare = number(quantile(beside, q))
	r.Ratio = number(quantile(ratios(samples, beside), q))
	r.Noise = number(quantile(selfRatios(beside), q))
}

// number returns v as JSON can have it; nil if it is none.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	v = rounded(v)
	return &v
}

// A group is rows that are measured together. Measure finds its rows in set by name;
// one that it leaves without a value is broken.
type group struct {
	name    string
	rows    []Row
	measure func(*run, rowSet) error
}

// A rowSet is the rows of one group, by name.
type rowSet map[string]*Row

// notRun is the error of a measurement that is not possible here.
type notRun string

func (n notRun) Error() string { return string(n) }

// MatchRows reports which of names the patterns select: those that equal or match
// one (path.Match), or begin with it and a "-". No patterns: all. A pattern that
// selects nothing is an error.
func MatchRows(names, patterns []string) (selected []string, err error) {
	if len(patterns) == 0 {
		return names, nil
	}
	chosen := map[string]bool{}
	for _, pattern := range patterns {
		hit := false
		for _, name := range names {
			matched, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("rows %q: %w", pattern, err)
			}
			if matched || strings.HasPrefix(name, pattern+"-") {
				chosen[name], hit = true, true
			}
		}
		if !hit {
			return nil, fmt.Errorf("rows %q: no such row; there are %s", pattern, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !chosen[n] }), nil
}
