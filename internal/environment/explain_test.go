package environment

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
)

// A failed build names the files of the source: none, wheels for another Python, or source
// distributions that may not be built.
func TestWhatTheSourceHas(t *testing.T) {
	t.Parallel()
	const wheel = "skwheel-1.0-cp27-cp27m-manylinux1_x86_64.whl"
	sdist, source := pkg{name: "sksource", version: "1.0"}.sdist("")
	x := newIndex(t)
	x.files = map[string][]byte{wheel: []byte("x"), sdist: source}
	wheels := hosttest.Dir(t)
	if err := os.Chmod(wheels, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{wheel: []byte("x"), sdist: source, "sknone-other-1.0.tar.gz": source} {
		if err := os.WriteFile(filepath.Join(wheels, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for from, edit := range map[string]func(*Config){"index": x.from, "wheels": func(c *Config) { c.Wheels = wheels }} {
		s := newStore(t, edit)
		for name, want := range map[string]string{
			"skwheel":  "there are wheels, such as " + wheel + ", but none for system 3.",
			"sksource": "there are only source distributions, such as " + sdist + ", and environments.sdists is false",
			"sknone":   "package sknone: not in ",
		} {
			_, log, err := prepare(t, s, "acme", newSkill(t, "python_packages: ["+name+"]\n", nil), runtime.System)
			if none, ok := errors.AsType[*NoPackageError](err); !ok || none.Name != name || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: got %v, want %s\n%s", from, name, err, want, log)
			}
		}
	}
}

// Of a conflict and of a version that is not there, the error has pip's reason.
func TestReasonsOfPip(t *testing.T) {
	t.Parallel()
	other := pkg{name: "sk-other", version: "1.0", requires: []string{"skbase<1"}, files: map[string]string{"skother.py": ""}}
	old := pkg{name: "skbase", version: "0.5", files: base.files}
	s := newStore(t, newIndex(t, base, old, top, other).from)
	for packages, want := range map[string]string{
		"sk-top, sk-other": "its requirements conflict: ",
		"skbase==7":        "Could not find a version that satisfies the requirement skbase==7 (from versions: 0.5, 1.2.0)",
	} {
		_, log, err := prepare(t, s, "acme", newSkill(t, "python_packages: ["+packages+"]\n", nil), runtime.System)
		if _, ok := errors.AsType[*BuildError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s\n%s", packages, err, want, log)
		}
		if strings.Contains(want, "conflict") && (!strings.Contains(err.Error(), "sk-other 1.0 depends on skbase<1") || !strings.Contains(err.Error(), "skbase>=1") || strings.Contains(err.Error(), "  ")) {
			t.Errorf("%s: got %v, want both requirements", packages, err)
		}
	}
}

// A file belongs to the project whose name stands in front of the version.
func TestFilesOfAProject(t *testing.T) {
	for file, want := range map[string]bool{
		"a.b-1.0-py3-none-any.whl": true, "A_B-1!2.0.tar.gz": true, "a-b-c-1.0.tar.gz": false, "a-1.0.tar.gz": false, "a-b": false, "a_b-.zip": false,
	} {
		if got := isOf(file, "a-b"); got != want {
			t.Errorf("%s: got %t", file, got)
		}
	}
}
