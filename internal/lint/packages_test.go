package lint

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/runtime"
)

// A finding about a missing package names the package and the remedy.
func TestPackageMissingText(t *testing.T) {
	for _, tt := range []struct {
		text   string
		daemon bool
		want   string
	}{
		{"polars==1.0", false, "the Python package polars is not on this machine: run `skillrun prepare demo` once the daemon has the skill"},
		{"polars==1.0", true, "the Python package polars is not on this machine: run `skillrun prepare demo`"},
		{"pandas>=2,<3", true, "the Python package pandas is on this machine as 1.5.3, not >=2,<3: run `skillrun prepare demo`"},
	} {
		m := machine(t)
		m.Daemon = tt.daemon
		list, err := Dir(t.Context(), skillDir(t, files{"requirements.txt": tt.text + "\n"}), m)
		if err != nil || len(list) != 1 || strings.TrimSpace(list[0].Message) != tt.want {
			t.Errorf("%s, daemon %t: got %v, %v, want %q", tt.text, tt.daemon, list, err, tt.want)
		}
	}
}

// Node packages that neither the skill nor a daemon has are named once, with the remedy.
func TestNodePackageMissing(t *testing.T) {
	content := files{"package.json": `{"dependencies": {"left": "1", "right": "1", "own": "1"}}`, "node_modules/own/package.json": "{}"}
	for _, prepared := range []bool{false, true} {
		m := machine(t)
		m.HasNodePackages, m.Daemon = prepared, true
		list, err := Dir(t.Context(), skillDir(t, content), m)
		var got []string
		for _, f := range list {
			got = append(got, f.Rule+" "+f.Message)
		}
		want := 2
		if prepared {
			want = 1
		}
		if err != nil || len(got) != want || !strings.HasPrefix(got[0], "node-lock-missing ") ||
			!prepared && got[1] != "node-package-missing Node packages are not installed for the skill: left, right: run `skillrun prepare demo`" {
			t.Errorf("prepared %t: got %q, %v", prepared, got, err)
		}
	}
}

// Without a list of dpkg that can be read, a name that is no program can't be judged. Nothing is
// said about it, and the other findings stay.
func TestSystemPackagesWithoutDpkg(t *testing.T) {
	for name, replace := range map[string]func(status string) error{
		"no list":          func(string) error { return nil },
		"a directory":      func(status string) error { return os.Mkdir(status, 0o755) },
		"a pipe":           func(status string) error { return unix.Mkfifo(status, 0o644) },
		"a link to itself": func(status string) error { return os.Symlink("status", status) },
		"a very long line": func(status string) error { return os.WriteFile(status, bytes.Repeat([]byte("x"), 2<<20), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t)
			status := filepath.Join(m.Rootfs, runtime.DpkgStatus)
			if err := errors.Join(os.Remove(status), replace(status)); err != nil {
				t.Fatal(err)
			}
			list, err := Dir(t.Context(), skillDir(t, files{"SKILL.md": md("system_packages: [ffmpeg, jq]\npython_packages: [pandas]", "")}), m)
			if want := []string{"warning package-unpinned SKILL.md:5"}; err != nil || !slices.Equal(brief(list), want) {
				t.Errorf("got %v, %v, want %v", brief(list), err, want)
			}
		})
	}
}

var packageRows = []row{
	{"packages that are there", files{"SKILL.md": md("python_packages: [\"pandas>=1.5,<3\", \"PyYAML==6.0\", \"ruamel.yaml~=0.1\"]\nsystem_packages: [git, poppler-utils]", ""), "scripts/a.py": "import pandas as pd, numpy\nimport yaml\nfrom ruamel.yaml import YAML\n"}, nil},
	{"packages missing", files{"SKILL.md": md("python_packages:\n  - polars==1.0\n  - older==1\nsystem_packages:\n  - ffmpeg\n  - gone", "")}, []string{
		"warning package-missing SKILL.md:5", "warning package-missing SKILL.md:6", "warning system-package-missing SKILL.md:8", "warning system-package-missing SKILL.md:9",
	}},
	// As an execution judges them.
	{"system packages by other names", files{"SKILL.md": md("system_packages:\n  - jq>=1.6\n  - mawk\n  - awk\n  - Poppler-utils (for PDF)\n  - '!'", "")}, []string{"warning system-package-missing SKILL.md:9"}},
	{"packages of another Python", files{"SKILL.md": md("python: embedded\npython_packages: [pandas==1.5.3]", "")}, []string{"warning package-missing SKILL.md:5"}},
	{"Node packages", files{"package.json": `{"dependencies": {"left": "1", "own": "1"}, "devDependencies": {"other": "1"}}`, "node_modules/own/package.json": "{}"}, []string{
		"warning node-lock-missing package.json:0", "warning node-package-missing package.json:0",
	}},
	{"Node packages that can't be prepared", files{"package.json": `{"dependencies": {"left": "file:.."}}`}, []string{"warning node-packages package.json:0"}},
	// The Python of a venv that the skill doesn't ship is the Python of its prepared packages.
	{"rules for the Python of a venv", files{"SKILL.md": md("python_packages: [pandas==1.5.3]\nallowed-tools: Bash(.venv/bin/python scripts/*) Bash(venv/bin/tool:*)", ""), "scripts/a.py": "1\n"}, []string{"warning tool-program-missing SKILL.md:5"}},
	{"rules for uv", files{"SKILL.md": md("allowed-tools: Bash(uv run scripts/*)", ""), "scripts/a.py": "1\n"}, nil},
	{"no Node packages", files{"package.json": `{"type": "module"}`}, nil},
	{"packages in other versions", files{"SKILL.md": md("python_packages:\n  - pandas>=2,<3\n  - PyYAML==9\n  - ruamel.yaml~=1.0", "")}, []string{
		"warning package-missing SKILL.md:5", "warning package-missing SKILL.md:6", "warning package-missing SKILL.md:7",
	}},
	{"package of another version in the venv", files{"requirements.txt": "pandas==1.5.3\n", "venv/pyvenv.cfg": "version = 3.11.2\n", "venv/bin/python": "-> /usr/bin/python3.11", "venv/lib/python3.11/site-packages/pandas-1.0.dist-info/METADATA": ""},
		[]string{"warning package-missing requirements.txt:1"}},
	{"package of another system", files{"requirements.txt": "pywin32==300; sys_platform == 'win32'\n"}, nil},
	{"package in the venv", files{"requirements.txt": "polars==1.0\n", "venv/pyvenv.cfg": "version = 3.11.2\n", "venv/lib/python3.11/site-packages/polars-1.0.dist-info/METADATA": ""}, nil},
	{"unpinned", files{"requirements.txt": "pandas\n\npyyaml>=5\npandas!=1.0\n"}, []string{
		"warning package-unpinned requirements.txt:1", "warning package-unpinned requirements.txt:3", "warning package-unpinned requirements.txt:4",
	}},
	{"pinned", files{"requirements.txt": "pandas==1.5.*\npyyaml>=5,<7\npandas~=1.5\npandas===1.5.3\n"}, nil},

	{"undeclared import", files{"scripts/a.py": "import os\n\ndef f():\n    from PIL import Image\nimport cv2, sys, nothing.else_\n"}, []string{
		"warning package-undeclared scripts/a.py:4", "warning package-undeclared scripts/a.py:5", "warning package-undeclared scripts/a.py:5",
	}},
	{"imports that come from somewhere", files{
		"scripts/a.py": "import helper\nfrom core import x\nfrom . import y\nfrom .z import w\nimport __main__\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ntry:\n    import tqdm\nexcept ImportError:\n    import tqdm2\n" +
			"x = '''\nimport docstring\n'''\nimport json; x = 1\nimport importlib \\\n  .metadata\n",
		"scripts/helper.py": "", "lib/core/x.py": "",
	}, nil},
	{"packages whose modules have other names", files{"requirements.txt": "grpcio==1.51.1\nprotobuf==4.21\n", "scripts/a.py": "import grpc\nfrom google.protobuf import message\n"}, []string{
		"warning package-missing requirements.txt:1", "warning package-missing requirements.txt:2", "warning network-undeclared scripts/a.py:1",
	}},
	{"script metadata", files{
		"scripts/a.py": "# /// script\n# dependencies = [\"pandas==1.5.3\"]\n# ///\nimport pandas\n",
		"scripts/b.py": "import pandas\n",
	}, []string{"warning package-undeclared scripts/b.py:1"}},
}
