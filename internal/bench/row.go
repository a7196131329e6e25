package bench

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// A Row is one line of the table: one measurement. A missing number is nil. In a finished report
// Value, NotRun or Broken is set (setReason).
type Row struct {
	Name string `json:"name"`
	// Title describes the measurement in a few words.
	Title string `json:"title"`
	Unit  string `json:"unit"`
	// Value is skillrun's figure, Bare the baseline's in the same run. Against names the
	// baseline if it is not the bare program.
	Value   *float64 `json:"value"`
	Bare    *float64 `json:"bare"`
	Against string   `json:"against,omitempty"`
	// Ratio is a quantile of the ratios of neighbouring samples, not the ratio of two
	// quantiles. For rates it is Value divided by Bare.
	Ratio *float64 `json:"ratio"`
	// Noise is the same quantile of the baseline's ratios to itself, or to an equal thing: the Ratio of two equal
	// things.
	Noise *float64 `json:"noise,omitempty"`
	// Target is the limit of Ratio or Value, see TargetOf and TargetIs.
	Target   *float64 `json:"target"`
	TargetOf string   `json:"target_of,omitempty"` // "ratio" or "value"
	TargetIs string   `json:"target_is,omitempty"` // "at most" or "at least"
	// N is the number of samples of each.
	N int `json:"n"`
	// Peers has the figures of the other systems.
	Peers map[string]PeerValue `json:"peers,omitempty"`
	// NotRun says why the row could not be measured on this machine. That is not a failure.
	NotRun string `json:"not_run,omitempty"`
	// Broken says why the measurement failed.
	Broken string `json:"broken,omitempty"`
	// Note explains the figure.
	Note string `json:"note,omitempty"`
}

// PeerValue is a peer's figure, and its ratio to the baseline. Failed is the number of runs that failed and were repeated.
type PeerValue struct {
	Value  float64  `json:"value"`
	Ratio  *float64 `json:"ratio"`
	Failed int      `json:"failed,omitempty"`
	Broken string   `json:"broken,omitempty"`
}

// A bound is a target: "ratio" or "value", "at most" or "at least".
type bound struct {
	of, is string
	target float64
}

// The four kinds of targets. A ratio has no unit; a value has the row's.
func ratioAtMost(v float64) bound  { return bound{"ratio", "at most", v} }
func ratioAtLeast(v float64) bound { return bound{"ratio", "at least", v} }
func valueAtMost(v float64) bound  { return bound{"value", "at most", v} }
func valueAtLeast(v float64) bound { return bound{"value", "at least", v} }

// row returns a row with this target.
func (b bound) row(name, title, unit string) Row {
	return Row{Name: name, Title: title, Unit: unit, Target: &b.target, TargetOf: b.of, TargetIs: b.is}
}

// free returns a row without a target.
func free(name, title, unit string) Row { return Row{Name: name, Title: title, Unit: unit} }

// against sets the name of the baseline.
func (r Row) against(what string) Row {
	r.Against = what
	return r
}

// Measured reports whether the row has a figure.
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

// set sets the row's value.
func (r *Row) set(value float64, n int) {
	r.Value, r.N = number(value), n
}

// setRatio sets the value, the baseline's value, and their ratio. For rates and quantiles of one
// load, which have no pairs; such a row has no noise.
func (r *Row) setRatio(value, bare float64, n int) {
	r.set(value, n)
	r.Bare, r.Ratio = number(bare), number(value/bare)
}

// setPairs sets the quantile q of the samples, of the baseline's samples, and of their
// ratios.
// The quantile of ratios is steadier than the ratio of quantiles: a slow moment of the
// machine is in both samples of a pair.
func (r *Row) setPairs(samples, beside []float64, q float64) {
	r.set(quantile(samples, q), len(samples))
	r.Bare = number(quantile(beside, q))
	r.Ratio = number(quantile(ratios(samples, beside), q))
	r.Noise = number(quantile(selfRatios(beside), q))
}

// number returns v rounded, or nil if JSON cannot represent it.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	v = rounded(v)
	return &v
}

// A group has rows that are measured together. measure finds its rows by name in the
// rowSet. A row that it leaves without a value is broken.
type group struct {
	name    string
	rows    []Row
	measure func(*run, rowSet) error
}

// A rowSet has the rows of a group by name.
type rowSet map[string]*Row

// notRun is the error of a measurement that is not possible on this machine.
type notRun string

func (n notRun) Error() string { return string(n) }

// MatchRows returns the names that the patterns select. A pattern selects names that equal
// it, match it (path.Match), or begin with it and a "-". Without patterns it returns all
// names. A pattern that selects nothing is an error.
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
			return nil, fmt.Errorf("rows %q: no such row; the rows are %s", pattern, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !chosen[n] }), nil
}
