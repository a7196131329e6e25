package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// where prints whether a Python was forked, then where it says that it lives.
const where = "import os, sys; print(os.getppid()); print(sys.prefix, sys.executable, sys.base_prefix)\n"

// A prepared environment and a skill's own venv are virtual environments for scripts, code,
// commands, console scripts and the Pythons of a shell script, whether Python is forked or
// executed.
func TestVenvIsOne(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	version, err := exec.Command("/usr/bin/python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2], end='')").Output()
	if err != nil {
		t.Skipf("no Python on this machine: %v", err)
	}
	files := map[string]string{
		"scripts/where.py": where, "scripts/sh.sh": "python3 -c '" + strings.TrimSpace(where) + "'\npython scripts/where.py\ncommand -v python3\nskgreet-say\n",
	}
	front := "allowed-tools: Bash(python3:*) Bash(python:*) Bash(skgreet-say)"
	writeSkill(t, dir, "prepared", "python_packages: [skgreet]\n"+front, files)
	files["venv/pyvenv.cfg"] = "home = /home/me/bin\nversion = " + string(version) + ".1\n"
	files["venv/lib/python"+string(version)+"/site-packages/mine.py"] = "def say():\n    print('hello from base')\n"
	files["venv/bin/skgreet-say"] = "#!/home/me/demo/venv/bin/python3\nimport mine; mine.say()\n"
	writeSkill(t, dir, "shipped", front, files)
	bin := filepath.Join(dir, "skills/shipped/venv/bin")
	if err := os.Chmod(filepath.Join(bin, "skgreet-say"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/home/me/bin/python3", filepath.Join(bin, "python3")); err != nil {
		t.Fatal(err)
	}
	d := startDaemonIn(t, dir, "python: system\nenvironments: {index: \""+packageIndex(t, func() {})+"\"}\n")
	if stdout, stderr, code := prepareBy(t, d, "prepared"); code != 0 {
		t.Fatalf("prepare: got %d, %q, %q", code, stdout, stderr)
	}
	for name, venv := range map[string]string{"prepared": "/opt/env", "shipped": "/opt/venv"} {
		python3, python := venv+" "+venv+"/bin/python3 /usr\n", venv+" "+venv+"/bin/python /usr\n"
		for what, c := range map[string]struct {
			request *pb.ExecuteRequest
			want    string
		}{
			"script": {script(name, "scripts/where.py"), python3}, "code": {code(name, where), python3},
			"command": {command(name, "python scripts/where.py"), python}, "code of a command": {command(name, `python3 -c "`+strings.TrimSpace(where)+`"`), python3},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				until(t, "it is never forked", func() bool {
					r := d.run(c.request)
					r.wantExit(t, 0)
					parent, got, _ := strings.Cut(r.stdout.String(), "\n")
					if got != c.want {
						t.Errorf("with the parent %s got %q, want %q", parent, got, c.want)
					}
					return parent == "0"
				})
			})
		}
		r := d.run(script(name, "scripts/sh.sh"))
		lines := strings.SplitAfter(r.stdout.String(), "\n")
		if len(lines) != 7 || lines[1]+lines[3]+lines[4]+lines[5] != python3+python+venv+"/bin/python3\nhello from base\n" {
			t.Errorf("%s from bash: got %q, %q", name, lines, r.stderr.String())
		}
		if got := d.run(command(name, "skgreet-say")).stdout.String(); got != "hello from base\n" {
			t.Errorf("%s, a console script: got %q", name, got)
		}
	}
}
