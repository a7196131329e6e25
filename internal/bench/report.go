package bench

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Report has all results of a run of the benchmark. It is written as JSON for comparisons
// between versions, and as Markdown and SVG for people.
type Report struct {
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	Took    string    `json:"took"`
	// Short says that the run was at a small scale, for which the targets are not defined.
	Short   bool    `json:"short"`
	Machine Machine `json:"machine"`
	Rows    []Row   `json:"rows"`
	// FallsShort has the names of the rows that miss their target.
	FallsShort []string `json:"falls_short"`
	// Distributions has the samples of the rows that were timed one by one.
	Distributions []Distribution `json:"distributions,omitempty"`
}

// A Machine describes where a report was made. The loads are averages over 1 minute.
type Machine struct {
	Processor  string  `json:"processor"`
	Cores      int     `json:"cores"`
	MemoryGiB  float64 `json:"memory_gib"`
	Kernel     string  `json:"kernel"`
	LoadBefore float64 `json:"load_before"`
	LoadAfter  float64 `json:"load_after"`
}

// A Distribution compares how long several subjects took for the same program.
type Distribution struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit"`
	Series []Series `json:"series"`
}

// Series has the quantiles of one subject's samples.
type Series struct {
	Name      string       `json:"name"`
	Quantiles distribution `json:"quantiles"` // 0, 0.01, ... 1
}

// keep adds the samples of all subjects to the report.
func (r *Report) keep(name, unit string, all []*subject, times [][]float64) {
	d := Distribution{Name: name, Unit: unit}
	for i, s := range all {
		if q := distributionOf(times[i]); q != nil {
			d.Series = append(d.Series, Series{s.name, q})
		}
	}
	r.Distributions = append(r.Distributions, d)
}

// judge compares the rows with their targets. A short run has targets too, but its figures don't
// mean much; the table says so.
func (r *Report) judge() {
	r.FallsShort = []string{}
	for i := range r.Rows {
		if r.Rows[i].FallsShort() {
			r.FallsShort = append(r.FallsShort, r.Rows[i].Name)
		}
	}
}

// describeMachine leaves a field empty if the machine doesn't show it: a report without it is still of use.
func describeMachine() Machine {
	m := Machine{Processor: processor(), Cores: runtime.NumCPU()}
	var name syscall.Utsname
	if syscall.Uname(&name) == nil {
		for _, c := range name.Release {
			if c == 0 {
				break
			}
			m.Kernel += string(rune(c))
		}
	}
	if n, err := kibField("/proc/meminfo", "MemTotal"); err == nil {
		m.MemoryGiB = rounded(float64(n) / (1 << 30))
	}
	return m
}

// processor returns the model name of the first processor in /proc/cpuinfo.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if key, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// loadAverage returns the machine's load average over the last minute, or 0 if it is not
// known.
func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	var load float64
	fmt.Sscan(string(data), &load)
	return load
}

// Columns returns the titles of Cells for a report with these peers.
func Columns(peers []string) []string {
	columns := []string{"what", "skillrun", "bare", "ratio", "noise", "target", "n", ""}
	return append(columns, peers...)
}

// PeerNames returns the names of all peers in the rows, sorted.
func (r *Report) PeerNames() []string {
	names := map[string]bool{}
	for _, row := range r.Rows {
		for name := range row.Peers {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Cells returns the row as cells of a table.
func (r *Row) Cells(peers []string) []string {
	against := ""
	if r.Against != "" && r.Bare != nil {
		against = " (" + r.Against + ")"
	}
	cells := []string{
		r.Title, withUnit(r.Value, r.Unit), withUnit(r.Bare, r.Unit) + against,
		plainNumber(r.Ratio), plainNumber(r.Noise), r.target(), fmt.Sprint(r.N), r.Verdict(),
	}
	for _, p := range peers {
		cells = append(cells, r.peerText(p))
	}
	return cells
}

// peerText is a peer's cell; empty if the row does not measure peers.
func (r *Row) peerText(name string) string {
	v, ok := r.Peers[name]
	switch {
	case !ok:
		return ""
	case v.Broken != "":
		return "broken: " + v.Broken
	case v.Failed > 0:
		return withUnit(&v.Value, r.Unit) + fmt.Sprintf(" (%d failed runs were repeated)", v.Failed)
	case v.Ratio == nil:
		return withUnit(&v.Value, r.Unit)
	}
	return withUnit(&v.Value, r.Unit) + ", " + plainNumber(v.Ratio)
}

// target is the target as text: "at most 2 times".
func (r *Row) target() string {
	if r.Target == nil {
		return ""
	}
	text := r.TargetIs + " " + plainNumber(r.Target)
	if r.TargetOf == "ratio" {
		return text + " times"
	}
	return text + " " + r.Unit
}

// Verdict returns the result of the row in a word or a sentence.
func (r *Row) Verdict() string {
	switch {
	case r.Broken != "":
		return "BROKEN: " + strings.Join(strings.Fields(r.Broken), " ")
	case r.NotRun != "":
		return "not run: " + r.NotRun
	case r.FallsShort():
		return "falls short"
	case r.Target != nil:
		return "met"
	}
	return ""
}

// Brief returns the row's figures in one line, for the progress of a run.
func (r *Row) Brief() string {
	if !r.Measured() {
		return r.Verdict()
	}
	text := withUnit(r.Value, r.Unit)
	if r.Bare != nil {
		what := r.Against
		if what == "" {
			what = "bare"
		}
		text += ", " + what + " " + withUnit(r.Bare, r.Unit)
	}
	if r.Ratio != nil {
		text += ", ratio " + plainNumber(r.Ratio)
	}
	if v := r.Verdict(); v != "" {
		text += " (" + r.target() + ": " + v + ")"
	}
	if r.Note != "" {
		text += "; " + r.Note
	}
	return text
}

// withUnit returns "" for a figure that is missing.
func withUnit(v *float64, unit string) string {
	if v == nil {
		return ""
	}
	return plainNumber(v) + " " + unit
}

// plainNumber formats a number with three significant digits; numbers from 1,000 on have no
// decimals.
func plainNumber(v *float64) string {
	switch {
	case v == nil:
		return ""
	case *v >= 1000 || *v <= -1000:
		return grouped(int(*v + 0.5))
	}
	return strconv.FormatFloat(*v, 'g', 3, 64)
}

// trimZeros removes zeros after the decimal point.
func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

const (
	tableBegin = "<!-- skillrun bench -->"
	tableEnd   = "<!-- end -->"
)

// origin returns a line that says where and when figures were measured.
func origin(version string, at time.Time, took string, m Machine) string {
	return fmt.Sprintf("skillrun %s, %s, %s: %d cores of %s, %.0f GiB, Linux %s. Load average of the machine (1 min) %.1f before and %.1f after.\n",
		version, at.Format("2 January 2006 15:04 MST"), took, m.Cores, m.Processor, m.MemoryGiB, m.Kernel, m.LoadBefore, m.LoadAfter)
}

// Markdown writes the report as a table, and the machine on which it was measured.
func (r *Report) Markdown(w io.Writer) error {
	peers := r.PeerNames()
	var b strings.Builder
	b.WriteString(origin(r.Version, r.Time, r.Took, r.Machine))
	if r.Short {
		b.WriteString("\nThis is a short run, at a small scale: its figures tell little.\n")
	}
	columns := Columns(peers)
	b.WriteString("\n| " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat("---|", len(columns)) + "\n")
	for i := range r.Rows {
		b.WriteString("| " + strings.Join(escaped(r.Rows[i].Cells(peers)), " | ") + " |\n")
	}
	if len(r.FallsShort) == 0 {
		b.WriteString("\nNo row misses its target.\n")
	} else {
		b.WriteString("\nRows that miss their target: `" + strings.Join(r.FallsShort, "`, `") + "`.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// escaped returns cells for Markdown: a | in a cell would begin the next column.
func escaped(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = strings.ReplaceAll(c, "|", "\\|")
	}
	return out
}

// IntoDocument returns a document with the text between its marks replaced by the report's
// table.
func (r *Report) IntoDocument(document string) (string, error) {
	var table strings.Builder
	if err := r.Markdown(&table); err != nil {
		return "", err
	}
	return between(document, tableBegin, tableEnd, table.String())
}
