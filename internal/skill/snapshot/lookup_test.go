package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// linked is a skill with every kind of link.
var linked = files{
	"scripts/run.py*":     "print(1)",
	"scripts/deep/x.sh":   "true",
	"data.csv":            "1,2",
	"in":                  "-> scripts/run.py",
	"dirlink":             "-> scripts/deep",
	"scripts/up":          "-> ../data.csv",
	"scripts/deep/around": "-> ../../scripts/./deep/../run.py",
	"through":             "-> dirlink/../run.py", // scripts/run.py for the kernel; run.py as text
	"chain":               "-> in",
	"dangling":            "-> nothing",
	"loop1":               "-> loop2",
	"loop2":               "-> loop1",
	"self":                "-> self/x",
	"out":                 "-> ../../etc/passwd",
	"abs":                 "-> /etc/passwd",
	"outdir":              "-> /etc",
	"via":                 "-> out",
	"sly":                 "-> dirlink/../../../x", // inside the skill only as text
	"back":                "-> ../demo/data.csv",   // leaves and comes back
	"home":                "-> .",
	"filedot":             "-> data.csv/.",
	"venv/bin/python":     "-> python3",
	"venv/bin/python3":    "-> /usr/bin/python3.11",
	"venv/bin/pip":        "-> /usr/bin/pip",
	"venv/lib/x.py":       "x",
	"venv/lib64":          "-> lib",
	"other/bin/python":    "-> /usr/bin/python3.11",
}

func TestLookup(t *testing.T) {
	_, dir := skillDir(t, linked)
	mustDo(t, os.WriteFile(filepath.Join(dir, "suid.sh"), []byte("true"), 0o755))
	mustDo(t, os.Chmod(filepath.Join(dir, "suid.sh"), 0o755|os.ModeSetuid))
	mustDo(t, os.Symlink("suid.sh", filepath.Join(dir, "to-suid")))
	mustDo(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	s := mustScan(t, dir)

	tests := []struct {
		path     string
		resolved string // of the entry, or of the error
		reason   Reason
	}{
		{path: "scripts/run.py", resolved: "scripts/run.py"},
		{path: "./scripts//deep/../run.py", resolved: "scripts/run.py"},
		{path: "nothing/../data.csv", resolved: "data.csv"},
		{path: "scripts/run.py/", resolved: "scripts/run.py"},
		{path: "in", resolved: "scripts/run.py"},
		{path: "chain", resolved: "scripts/run.py"},
		{path: "through", resolved: "scripts/run.py"},
		{path: "scripts/up", resolved: "data.csv"},
		{path: "dirlink/x.sh", resolved: "scripts/deep/x.sh"},
		{path: "dirlink/around", resolved: "scripts/run.py"},
		{path: "home/home/data.csv", resolved: "data.csv"},
		{path: "venv/lib64/x.py", resolved: "venv/lib/x.py"},

		{path: "", reason: ReasonOutside},
		{path: ".", reason: ReasonOutside},
		{path: "scripts/..", reason: ReasonOutside},
		{path: "home", reason: ReasonOutside},
		{path: "..", reason: ReasonEscapes, resolved: ".."},
		{path: "../../etc/passwd", reason: ReasonEscapes, resolved: "../../etc/passwd"},
		{path: "scripts/../../x", reason: ReasonEscapes, resolved: "../x"},
		{path: "../demo/data.csv", reason: ReasonEscapes, resolved: "../demo/data.csv"},
		{path: "/etc/passwd", reason: ReasonEscapes, resolved: "/etc/passwd"},
		{path: "/", reason: ReasonEscapes, resolved: "/"},
		{path: "out", reason: ReasonEscapes, resolved: "../../etc/passwd"},
		{path: "abs", reason: ReasonEscapes, resolved: "/etc/passwd"},
		{path: "outdir/passwd", reason: ReasonEscapes, resolved: "/etc/passwd"},
		{path: "via", reason: ReasonEscapes, resolved: "../../etc/passwd"},
		{path: "sly", reason: ReasonEscapes, resolved: "../x"},
		{path: "back", reason: ReasonEscapes, resolved: "../demo/data.csv"},
		{path: "venv/bin/python", reason: ReasonEscapes, resolved: "/usr/bin/python3.11"},
		{path: "venv/bin/pip", reason: ReasonEscapes, resolved: "/usr/bin/pip"},
		{path: "scripts", reason: ReasonDirectory, resolved: "scripts"},
		{path: "dirlink", reason: ReasonDirectory, resolved: "scripts/deep"},
		{path: "nothing", reason: ReasonNotFound, resolved: "nothing"},
		{path: "scripts/nothing.py", reason: ReasonNotFound, resolved: "scripts/nothing.py"},
		{path: "data.csv/x", reason: ReasonNotFound, resolved: "data.csv/x"},
		{path: "scripts/sub/nope.py", reason: ReasonNotFound, resolved: "scripts/sub/nope.py"},
		{path: "dangling", reason: ReasonNotFound, resolved: "nothing"},
		{path: "filedot", reason: ReasonNotFound, resolved: "data.csv"},
		{path: `scripts\run.py`, reason: ReasonNotFound, resolved: `scripts\run.py`},
		{path: "ｓcripts/run.py", reason: ReasonNotFound, resolved: "ｓcripts/run.py"},
		{path: "loop1", reason: ReasonLoop, resolved: "loop1"},
		{path: "self", reason: ReasonLoop, resolved: "self"},
		{path: "suid.sh", reason: ReasonRefused, resolved: "suid.sh"},
		{path: "to-suid", reason: ReasonRefused, resolved: "suid.sh"},
		{path: "fifo", reason: ReasonRefused, resolved: "fifo"},
		{path: "scripts/run.py\x00", reason: ReasonBadPath},
		{path: "a\nb", reason: ReasonBadPath},
		{path: "a\xff", reason: ReasonBadPath},
		{path: strings.Repeat("a/", 5000), reason: ReasonBadPath},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			e, err := s.Lookup(tt.path)
			if tt.reason == 0 {
				if err != nil || e.Path != tt.resolved || e.Kind != KindFile || e.SHA256 == "" {
					t.Fatalf("got %+v, %v, want %s", e, err, tt.resolved)
				}
				return
			}
			var pe *PathError
			if !errors.As(err, &pe) {
				t.Fatalf("got %+v, %v, want a *PathError", e, err)
			}
			if pe.Reason != tt.reason || pe.Resolved != tt.resolved || pe.Path != tt.path {
				t.Errorf("got %+v, want reason %d, resolved %q", pe, tt.reason, tt.resolved)
			}
			if tt.reason == ReasonRefused && pe.Refused == nil {
				t.Error("the refused entry is not named")
			}
		})
	}
}

func TestPathErrorText(t *testing.T) {
	set := refusedSetID("a.sh", 0o104755)
	tests := []struct {
		err  PathError
		want string
	}{
		{PathError{Path: ".", Reason: ReasonOutside}, "path '.' is not a file of the skill"},
		{PathError{Path: "../x", Reason: ReasonEscapes, Resolved: "../x"}, "../x: escapes the skill: it leads to ../x"},
		{PathError{Path: "x", Reason: ReasonNotFound}, "x: not found in the skill"},
		{PathError{Path: "x", Reason: ReasonDirectory}, "x: is a directory"},
		{PathError{Path: "x", Reason: ReasonLoop}, "x: too many links"},
		{PathError{Path: "x\n", Reason: ReasonBadPath}, `path 'x\u000a' is not a valid path`},
		{PathError{Path: "b", Reason: ReasonRefused, Refused: &set}, "b: refused, since a.sh has the setuid or setgid bit: mode 0o104755"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestHas(t *testing.T) {
	_, dir := skillDir(t, linked)
	mustDo(t, os.WriteFile(filepath.Join(dir, "bad\xff"), nil, 0o644))
	s := mustScan(t, dir)
	tests := map[string]bool{
		"SKILL.md": true, "scripts": true, "scripts/run.py": true, "./scripts/../data.csv": true,
		".": true, "out": true, "out/x": true, "abs": true, "dirlink": true, "dirlink/new": true,
		"data.csv/x": true, "data.csv/x/y": true, "scripts/run.py/x": true, "bad\xff": true,
		"venv/bin/python": true, "loop1": true,
		"new.csv": false, "scripts/new.csv": false, "new/data.csv": false, "Data.csv": false,
		"venv/new": false, "../data.csv": false,
	}
	for p, want := range tests {
		if got := s.Has(p); got != want {
			t.Errorf("Has(%q) = %t, want %t", p, got, want)
		}
	}
	// has must not confuse an index of refused with the same index of entries.
	_, dir = skillDir(t, files{"0/": "", "out": "-> /etc"})
	s = mustScan(t, dir)
	if !s.Has("out/x") || s.Has("0/x") {
		t.Errorf("Has(out/x) = %t, Has(0/x) = %t, want true and false", s.Has("out/x"), s.Has("0/x"))
	}
	if new(Tree).Has("x") {
		t.Error("an empty skill has x")
	}
}

func TestEntriesAndRefused(t *testing.T) {
	_, dir := skillDir(t, files{"b.txt": "", "a/c": "", "a.txt": "", "l": "-> a/c", "out": "-> /x", "venv/bin/python": "-> /usr/bin/python3"})
	s := mustScan(t, dir)
	var got []string
	for _, e := range s.Entries {
		got = append(got, e.Path)
	}
	want := []string{"SKILL.md", "a", "a.txt", "a/c", "b.txt", "l", "venv", "venv/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
	if len(s.Refused) != 2 || s.Refused[0].Path != "out" || s.Refused[1].Path != "venv/bin/python" ||
		s.Refused[1].Why != VenvInterpreter || s.Refused[1].Target != "/usr/bin/python3" {
		t.Errorf("refused %+v", s.Refused)
	}
}
