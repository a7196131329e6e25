package runtime

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/skilltest"
)

// sets returns machines with and without a system Python and an embedded 3.14.
func sets(t *testing.T) (both, systemOnly, embeddedOnly, none *Set) {
	t.Helper()
	files := allLanguages()
	files["usr/bin/python3.12"] = says("Python 3.12.1")
	systemOnly = fakeSet(t, files)
	none = fakeSet(t, map[string]string{"usr/bin/bash": says("5.2.15")})
	i := &Installation{Dir: "/state/python/x/root", Version: "3.14.6"}
	return systemOnly.WithEmbedded(i), systemOnly, none.WithEmbedded(i), none
}

var embeddedPlace = Invocation{Path: []string{"/opt/python/bin"}, Mounts: []Mount{{"/state/python/x/root", "/opt/python"}}}

func TestChoice(t *testing.T) {
	both, systemOnly, embeddedOnly, none := sets(t)
	const system, embedded, missing = "/usr/bin/python3", "/opt/python/bin/python3", ""
	for _, c := range []struct {
		set                  *Set
		asked, skill, config Python
		want                 string
	}{
		{both, "", "", "", system},
		{both, "", "", Auto, system},
		{both, "", "", System, system},
		{both, "", "", Embedded, embedded},
		{both, "", Embedded, System, embedded},
		{both, "", System, Embedded, system},
		{both, "", Auto, Embedded, system},
		{both, Embedded, System, System, embedded},
		{both, System, Embedded, Embedded, system},
		{both, Auto, Embedded, Embedded, system},
		{systemOnly, "", "", "", system},
		{systemOnly, Embedded, "", "", missing},
		{systemOnly, "", Embedded, "", missing},
		{embeddedOnly, "", "", "", embedded},
		{embeddedOnly, "", "", Embedded, embedded},
		{embeddedOnly, "", "", System, missing},
		{embeddedOnly, "", System, "", missing},
		{embeddedOnly, System, Embedded, "", missing},
		{embeddedOnly, Auto, System, System, embedded},
		{none, "", "", "", missing},
		{none, Embedded, "", "", missing},
	} {
		set := *c.set
		set.standard = c.config
		sk := skilltest.Load(t, map[string]string{"a.py": "x", "b.sh": "x", "c": "#!/usr/bin/env python\n"})
		sk.Manifest.Python = string(c.skill)
		s := set.With(c.asked)
		for what, run := range map[string]func() (Invocation, error){
			"script":  func() (Invocation, error) { return s.ForScript(sk, "a.py") },
			"shebang": func() (Invocation, error) { return s.ForScript(sk, "c") },
			"code":    func() (Invocation, error) { return s.ForCode(sk, "", "1") },
			"command": func() (Invocation, error) { return s.ForCommand(sk, []string{"ls", "python"}) },
			"other":   func() (Invocation, error) { return s.ForScript(sk, "b.sh") },
		} {
			got, err := run()
			if c.want == missing {
				// A program other than Python is refused only if the caller asked for a
				// certain Python.
				var refused *MissingError
				if wanted := what != "other" || c.asked != "" || c.skill != ""; wanted != errors.As(err, &refused) || wanted && refused.Interpreter != "python3" {
					t.Errorf("%+v: %s: %v", c, what, err)
				}
				continue
			}
			if err != nil || got.Python.Path != c.want {
				t.Errorf("%+v: %s: %+v, %v", c, what, got, err)
				continue
			}
			var place Invocation
			if c.want == embedded {
				place = embeddedPlace
			}
			if !slices.Equal(got.Path, place.Path) || !slices.Equal(got.Mounts, place.Mounts) {
				t.Errorf("%+v: %s: PATH %v, mounts %v", c, what, got.Path, got.Mounts)
			}
			if what != "command" && what != "other" && got.Args[0] != c.want {
				t.Errorf("%+v: %s: runs %v", c, what, got.Args)
			}
		}
	}
}

// A script that names a minor version of Python gets that version, and so do its children.
func TestChoiceOfAMinorVersion(t *testing.T) {
	both, _, embeddedOnly, _ := sets(t)
	for _, c := range []struct {
		set     *Set
		asked   Python
		program string
		want    string // empty: want a MissingError
		path    string
	}{
		{both, "", "python3.11", "/usr/bin/python3.11", ""},
		{both, "", "python3.12", "/usr/bin/python3.12", "/opt/skillrun/python3.12"},
		{both, "", "python3.14", "/opt/python/bin/python3", "/opt/python/bin"},
		{both, "", "python3.13", "", ""},
		{both, "", "python2", "", ""},
		{both, System, "python3.14", "", ""},
		{both, Embedded, "python3.11", "", ""},
		{both, Embedded, "python3.14", "/opt/python/bin/python3", "/opt/python/bin"},
		{embeddedOnly, "", "python3.11", "", ""},
	} {
		got, err := c.set.With(c.asked).ForScript(skilltest.Load(t, map[string]string{"x": "#!/usr/bin/env " + c.program + "\n"}), "x")
		var missing *MissingError
		if c.want == "" {
			if !errors.As(err, &missing) || missing.Interpreter != c.program {
				t.Errorf("%s of %q: %+v, %v", c.program, c.asked, got, err)
			}
			continue
		}
		if err != nil || got.Args[0] != c.want || strings.Join(got.Path, ":") != c.path {
			t.Errorf("%s of %q: %+v, %v; want %s", c.program, c.asked, got, err, c.want)
		}
	}
}

func TestChoiceWithVenv(t *testing.T) {
	both, systemOnly, embeddedOnly, none := sets(t)
	for _, c := range []struct {
		set                  *Set
		venv                 string
		asked, skill, config Python
		want, reason         string
	}{
		{both, "3.11.2", "", "", "", "/usr/bin/python3.11", ""},
		{both, "3.12.9", "", "", "", "/usr/bin/python3.12", ""},
		{both, "3.14.0", "", "", "", "/opt/python/bin/python3", ""},
		// The configured default never causes a refusal.
		{both, "3.14.0", "", "", System, "/opt/python/bin/python3", ""},
		{both, "3.11.2", "", "", Embedded, "/usr/bin/python3.11", ""},
		{both, "3.14.0", Embedded, "", "", "/opt/python/bin/python3", ""},
		{both, "3.11.2", System, "", "", "/usr/bin/python3.11", ""},
		// If the caller insists, the venv is ignored. A skill cannot do that.
		{both, "3.11.2", Embedded, "", "", "/opt/python/bin/python3", ""},
		{both, "3.11.2", "", Embedded, "", "", "made with Python 3.11, and the requested embedded Python has version 3.14"},
		{both, "3.14.0", "", System, "", "", "made with Python 3.14, and the requested system Python has version 3.11, 3.12"},
		{both, "3.11.2", Auto, Embedded, "", "/usr/bin/python3.11", ""},
		{systemOnly, "3.14.0", "", "", "", "", "made with Python 3.14, and only 3.11, 3.12 is available"},
		{systemOnly, "3.11.2", Embedded, "", "", "", "the requested embedded Python is not available"},
		{embeddedOnly, "3.14.0", "", "", "", "/opt/python/bin/python3", ""},
		{embeddedOnly, "3.11.2", "", "", "", "", "made with Python 3.11, and only 3.14 is available"},
		{none, "3.11.2", "", "", "", "", "no Python is available"},
	} {
		set := *c.set
		set.standard = c.config
		s := set.With(c.asked)
		sk := skilltest.Load(t, map[string]string{"a.py": "x", "venv/pyvenv.cfg": "version = " + c.venv + "\n", "venv/bin/python": "-> /usr/bin/python3"})
		sk.Manifest.Python = string(c.skill)
		for what, run := range map[string]func() (Invocation, error){
			"script":  func() (Invocation, error) { return s.ForScript(sk, "a.py") },
			"code":    func() (Invocation, error) { return s.ForCode(sk, "python", "1") },
			"command": func() (Invocation, error) { return s.ForCommand(sk, []string{"python3"}) },
		} {
			got, err := run()
			if c.reason != "" {
				var refused *VenvError
				if !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.reason) {
					t.Errorf("%+v: %s: got %v", c, what, err)
				}
				continue
			}
			env := venvEnv(sk)
			if minor(got.Python.Version) != minor(c.venv) {
				env = nil // packages of another version
			}
			if err != nil || got.Python.Path != c.want || !slices.Equal(got.Env, env) {
				t.Errorf("%+v: %s: got %+v, %v", c, what, got, err)
			}
			if mounted := len(got.Mounts) == 1; mounted != (c.want == "/opt/python/bin/python3") {
				t.Errorf("%+v: %s: mounts %v", c, what, got.Mounts)
			}
		}
	}
}

func TestLinks(t *testing.T) {
	both, systemOnly, embeddedOnly, none := sets(t)
	want := map[string]string{
		"/opt/skillrun/bin/python":         "/usr/bin/python3",
		"/opt/skillrun/python3.12/python":  "/usr/bin/python3.12",
		"/opt/skillrun/python3.12/python3": "/usr/bin/python3.12",
	}
	for _, s := range []*Set{both, systemOnly} {
		if got := s.Links(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	for _, s := range []*Set{embeddedOnly, none, {}} {
		if got := s.Links(); len(got) > 0 {
			t.Errorf("got %v without a system Python", got)
		}
	}
}

func TestListNamesBoth(t *testing.T) {
	both, _, _, _ := sets(t)
	var got []string
	for _, r := range both.List() {
		if r.Language == "python" {
			got = append(got, r.Path+" "+r.Version)
		}
	}
	if want := []string{"/usr/bin/python3 3.11.2", "/usr/bin/python3.12 3.12.1", "/opt/python/bin/python3 3.14.6"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if (&Set{}).With(Embedded).asked != Embedded || !Python("").Valid() || Python("Auto").Valid() {
		t.Error("Valid accepts or refuses the wrong words")
	}
	if _, err := (&Set{}).ForCommand(&skill.Skill{Name: "demo"}, []string{"ls"}); err != nil {
		t.Errorf("a command that names no Python: %v", err)
	}
}
