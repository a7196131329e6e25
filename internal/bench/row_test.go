package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestFallsShort(t *testing.T) {
	tests := []struct {
		name         string
		bound        bound
		value, ratio float64
		want         bool
	}{
		{"ratio below", ratioAtMost(2), 100, 1.9, false},
		{"ratio at", ratioAtMost(2), 100, 2, false},
		{"ratio above", ratioAtMost(2), 1, 2.1, true},
		{"rate above", ratioAtLeast(1.5), 1, 1.6, false},
		{"rate below", ratioAtLeast(1.5), 100, 1.4, true},
		{"value below", valueAtMost(64), 63, 100, false},
		{"value above", valueAtMost(64), 65, 0, true},
		{"value too low", valueAtLeast(400), 399, 1, true},
	}
	for _, test := range tests {
		row := test.bound.row("x", "x", "ms")
		row.set(test.value, 1)
		row.Ratio = number(test.ratio)
		if got := row.FallsShort(); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
	unmeasured := ratioAtMost(2).row("x", "x", "ms")
	if unmeasured.FallsShort() {
		t.Error("a row without a value falls short")
	}
	without := free("x", "x", "ms")
	without.set(1, 1)
	if without.FallsShort() {
		t.Error("a row without a target falls short")
	}
}

func TestSetReason(t *testing.T) {
	tests := []struct {
		name           string
		row            Row
		err            error
		notRun, broken string
	}{
		{"measured", Row{Value: number(1)}, nil, "", ""},
		{"measured before the error", Row{Value: number(1)}, errors.New("late"), "", ""},
		{"failed", Row{}, errors.New("no daemon"), "", "no daemon"},
		{"forgotten", Row{}, nil, "", "the row was not measured"},
		{"nothing beside it", Row{Value: number(1), TargetOf: "ratio"}, nil, "", "there is nothing to compare with"},
		{"not possible", Row{}, fault("python", notRun("no pandas")), "no pandas", ""},
		{"said so itself", Row{NotRun: "no runc"}, nil, "no runc", ""},
	}
	for _, test := range tests {
		test.row.setReason(test.err)
		if test.row.NotRun != test.notRun || test.row.Broken != test.broken {
			t.Errorf("%s: got not run %q, broken %q, want %q, %q", test.name, test.row.NotRun, test.row.Broken, test.notRun, test.broken)
		}
	}
}

func TestSetPairs(t *testing.T) {
	row := ratioAtMost(2).row("x", "x", "ms")
	row.setPairs([]float64{3, 30, 6}, []float64{1, 10, 3}, 0.5)
	if *row.Value != 6 || *row.Bare != 3 || *row.Ratio != 3 || row.N != 3 {
		t.Errorf("got %v beside %v, ratio %v of %d, want 6 beside 3, ratio 3 of 3", *row.Value, *row.Bare, *row.Ratio, row.N)
	}
}

func TestMatchRows(t *testing.T) {
	names := []string{"true-p50", "true-p95", "python-p50", "grow-record", "grow-record-ready"}
	tests := []struct {
		patterns []string
		want     string
	}{
		{nil, strings.Join(names, " ")},
		{[]string{"true"}, "true-p50 true-p95"},
		{[]string{"python-p50", "true-p95"}, "true-p95 python-p50"},
		{[]string{"*-p50"}, "true-p50 python-p50"},
		{[]string{"grow-record"}, "grow-record grow-record-ready"},
	}
	for _, test := range tests {
		got, err := MatchRows(names, test.patterns)
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("%q: got %v, %v, want %s", test.patterns, got, err, test.want)
		}
	}
	for _, bad := range []string{"tru", "[", ""} {
		if got, err := MatchRows(names, []string{bad}); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestRowNames(t *testing.T) {
	names := Names()
	if sorted := slices.Sorted(slices.Values(names)); len(slices.Compact(sorted)) != len(names) {
		t.Errorf("two rows have the same name: %v", names)
	}
	for i, g := range groups(short) {
		if got, want := g.rows[0].Name, groups(full)[i].rows[0].Name; got != want {
			t.Errorf("a short run has the row %s, a full one %s", got, want)
		}
	}
}
