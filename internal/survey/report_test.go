package survey

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestReadLog(t *testing.T) {
	log := `{"time":"t","level":"INFO","msg":"skills loaded","added":["a"]}
{"level":"WARN","msg":"skill not loaded","folder":"/r/b","kept":"","err":"skill \"a\" is already loaded from /r/a; /r/b is ignored"}
{"level":"WARN","msg":"skill not loaded","folder":"/r/c","kept":"","err":"is a link, and links are not followed; configure its target instead"}
{"level":"WARN","msg":"skill not loaded","folder":"/r/d","kept":"","err":"SKILL.md:1: SKILL.md must start with YAML frontmatter (---)"}
`
	var got []string
	if err := ReadLog(strings.NewReader(log), func(l Line) { got = append(got, l.Kind+" "+l.Skill+" "+string(l.Class)) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"skill /r/b another skill has the name", "skill /r/c a link in place of a folder", "skill /r/d its manifest is invalid"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, bad := range []string{"time=t level=INFO msg=serving\n", strings.Repeat("x", maxLogLine+1)} {
		if err := ReadLog(strings.NewReader(bad), func(Line) {}); err == nil {
			t.Errorf("%.20q is read", bad)
		}
	}
}

func TestReport(t *testing.T) {
	var r Report
	for _, l := range []Line{
		{Kind: KindSkill, Class: Loaded}, {Kind: KindCommand, Class: NoRule}, {Kind: KindCommand, Class: NoRule}, {Kind: KindCommand, Class: Allowed},
		{Kind: KindScript, Class: Ours}, {Kind: KindScript, Class: Confined}, {Kind: KindScript, Class: TimedOut},
	} {
		r.Add(l)
	}
	if got, want := Sorted(r.Commands), []Count{{Allowed, 1}, {NoRule, 2}}; !slices.Equal(got, want) || Sum(r.Commands) != 3 {
		t.Errorf("got %v, want %v", got, want)
	}
	if r.ThroughUs != 2 || r.Skills[Loaded] != 1 || Sum(r.Scripts) != 3 {
		t.Errorf("got %+v", r)
	}
}

func TestTail(t *testing.T) {
	var got tail
	for range 3 {
		if n, err := got.Write(bytes.Repeat([]byte("a"), maxOutput-1)); n != maxOutput-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	got.Write([]byte("b"))
	if len(got) != maxOutput || got[maxOutput-1] != 'b' {
		t.Errorf("%d bytes", len(got))
	}
}
