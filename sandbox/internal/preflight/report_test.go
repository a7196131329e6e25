package preflight

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestBoundaryNames(t *testing.T) {
	seen := map[string]bool{}
	name := func(name, group, why, how string) {
		t.Helper()
		if name == "" || group == "" || why == "" || how == "" || strings.ContainsAny(name, "\t\n,:'\"[]{}#") || seen[name] {
			t.Errorf("%q, %q, %q, %q: something is empty, or the name is taken or can't be configured", name, group, why, how)
		}
		seen[name] = true
	}
	for _, f := range features {
		name(f.name, "machine", f.why, f.how)
	}
	for _, c := range allChecks() {
		name(c.name, c.group, c.why, c.how)
	}
	for _, n := range Lowerable() {
		if !seen[n] || n == checkReport.name {
			t.Errorf("%q can be lowered", n)
		}
	}
}

func TestParseReport(t *testing.T) {
	want := []check{{"a", "g", "why a", "how a"}, {"b c", "g", "why b", "how b"}}
	for _, tt := range []struct {
		name, text string
		found      []bool
		detail     string // of the last that is not found
		complaint  string
	}{
		{"whole", "a\tfound\tx\nb c\tfound\ty\n", []bool{true, true}, "", ""},
		{"in another order", "b c\tfound\ty\na\tfound\tx\n", []bool{true, true}, "", ""},
		{"one missing", "a\tfound\tx\nb c\tmissing\ty\n", []bool{true, false}, "y; needs how b", ""},
		{"one not reported", "a\tfound\tx\n", []bool{true, false}, "did not report this check; needs how b", `no report of "b c"`},
		{"nothing", "", []bool{false, false}, "did not report this check", `no report of "a"`},
		{"one unknown", "a\tfound\tx\nb c\tfound\ty\nd\tfound\tz\n", []bool{true, true}, "", `check "d" is unknown`},
		{"one twice", "a\tfound\tx\nb c\tfound\ty\nb c\tfound\ty\n", []bool{true, false}, "reported this check more than once", "reported 2 times"},
		{"missing, then found", "a\tfound\tx\nb c\tmissing\ty\nb c\tfound\ty\n", []bool{true, false}, "reported this check more than once", "reported 2 times"},
		{"cut", "a\tfound\tx\nb c\tfound\ty", []bool{true, false}, "did not report this check", "not part of a report"},
		{"another word", "a\tfound\tx\nb c\tFOUND\ty\n", []bool{true, false}, "did not report this check", "not part of a report"},
		{"too many fields", "a\tfound\tx\nb c\tfound\ty\tz\n", []bool{true, false}, "did not report this check", "not part of a report"},
		{"an empty line", "a\tfound\tx\n\nb c\tfound\ty\n", []bool{true, true}, "", "not part of a report"},
		{"not text", "a\tfound\t\xff\nb c\tfound\ty\n", []bool{true, true}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, complaint := parseReport([]byte(tt.text), want)
			if len(all) != len(want) {
				t.Fatalf("got %v", all)
			}
			detail := ""
			for i, b := range all {
				if b.Name != want[i].name || b.Group != "g" || b.Why != want[i].why || b.Found != tt.found[i] {
					t.Errorf("got %+v, want %s found: %v", b, want[i].name, tt.found[i])
				}
				if !b.Found {
					detail = b.Detail
				}
			}
			if !strings.Contains(detail, tt.detail) || (detail == "") != (tt.detail == "") {
				t.Errorf("got detail %q, want %q", detail, tt.detail)
			}
			if !strings.Contains(complaint, tt.complaint) || (complaint == "") != (tt.complaint == "") {
				t.Errorf("got complaint %q, want %q", complaint, tt.complaint)
			}
		})
	}
}

func TestReportIsBounded(t *testing.T) {
	var r Report
	half := bytes.Repeat([]byte("x"), maxReport/2+1)
	if _, err := r.Write(half); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Write(half); err == nil {
		t.Error("more than the bound was taken")
	}
	if !bytes.Equal(r.text(), half) {
		t.Errorf("%d bytes are kept, want the first %d", len(r.text()), len(half))
	}
}

// A whole report and a truthful end make every boundary found. Each fact that the daemon saw
// and that is wrong makes its boundary missing.
func TestJudge(t *testing.T) {
	whole := End{How: "oom killed", OutOfMemory: true, Killed: 1, RefusedForks: 1, CPU: time.Millisecond}
	last := checks[len(checks)-1].name
	for _, tt := range []struct {
		name   string
		change func(*End)
		want   []string // the missing boundaries
	}{
		{"whole", func(*End) {}, nil},
		{"no refused fork", func(e *End) { e.RefusedForks = 0 }, []string{last}},
		{"another end", func(e *End) { e.OutOfMemory = false }, []string{checkMemory.name}},
		{"nothing killed", func(e *End) { e.Killed = 0 }, []string{checkMemory.name}},
		{"a process is left", func(e *End) { e.Unremoved = "a process" }, []string{checkEnd.name}},
		{"no processor time", func(e *End) { e.CPU = 0 }, []string{checkCPU.name}},
		{"the end was not seen", func(e *End) { e.Err = errors.New("lost") }, []string{checkEnd.name, checkReport.name}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Report
			for _, c := range checks {
				if _, err := r.Write([]byte(c.name + "\tfound\tx\n")); err != nil {
					t.Fatal(err)
				}
			}
			end := whole
			tt.change(&end)
			var missing []string
			for _, b := range r.Judge(end) {
				if !b.Found {
					missing = append(missing, b.Name)
				}
			}
			if strings.Join(missing, ", ") != strings.Join(tt.want, ", ") {
				t.Errorf("missing: got %q, want %q", missing, tt.want)
			}
		})
	}
}

// A boundary must hold in the sandboxes of both makers.
func TestInBoth(t *testing.T) {
	direct := []Boundary{{Name: "a", Found: true, Detail: "x"}, {Name: "b", Detail: "y"}}
	if got := InBoth(direct, nil); !got[0].Found || got[1].Detail != "y" {
		t.Errorf("one maker: got %+v", got)
	}
	got := InBoth(direct, []Boundary{{Name: "a", Detail: "z"}, {Name: "b", Detail: "z"}})
	if got[0].Found || !strings.HasSuffix(got[0].Detail, "the zygote made: z") || got[1].Detail != "y" {
		t.Errorf("two makers: got %+v", got)
	}
}
