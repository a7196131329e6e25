package bench

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

func sample() *Report {
	r := &Report{Version: "v1", Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Took: "1s", Machine: Machine{Processor: "a|b", Cores: 2}}
	met := ratioAtMost(2).row("true-p50", "warm `true`, p50", "ms")
	met.setPairs([]float64{1.5, 1.5}, []float64{1, 1}, 0.5)
	met.setPeer("runc", PeerValue{Value: 35, Ratio: number(35)})
	missed := valueAtLeast(400).row("stream-rate", "output", "MiB/s")
	missed.set(97.4, 1)
	absent := ratioAtMost(0.08).row("pandas-p50", "pandas", "ms")
	absent.NotRun = "pandas is not installed"
	broken := valueAtMost(64).row("memory-idle", "memory", "MiB")
	broken.Broken = "it\nfell | over"
	r.Rows = []Row{met, missed, absent, broken}
	r.keep("true <&>", "ms", []*subject{{name: "skillrun"}, {name: "bare"}}, [][]float64{{1.5, 30}, {0.5, 1}})
	r.judge()
	return r
}

func TestReportAsJSON(t *testing.T) {
	data, err := json.Marshal(sample())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows       []map[string]any `json:"rows"`
		FallsShort []string         `json:"falls_short"`
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if strings.Join(got.FallsShort, " ") != "stream-rate" {
		t.Errorf("falls_short: got %v, want [stream-rate]", got.FallsShort)
	}
	for _, row := range got.Rows {
		for _, key := range []string{"name", "unit", "value", "bare", "ratio", "target", "n"} {
			if _, ok := row[key]; !ok {
				t.Errorf("%v has no %s", row["name"], key)
			}
		}
	}
	if none, _ := json.Marshal((&Report{Rows: []Row{}, FallsShort: []string{}})); !strings.Contains(string(none), `"falls_short":[]`) {
		t.Errorf("without a missed target: got %s, want an empty list", none)
	}
}

func TestIntoDocument(t *testing.T) {
	document := "# Title\n\n" + tableBegin + "\nold\n" + tableEnd + "\n\nmore\n"
	once, err := sample().IntoDocument(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Title\n\n" + tableBegin, tableEnd + "\n\nmore\n", "2 cores of a|b",
		"| warm `true`, p50 | 1.5 ms | 1 ms | 1.5 | 1 | at most 2 times | 2 | met | 35 ms, 35 |",
		"| output | 97.4 MiB/s |  |  |  | at least 400 MiB/s | 1 | falls short |  |",
		"not run: pandas is not installed", `BROKEN: it fell \| over`, "miss their target: `stream-rate`.",
	} {
		if !strings.Contains(once, want) {
			t.Errorf("got\n%s\nwant %q in it", once, want)
		}
	}
	if strings.Contains(once, "old") {
		t.Error("the old table was not replaced")
	}
	twice, err := sample().IntoDocument(once)
	if err != nil || twice != once {
		t.Errorf("a second time: %v; it differs from the first", err)
	}
	for _, bad := range []string{"", tableBegin, tableEnd, tableEnd + tableBegin} {
		if _, err := sample().IntoDocument(bad); err == nil {
			t.Errorf("%q: got nil, want an error", bad)
		}
	}
}

func TestSVG(t *testing.T) {
	var b strings.Builder
	if err := sample().SVG(&b); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for in := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := in.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("got %d curves, want 2", lines)
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Errorf("the SVG has an invalid number:\n%s", b.String())
	}
	b.Reset()
	if err := (&Report{}).SVG(&b); err != nil || !strings.Contains(b.String(), "</svg>") {
		t.Errorf("without distributions: got %q, %v", b.String(), err)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.00385: "0.00385", 0.5: "0.5", 1.234: "1.23", 99.96: "100", 1234.5: "1,235", 1234567: "1,234,567", -2: "-2"} {
		if got := plainNumber(&v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := plainNumber(nil); got != "" {
		t.Errorf("none: got %q", got)
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1000000: "1,000,000"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}
