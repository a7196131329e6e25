package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	skillrun "github.com/skillrun/skillrun/clients/go"
)

// The skill with a virtual environment: its script imports a package of venvModules modules, of
// venvFunctions functions each. That is 200 modules of 4 kB.
// The size is typical for an environment with one large package, where compiling on every start
// would take most of the time.
const (
	venvSkill     = "bench-venv"
	venvModules   = 200
	venvFunctions = 50
	venvProgram   = "import wide\nprint(wide.total())\n"
	venvOutput    = "200\n"
)

// venv compares the script of a skill that ships a virtual environment with the same script in the
// same virtual environment without a sandbox. Both Pythons find compiled files: the daemon makes
// them when it has imported the skill.
func venv(r *run, rows rowSet) error {
	if err := hasPython(); err != nil {
		return err
	}
	version, err := exec.CommandContext(r.ctx, systemPython, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		return err
	}
	dir, err := r.prepare("venv", "")
	if err != nil {
		return err
	}
	bare, err := r.writeVenvs(dir, strings.TrimSpace(string(version)))
	if err != nil {
		return err
	}
	p := program{
		sandboxed: func(c *skillrun.Client) *skillrun.Cmd { return c.Script(venvSkill, "scripts/total.py") },
		bare:      []string{bare + "/bin/python3", "-c", strings.TrimSpace(venvProgram)}, want: venvOutput,
	}
	d, err := r.start(dir)
	if err != nil {
		return err
	}
	return errors.Join(r.venvOf(d, rows, p), d.stop())
}

// venvOf fills the rows when the daemon has compiled the skill.
// The rows of the overhead take the differences of pairs, not of quantiles: a busy moment of the
// machine is in both numbers of a pair.
func (r *run) venvOf(d *daemon, rows rowSet, p program) error {
	if err := r.untilLogged(d, "skill compiled"); err != nil {
		return err
	}
	first, err := timed(func() error { return p.request(r.ctx, d.client) })
	if err != nil {
		return err
	}
	if row := rows["venv-first"]; row != nil {
		row.set(first, 1)
	}
	times, err := r.latencyOf(d, rows, "venv", p, 100, 0)
	if err != nil {
		return err
	}
	added := differences(times[sandboxedSubject], times[bareSubject])
	for name, q := range map[string]float64{"venv-overhead-p95": 0.95, "venv-overhead-max": 1} {
		if row := rows[name]; row != nil {
			row.set(quantile(added, q), len(added))
		}
	}
	return nil
}

// untilLogged waits until the log of a daemon has a text.
// The daemon compiles in the background, and only its log says when it is done.
func (r *run) untilLogged(d *daemon, text string) error {
	for end := time.Now().Add(startPatience); time.Now().Before(end); {
		log, err := os.ReadFile(filepath.Join(d.dir, "log"))
		if err != nil || bytes.Contains(log, []byte(text)) {
			return err
		}
		if err := r.pause(10 * time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the daemon did not log %q", text)
}

// writeVenvs writes a virtual environment into the daemon's skill, and a compiled one for the bare
// Python. It returns the directory of the second.
func (r *run) writeVenvs(dir, version string) (string, error) {
	files, inSkill := venvFiles(version), map[string]string{
		"SKILL.md":         "---\nname: " + venvSkill + "\ndescription: Has a virtual environment.\n---\n\n# Benchmark\n",
		"scripts/total.py": venvProgram,
	}
	for name, text := range files {
		inSkill["venv/"+name] = text
	}
	bare := filepath.Join(dir, "venv")
	err := errors.Join(
		writeSkill(filepath.Join(dir, "skills"), venvSkill, inSkill),
		writeSkill(dir, "venv", files),
	)
	for _, top := range []string{filepath.Join(dir, "skills", venvSkill, "venv"), bare} {
		err = errors.Join(err, os.Mkdir(filepath.Join(top, "bin"), 0o755), os.Symlink(systemPython, filepath.Join(top, "bin/python3")))
	}
	if err != nil {
		return "", err
	}
	if out, err := exec.CommandContext(r.ctx, systemPython, "-m", "compileall", "-q", bare).CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the bare Python's modules: %w: %s", err, out)
	}
	return bare, nil
}

// venvFiles returns the files of a virtual environment for Pythons of a minor version.
// The functions make each module long enough that compiling it takes longer than reading it.
func venvFiles(version string) map[string]string {
	site := "lib/python" + version + "/site-packages/wide/"
	var functions, imports, names strings.Builder
	for i := range venvFunctions {
		fmt.Fprintf(&functions, "def f%d(value, factor=%d):\n    'Return a product.'\n    return value * factor\n\n", i, i)
	}
	files := map[string]string{"pyvenv.cfg": "home = " + filepath.Dir(systemPython) + "\ninclude-system-site-packages = true\nversion = " + version + ".0\n"}
	for i := range venvModules {
		files[fmt.Sprintf("%sm%d.py", site, i)] = functions.String()
		fmt.Fprintf(&imports, "from . import m%d\n", i)
		fmt.Fprintf(&names, "m%d,", i)
	}
	files[site+"__init__.py"] = imports.String() + "def total():\n    return sum(m.f1(1) for m in (" + names.String() + "))\n"
	return files
}
