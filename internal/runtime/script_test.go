package runtime

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/skill/skilltest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

func TestForScript(t *testing.T) {
	s := fakeSet(t, allLanguages())
	sk := skilltest.Load(t, map[string]string{
		"scripts/a.py": "x", "scripts/B.PY": "x", "scripts/c.sh": "x", "scripts/c.bash": "x", "scripts/d.js": "x", "scripts/d.mjs": "x", "scripts/d.cjs": "x", "scripts/e.rb": "x", "scripts/f.pl": "x", "g.Js": "x",
		"scripts/two words.py": "x", "scripts/-x.py": "x", "scripts/a.b.py": "x", "scripts/link.py": "-> a.py", "scripts/link": "-> a.py",
		"scripts/mixed.py": "#!/usr/bin/env node\n", // the extension wins
		"bin/env":          "#!/usr/bin/env python3\n", "bin/env2": "#!/bin/env bash", "bin/abs": "#!/bin/sh\n", "bin/local": "#! /usr/local/bin/python -u\nx",
		"bin/opt": "#!/usr/bin/perl -w -T\n", "bin/envopt": "#!/usr/bin/env -S bash -eu -o pipefail\n", "bin/crlf": "#!/usr/bin/env python3\r\nx\r\n", "bin/nodejs": "#!/usr/bin/nodejs\n",
		"bin/minor": "#!/usr/bin/env python3.11\n", "bin/x.xyz": "#!/usr/bin/env ruby\n", "bin/ws": "#!\t/usr/bin/env\tbash \t\n", "bin/anywhere": "#!/workspace/bash\n",
	})
	for _, c := range []struct {
		path, language string
		want           []string
	}{
		{"scripts/a.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/a.py"}},
		{"./scripts/../scripts/a.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/a.py"}},
		{"scripts/B.PY", "python", []string{"/usr/bin/python3", "/workspace/scripts/B.PY"}},
		{"scripts/c.sh", "bash", []string{"/usr/bin/bash", "/workspace/scripts/c.sh"}},
		{"scripts/c.bash", "bash", []string{"/usr/bin/bash", "/workspace/scripts/c.bash"}},
		{"scripts/d.js", "node", []string{"/usr/bin/node", "/workspace/scripts/d.js"}},
		{"g.Js", "node", []string{"/usr/bin/node", "/workspace/g.Js"}},
		{"scripts/d.mjs", "node", []string{"/usr/bin/node", "/workspace/scripts/d.mjs"}},
		{"scripts/d.cjs", "node", []string{"/usr/bin/node", "/workspace/scripts/d.cjs"}},
		{"scripts/e.rb", "ruby", []string{"/usr/bin/ruby", "/workspace/scripts/e.rb"}},
		{"scripts/f.pl", "perl", []string{"/usr/bin/perl", "/workspace/scripts/f.pl"}},
		{"scripts/two words.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/two words.py"}},
		{"scripts/-x.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/-x.py"}},
		{"scripts/a.b.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/a.b.py"}},
		{"scripts/link.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/a.py"}},
		{"scripts/mixed.py", "python", []string{"/usr/bin/python3", "/workspace/scripts/mixed.py"}},
		{"bin/env", "python", []string{"/usr/bin/python3", "/workspace/bin/env"}},
		{"bin/env2", "bash", []string{"/usr/bin/bash", "/workspace/bin/env2"}},
		{"bin/abs", "sh", []string{"/usr/bin/sh", "/workspace/bin/abs"}},
		{"bin/local", "python", []string{"/usr/bin/python3", "-u", "/workspace/bin/local"}},
		{"bin/opt", "perl", []string{"/usr/bin/perl", "-w", "-T", "/workspace/bin/opt"}},
		{"bin/envopt", "bash", []string{"/usr/bin/bash", "-eu", "-o", "pipefail", "/workspace/bin/envopt"}},
		{"bin/crlf", "python", []string{"/usr/bin/python3", "/workspace/bin/crlf"}},
		{"bin/nodejs", "node", []string{"/usr/bin/node", "/workspace/bin/nodejs"}},
		{"bin/minor", "python", []string{"/usr/bin/python3.11", "/workspace/bin/minor"}},
		{"bin/x.xyz", "ruby", []string{"/usr/bin/ruby", "/workspace/bin/x.xyz"}},
		{"bin/ws", "bash", []string{"/usr/bin/bash", "/workspace/bin/ws"}},
		{"bin/anywhere", "bash", []string{"/usr/bin/bash", "/workspace/bin/anywhere"}},
	} {
		got, err := s.ForScript(sk, c.path)
		if err != nil || !slices.Equal(got.Args, c.want) || got.Language != c.language || got.Env != nil {
			t.Errorf("%s: %+v, %v; want %v", c.path, got, err, c.want)
		}
	}
}

func TestForScriptUnknown(t *testing.T) {
	s := fakeSet(t, allLanguages())
	sk := skilltest.Load(t, map[string]string{
		"a.xyz": "print(1)", "b": "print(1)", "c": "", "d": "#!", "e": "#! \n", "f": "#!/proc/self/exe\n", "g": "#!/usr/bin/env lua\n", "h": "#!/usr/bin/env -i python3\n", "i": "#!/usr/bin/env X=1 python3\n",
		"j": "#!python3\n", "k": "#!./python3\n", "l": "#!/usr/bin/env\n", "m": "#!/usr/bin/env /usr/bin/python3\n", "n": " #!/bin/sh\n", "o": "\ufeff#!/bin/sh\n", "p": "#!/bin/sh-evil\n", "q": "#!/lib64/ld-linux-x86-64.so.2\n",
		"r": "#!" + strings.Repeat("/", 300) + "bin/sh\n", "s": "#!/usr/bin/env bash\x00\n", "t": "#!/usr/bin/pythonista\n", "u.exe": "MZ", "v.": "x", "w.md": "x", "x": "#!/usr/bin/env -S\n",
	})
	for _, c := range []struct{ path, ext, text string }{
		{"a.xyz", ".xyz", "No interpreter mapping for extension: .xyz"}, {"b", "", "No interpreter mapping for extension: "}, {"c", "", ""}, {"d", "", ""}, {"e", "", ""}, {"f", "", "/proc/self/exe"}, {"g", "", "lua"},
		{"h", "", ""}, {"i", "", ""}, {"j", "", ""}, {"k", "", ""}, {"l", "", ""}, {"m", "", ""}, {"n", "", ""}, {"o", "", ""}, {"p", "", ""}, {"q", "", ""}, {"r", "", ""}, {"s", "", ""}, {"t", "", ""},
		{"u.exe", ".exe", "extension: .exe"}, {"v.", ".", ""}, {"w.md", ".md", ""}, {"x", "", ""},
	} {
		_, err := s.ForScript(sk, c.path)
		var unknown *UnknownExtensionError
		if !errors.As(err, &unknown) || unknown.Ext != c.ext || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want unknown extension %q", c.path, err, c.ext)
		}
	}
	if _, err := s.ForScript(sk, "a.xyz"); err.Error() != "No interpreter mapping for extension: .xyz" {
		t.Errorf("text %q", err)
	}
}

func TestForScriptMissing(t *testing.T) {
	s := fakeSet(t, map[string]string{"usr/": ""})
	sk := skilltest.Load(t, map[string]string{
		"scripts/x.ps1": "x", "x.bat": "#!/bin/sh\n", "X.CMD": "x", "x.py": "x", "x.sh": "x", "x.js": "x", "x.rb": "x", "x.pl": "x", "y": "#!/usr/bin/env python2\n", "z": "#!/usr/bin/python3.9\n", "w": "#!/bin/sh\n",
	})
	for path, text := range map[string]string{
		"scripts/x.ps1": "Interpreter 'powershell' not found in PATH for x.ps1", "x.bat": "Interpreter 'cmd' not found in PATH for x.bat", "X.CMD": "Interpreter 'cmd' not found in PATH for X.CMD",
		"x.py": "Interpreter 'python3' not found in PATH for x.py", "x.sh": "Interpreter 'bash' not found in PATH for x.sh", "x.js": "Interpreter 'node' not found in PATH for x.js",
		"x.rb": "Interpreter 'ruby' not found in PATH for x.rb", "x.pl": "Interpreter 'perl' not found in PATH for x.pl", "y": "Interpreter 'python2' not found in PATH for y",
		"z": "Interpreter 'python3.9' not found in PATH for z", "w": "Interpreter 'sh' not found in PATH for w",
	} {
		_, err := s.ForScript(sk, path)
		var missing *MissingError
		if !errors.As(err, &missing) || err.Error() != text {
			t.Errorf("%s: %v, want %q", path, err, text)
		}
	}
}

// node runs TypeScript if it strips types, with the options that its version needs.
func TestForScriptTypeScript(t *testing.T) {
	sk := skilltest.Load(t, map[string]string{"a.ts": "x", "scripts/b.MTS": "x", "c.cts": "x"})
	strip := []string{"--experimental-strip-types", "--disable-warning=ExperimentalWarning"}
	for version, options := range map[string][]string{
		"v22.6.0": strip, "v22.17.1": strip, "v23.0.0": strip, "v23.11.0": strip, "v24.2.0": strip,
		"v22.18.0": nil, "v22.22.1": nil, "v24.3.0": nil, "v25.0.0": nil, "v100.1.0": nil, "unknown": nil,
	} {
		files := allLanguages()
		files["usr/bin/node"] = says(version)
		s := fakeSet(t, files)
		for path, at := range map[string]string{"a.ts": "/workspace/a.ts", "scripts/b.MTS": "/workspace/scripts/b.MTS", "c.cts": "/workspace/c.cts"} {
			inv, err := s.ForScript(sk, path)
			if want := slices.Concat([]string{"/usr/bin/node"}, options, []string{at}); err != nil || !slices.Equal(inv.Args, want) {
				t.Errorf("%s with node %s: %q, %v, want %q", path, version, inv.Args, err, want)
			}
		}
	}
	for _, version := range []string{"20.19.2", "22.5.9", "18.0.0", "21.7.3"} {
		files := allLanguages()
		files["usr/bin/node"] = says("v" + version)
		_, err := fakeSet(t, files).ForScript(sk, "a.ts")
		var missing *MissingError
		want := "Interpreter 'node' not found in PATH for a.ts (TypeScript needs Node.js 22.18 or newer, which strips the types; this is " + version + ")"
		if !errors.As(err, &missing) || err.Error() != want {
			t.Errorf("node %s: %v, want %q", version, err, want)
		}
	}
}

func TestForScriptPaths(t *testing.T) {
	s := fakeSet(t, allLanguages())
	sk := skilltest.Load(t, map[string]string{"scripts/a.py": "x", "out.py": "-> ../x.py", "loop.py": "-> loop.py"})
	for _, path := range []string{"", ".", "scripts", "scripts/none.py", "../a.py", "/etc/passwd", "out.py", "loop.py", "scripts/a.py/x"} {
		_, err := s.ForScript(sk, path)
		var refused *snapshot.PathError
		if !errors.As(err, &refused) {
			t.Errorf("%q: %v, want a path error", path, err)
		}
	}
}

func FuzzShebang(f *testing.F) {
	for _, line := range []string{"#!/usr/bin/env python3 -u", "#!/bin/sh", "#!/usr/bin/env -S node --x", "#!", "#!/proc/self/exe"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		program, options, ok := shebang(line)
		if ok && (strings.ContainsAny(program, "/ \t") || slices.Contains(options, "")) {
			t.Errorf("%q: program %q, options %q", line, program, options)
		}
	})
}
