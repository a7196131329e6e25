package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skillrun/skillrun/internal/runtime"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const embeddedPython = "/opt/python/bin/python3"

// withoutPython returns a wrapper for launch that hides python and pip in all directories of
// programs. It mounts overlays whose top layer has a whiteout for each name. The daemon and
// every sandbox see the result.
func withoutPython(t testing.TB) []string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "skillrund-test-hide-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	line := "set -e; "
	for i, bin := range []string{"/usr/bin", "/usr/local/bin", "/usr/sbin"} {
		var found []string
		for _, pattern := range []string{"python*", "pip*", "pydoc*"} {
			names, err := filepath.Glob(filepath.Join(bin, pattern))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, names...)
		}
		if len(found) == 0 {
			continue
		}
		layer := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(layer, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if err := syscall.Mknod(filepath.Join(layer, filepath.Base(name)), syscall.S_IFCHR, 0); err != nil {
				t.Fatal(err)
			}
		}
		line += fmt.Sprintf("mount -t overlay overlay -o lowerdir=%s:%s %s; ", layer, bin, bin)
	}
	return []string{"/bin/sh", "-c", line + `exec "$0" "$@"`}
}

// On a machine without Python the daemon starts, and every source runs on the embedded
// Python.
func TestNoPython(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "demo", "allowed-tools: Bash(python:*), Bash(python3:*)", map[string]string{
		"scripts/who.py":    "import sys; print(sys.executable, sys.prefix, *sys.argv[1:])",
		"scripts/absolute":  "#!/usr/bin/python3\nimport sys; print(sys.executable)",
		"scripts/system.sh": "test ! -e /usr/bin/python3 && python3 -c 'print(42)'",
	})
	writeSkill(t, dir, "strict", "python: system", map[string]string{"x.py": "print(1)"})
	hide := withoutPython(t)
	d := launch(t, dir, "", hide...)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()

	c, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var pythons []string
	for _, r := range c.Runtimes {
		if r.Language == "python" {
			pythons = append(pythons, r.Path)
		}
	}
	if got := strings.Join(pythons, " "); got != embeddedPython {
		t.Errorf("runtimes of python: %s", got)
	}
	for name, tt := range map[string]struct {
		req  *pb.ExecuteRequest
		want string
	}{
		"script":                 {script("calculator", "scripts/calc.py", "2 + 2 * 20"), "42\n"},
		"code":                   {code("calculator", "print(6 * 7)"), "42\n"},
		"command":                {command("demo", "python scripts/who.py a"), "/opt/python/bin/python /opt/python a\n"},
		"command with python3":   {command("demo", "python3 scripts/who.py a"), embeddedPython + " /opt/python a\n"},
		"command of calculator":  {command("calculator", "python {baseDir}/scripts/calc.py '6 * 7'"), "42\n"},
		"absolute shebang":       {script("demo", "scripts/absolute"), embeddedPython + "\n"},
		"a shell that starts it": {script("demo", "scripts/system.sh"), "42\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.run(tt.req)
			r.wantExit(t, 0)
			r.wantStdout(t, tt.want)
		})
	}
	t.Run("RunPython", func(t *testing.T) {
		r, err := pb.NewToolServiceClient(d.conn).RunPython(t.Context(), &pb.RunPythonRequest{Code: "import sys; print(sys.prefix)"})
		if want := "Stdout:\n/opt/python\n\nStderr:\n"; err != nil || r.GetText() != want {
			t.Errorf("got %v, %v, want %q", r, err, want)
		}
	})
	_, err = d.try(script("strict", "x.py"))
	wantStatus(t, err, "FailedPrecondition", "INTERPRETER_MISSING")
	d.stop()

	t.Run("configured system", func(t *testing.T) {
		d := launch(t, dir, "python: system\n", hide...)
		d.dial("unix://" + dir + "/s.sock")
		d.waitServing()
		_, err := d.try(code("calculator", "print(1)"))
		wantStatus(t, err, "FailedPrecondition", "INTERPRETER_MISSING")
		d.run(shell("calculator", "true")).wantExit(t, 0)
	})
}

// make demo needs no Python on the machine.
func TestDemoWithoutPython(t *testing.T) {
	t.Parallel()
	newDir(t) // skips the test without root, which the demo needs
	hide := withoutPython(t)
	cmd := exec.Command(hide[0], append(hide[1:], "/bin/bash", "../../deploy/demo.sh")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Env = append(os.Environ(), "SKILLRUN_BIN="+filepath.Dir(binary(t, "skillrund")))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(string(out), 4000))
	}
	for _, want := range []string{"\n42\n", "live output 5 of 5", "Ada,36\nGrace,45", "Read-only file system"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not print %q:\n%s", want, tail(string(out), 4000))
		}
	}
}

// In a sandbox every name of Python means the chosen one, in every kind of child process.
func TestChosenPython(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	const who = "import sys; print(sys.executable, sys.prefix)"
	files := map[string]string{
		"scripts/who.py": who,
		"scripts/all.py": `import os, subprocess, sys
for name in ("python", "python3", sys.executable):
    print(subprocess.run([name, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True).stdout.strip())
`,
		"scripts/all.sh": "python -c 'import sys; print(sys.prefix)'; python3 -c 'import sys; print(sys.prefix)'; /usr/bin/env python3 -c 'import sys; print(sys.prefix)'\n" +
			"printf '#!/usr/bin/env python3\\nimport sys; print(sys.prefix)\\n' >x && chmod +x x && ./x",
	}
	writeSkill(t, dir, "embedded", "python: embedded\nallowed-tools: Bash(python:*), Bash(python3:*), Bash(bash scripts/all.sh)", files)
	writeSkill(t, dir, "system", "python: system\nallowed-tools: Bash(python:*), Bash(python3:*), Bash(bash scripts/all.sh)", files)
	writeSkill(t, dir, "silent", "allowed-tools: Bash(python:*)", files)
	writeSkill(t, dir, "venv", "allowed-tools: Bash(python:*)", map[string]string{
		"venv/pyvenv.cfg": "version = 3.14.0\n", "venv/bin/python": "", "venv/lib/python3.14/site-packages/mine.py": "WHO = 'venv'", "x.py": "import mine, sys; print(mine.WHO, sys.prefix, sys.base_prefix)",
	})
	writeSkill(t, dir, "wrong", "python: embedded", map[string]string{"venv/pyvenv.cfg": "version = 3.11.2\n", "venv/bin/python": "", "x.py": ""})
	d := startDaemonIn(t, dir, "")
	const inside, outside = "/opt/python\n", "/usr\n"
	for name, tt := range map[string]struct {
		req  *pb.ExecuteRequest
		want string
	}{
		"embedded script":         {script("embedded", "scripts/who.py"), embeddedPython + " " + inside},
		"embedded code":           {code("embedded", who), embeddedPython + " " + inside},
		"embedded children":       {script("embedded", "scripts/all.py"), strings.Repeat(inside, 3)},
		"system children":         {script("system", "scripts/all.py"), strings.Repeat(outside, 3)},
		"embedded shell":          {script("embedded", "scripts/all.sh"), strings.Repeat(inside, 4)},
		"embedded shell code":     {shell("embedded", "python3 -c 'import sys; print(sys.prefix)'"), inside},
		"embedded command":        {command("embedded", "python scripts/who.py"), "/opt/python/bin/python " + inside},
		"embedded shell command":  {command("embedded", "bash scripts/all.sh"), strings.Repeat(inside, 4)},
		"system script":           {script("system", "scripts/who.py"), "/usr/bin/python3 " + outside},
		"system shell":            {script("system", "scripts/all.sh"), strings.Repeat(outside, 4)},
		"system command":          {command("system", "python scripts/who.py"), "/opt/skillrun/bin/python " + outside},
		"auto":                    {code("silent", who), "/usr/bin/python3 " + outside},
		"venv of the embedded":    {script("venv", "x.py"), "venv /opt/venv " + inside},
		"venv of it by a command": {command("venv", "python x.py"), "venv /opt/venv " + inside},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.run(tt.req)
			r.wantExit(t, 0)
			r.wantStdout(t, tt.want)
		})
	}
	t.Run("venv of another version", func(t *testing.T) {
		_, err := d.try(script("wrong", "x.py"))
		if err == nil || !strings.Contains(err.Error(), "made with Python 3.11, and the requested embedded Python has version 3.14") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("not there if it is not chosen", func(t *testing.T) {
		r := d.run(shell("silent", "ls /opt; echo $PATH"))
		r.wantStdout(t, "skillrun\n/usr/local/bin:/usr/bin:/bin:/opt/skillrun/bin\n")
	})
	t.Run("no pip of another Python beside it", func(t *testing.T) {
		r := d.run(shell("embedded", "ls /opt/python/bin; python3 -m pip --version"))
		r.wantExit(t, 1)
		r.wantStdout(t, "python\npython3\npython3.14\n")
		if !strings.Contains(r.stderr.String(), "No module named pip") {
			t.Errorf("stderr %q", r.stderr.String())
		}
	})
	t.Run("both are listed", func(t *testing.T) {
		c, err := d.system.GetCapabilities(t.Context(), &pb.GetCapabilitiesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, r := range c.Runtimes {
			found[r.Path] = r.Version
		}
		if found["/usr/bin/python3"] == "" || !strings.HasPrefix(found[embeddedPython], "3.14.") {
			t.Errorf("runtimes %v", c.Runtimes)
		}
	})
}

// The embedded Python has the modules that scripts import. No script can change it.
func TestEmbeddedPythonWorks(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSkill(t, dir, "demo", "", map[string]string{"scripts/pool.py": `import multiprocessing as mp
def square(n): return n * n
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with mp.get_context(method).Pool(2) as pool: print(method, pool.map(square, [1, 2, 3]))
`, "scripts/import_me.py": "import helper; print(helper.X)", "scripts/helper.py": "X = 1"})
	d := startDaemonIn(t, dir, "python: embedded\n")
	for name, tt := range map[string]struct {
		req  *pb.ExecuteRequest
		want string
	}{
		"ssl":            {code("demo", "import ssl; c = ssl.create_default_context(); print(ssl.OPENSSL_VERSION[:7], len(c.get_ciphers()) > 5)"), "OpenSSL True\n"},
		"sqlite3":        {code("demo", "import sqlite3; c = sqlite3.connect('x.db'); c.execute('create table t(x)'); c.execute('insert into t values (42)'); c.commit(); print(*c.execute('select x from t').fetchone())"), "42\n"},
		"ctypes":         {code("demo", "import ctypes; print(ctypes.CDLL(None).abs(-42)); cb = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1); print(cb(41))"), "42\n42\n"},
		"zoneinfo":       {code("demo", "import zoneinfo, datetime; print(datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin')).utcoffset())"), "2:00:00\n"},
		"encodings":      {code("demo", "import sys, locale; print('ü€'.encode('cp1252'), 'あ'.encode('shift_jis'), sys.getfilesystemencoding(), sys.stdout.encoding, 'ü')"), "b'\\xfc\\x80' b'\\x82\\xa0' utf-8 utf-8 ü\n"},
		"the rest":       {code("demo", "import asyncio, bz2, csv, curses, dbm, decimal, email, hashlib, http.client, json, lzma, readline, socket, tomllib, unittest, urllib.request, uuid, venv, xml.dom.minidom, xmlrpc.client, zipfile, zlib; print(hashlib.sha3_256(b'').hexdigest()[:4], asyncio.run(asyncio.sleep(0, 42)))"), "a7ff 42\n"},
		"pwd":            {code("demo", "import getpass, os, pwd; print(getpass.getuser(), os.path.expanduser('~'), pwd.getpwuid(os.getuid()).pw_name)"), "skill /home/skill skill\n"},
		"pool":           {script("demo", "scripts/pool.py"), "fork [1, 4, 9]\nspawn [1, 4, 9]\nforkserver [1, 4, 9]\n"},
		"imports":        {script("demo", "scripts/import_me.py"), "1\n"},
		"threads":        {code("demo", "import threading; t = [threading.Thread(target=lambda: None) for _ in range(20)]; [x.start() for x in t]; [x.join() for x in t]; print(42)"), "42\n"},
		"own name":       {code("demo", "import sys; print(sys.executable, sys.base_prefix == sys.prefix, sys.flags.dont_write_bytecode, [p for p in sys.path if p])"), embeddedPython + " True 1 ['/opt/python/lib/python314.zip', '/opt/python/lib/python3.14', '/opt/python/lib/python3.14/lib-dynload']\n"},
		"compiled":       {code("demo", "import json; print(json.__cached__, open(json.__cached__, 'rb').read()[4:8])"), "/opt/python/lib/python3.14/json/__pycache__/__init__.cpython-314.pyc b'\\x01\\x00\\x00\\x00'\n"},
		"traceback":      {code("demo", "import traceback, json\ntry: json.loads('x')\nexcept ValueError: print('/opt/python/lib/python3.14/json/decoder.py' in traceback.format_exc())"), "True\n"},
		"no other owner": {shell("demo", "find /opt/python ! -type l \\( -writable -o ! -readable -o -perm /7022 \\) | head; find -L /opt/python -type l; id -u; touch /opt/python/x 2>&1 | grep -c 'Read-only'"), "1000\n1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := d.run(tt.req)
			r.wantExit(t, 0)
			r.wantStdout(t, tt.want)
			for _, a := range r.outcome.Artifacts {
				if strings.Contains(a.Path, "pycache") {
					t.Errorf("left %s behind", a.Path)
				}
			}
		})
	}
	d.wantNothingLeft()
}

// binariesWithQuickPython returns a directory with the daemon and a skillrun-python that copies
// the unpacked Python. That takes less than a second. The real skillrun-python takes many, and
// TestDemoWithoutPython runs it.
func binariesWithQuickPython(t *testing.T) string {
	t.Helper()
	dir, err := pythonDir()
	if err != nil {
		t.Fatal(err)
	}
	bundle := binary(t, "skillrun-python")
	unpacked, err := runtime.Install(t.Context(), runtime.InstallConfig{Dir: dir, Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unpacked.Close() })
	bin := filepath.Join(newDir(t), "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	copyPrograms(t, map[string]string{filepath.Join(bin, "skillrund"): binary(t, "skillrund")})
	writeProgram(t, filepath.Join(bin, "skillrun-python"), fmt.Sprintf("#!/bin/sh -eu\n[ $# -gt 0 ] || exec %s\nexec /usr/bin/cp -a %s/. \"$2\"\n", bundle, unpacked.Dir))
	return bin
}

// The embedded Python is unpacked once, and again if its files changed. Without a bundle the
// daemon starts and logs a warning, but with python: embedded it does not start.
func TestEmbeddedPythonIsUnpackedOnce(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	state := filepath.Join(dir, "state/python") // instead of the directory that tests share
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	bin := binariesWithQuickPython(t)
	own := []string{"/bin/sh", "-c", `exec ` + bin + `/skillrund "$@"`}
	start := func(extra string) *running {
		t.Helper()
		d := launch(t, dir, extra, own...)
		d.dial("unix://" + dir + "/s.sock")
		d.waitServing()
		return d
	}
	unpacked := func(d *running) int { return strings.Count(d.log.String(), "embedded Python unpacked") }

	d := start("python: embedded\n")
	d.run(code("calculator", "print(1)")).wantStdout(t, "1\n")
	d.kill()
	d = start("python: embedded\n")
	if got := unpacked(d); got != 1 {
		t.Errorf("two starts: unpacked %d times", got)
	}
	d.stop()

	found, err := filepath.Glob(filepath.Join(state, "cpython-*/root/lib/python3.*/json/__init__.py"))
	if err != nil || len(found) != 1 {
		t.Fatalf("json: %v, %v", found, err)
	}
	if err := os.WriteFile(found[0], []byte("raise SystemExit('changed')\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(filepath.Dir(found[0]), "__pycache__")); err != nil {
		t.Fatal(err)
	}
	d = start("python: embedded\n")
	if got := unpacked(d); got != 2 || !strings.Contains(d.log.String(), "damaged") {
		t.Errorf("after damage: unpacked %d times", got)
	}
	d.run(code("calculator", "import json; print(json.dumps(1))")).wantStdout(t, "1\n")
	d.stop()

	if err := os.Remove(filepath.Join(bin, "skillrun-python")); err != nil {
		t.Fatal(err)
	}
	d = launch(t, dir, "", own...)
	d.dial("unix://" + dir + "/s.sock")
	d.waitServing()
	if !strings.Contains(d.log.String(), "no embedded Python") {
		t.Errorf("a missing bundle is not said: %s", d.log)
	}
	d.stop()
	d = launch(t, dir, "python: embedded\n", own...)
	if err := d.wait(); err == nil || !strings.Contains(d.log.String(), "skillrun-python: no such file or directory") {
		t.Errorf("embedded without its bundle: %v\n%s", err, tail(d.log.String(), 1000))
	}
}
