package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildWheel builds the Python client's wheel without a network and returns its path.
func buildWheel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("bash", pythonPackage+"/wheel.sh", dir)
	// Another directory for each build, and the same time.
	build.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "SOURCE_DATE_EPOCH=1700000000")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, strings.TrimSpace(string(out)))
}

// The wheel has the same bytes each time. Installed into a virtual environment, it runs scripts.
func TestPythonWheel(t *testing.T) {
	t.Parallel()
	d := startShared(t)
	wheel := buildWheel(t)
	first, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := os.ReadFile(buildWheel(t)); err != nil || !bytes.Equal(first, second) {
		t.Errorf("a second build has other bytes: %d and %d, %v", len(first), len(second), err)
	}
	venv := t.TempDir()
	python := venv + "/bin/python"
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = venv
		cmd.Env = append(os.Environ(), "SKILLRUN_ADDRESS=unix://"+d.dir+"/s.sock", "PYTHONPATH=", "PIP_CONFIG_FILE=/dev/null", "HOME="+venv)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	// Debian's grpcio and pip are seen, and the wheel goes into the environment.
	run(debianPython, "-m", "venv", "--system-site-packages", "--without-pip", venv)
	run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", wheel)
	got := run(python, "-c", `
import asyncio, importlib.resources, skillrun
from skillrun import aio
print(skillrun.__file__)
print((importlib.resources.files(skillrun) / "py.typed").is_file())
with skillrun.connect() as c:
    print(c.run("calculator", script="scripts/calc.py", args=["6*7"]).result().check().text)
async def main():
    async with aio.connect() as c:
        print((await (await c.run("calculator", script="scripts/calc.py", args=["7*7"])).result()).check().text)
asyncio.run(main())
`)
	for _, want := range []string{venv + "/lib/", "True", "42", "49"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
