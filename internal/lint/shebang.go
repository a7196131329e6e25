package lint

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// byteOrderMark is U+FEFF, EF BB BF in UTF-8. Editors on Windows put it before a text.
const byteOrderMark = "\ufeff"

// place looks for programs outside of scripts/. A module that others import may
// stand anywhere.
func (c *check) place(p program) {
	if strings.HasPrefix(p.path, "scripts/") || p.language == "" || !p.isStarted() {
		return
	}
	c.warn(p.path, 0, RuleScriptPlace, "looks like a program, and stands outside of scripts/, where agents look for them: move it there")
}

var (
	mainGuard   = lazyregexp.New(`(?m)^if\s+__name__\s*==\s*["']__main__["']`)
	definitions = lazyregexp.New(`(?m)^(?:def|class|async def) `)
)

// isStarted reports whether a file is made to be started. Many modules that are only
// imported have a #! line and the executable bit.
func (p program) isStarted() bool {
	if p.language == "python" {
		return mainGuard.MatchString(p.text) || strings.HasPrefix(p.text, "#!") && !definitions.MatchString(p.text)
	}
	return p.language == "bash" || p.executable || strings.HasPrefix(p.text, "#!")
}

// shebang looks at the first line of a program.
func (c *check) shebang(p program) {
	text, marked := strings.CutPrefix(p.text, byteOrderMark)
	first, _, _ := strings.Cut(text, "\n")
	name, direct := shebangProgram(first)
	switch {
	case !strings.HasPrefix(first, "#!"):
		if crlf := strings.Index(text, "\r\n"); p.language == "bash" && crlf >= 0 {
			c.error(p.path, 1+strings.Count(text[:crlf], "\n"), RuleScriptLineEnds, "has CRLF line ends, which a shell takes for part of each command: convert it to LF")
		}
	// execve(2) looks for the two bytes #! at the very beginning of the file.
	case marked:
		c.error(p.path, 1, RuleShebangBOM, "has a byte order mark before #!, so the kernel doesn't see the #! line: save it without one")
	// The kernel takes the carriage return for a part of the name.
	case strings.HasSuffix(first, "\r"):
		c.error(p.path, 1, RuleScriptLineEnds, `has CRLF line ends, so its #! line asks for "%s\r", which no machine has: convert it to LF`, name)
	case c.machine != nil && (direct != "" && !c.inSandbox(direct) || direct == "" && name != "" && !c.program(name)):
		c.warn(p.path, 1, RuleShebangInterpreter, "its #! line asks for %s, which is in no sandbox on this machine: write #!/usr/bin/env and an interpreter that is there", shown(direct, name))
	}
}

func shown(direct, name string) string {
	if direct != "" {
		return direct
	}
	return name
}

// shebangProgram is the program of a #! line: its name, and its path if the line
// doesn't leave the search to env.
// Options of env such as -S and assignments are skipped (env(1)). Both results are empty for
// a line without a program.
func shebangProgram(line string) (name, direct string) {
	rest, ok := strings.CutPrefix(line, "#!")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return "", ""
	}
	if path.Base(words[0]) != "env" {
		return path.Base(words[0]), words[0]
	}
	for i, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
			continue
		}
		// "uv run --script" is Python with the packages that were prepared, as in package runtime.
		if l, ok, err := manifest.ParseLaunch(append(slices.Clone(words[1+i:]), "script.py")); ok && err == nil && slices.Equal(l.Program, []string{"python"}) {
			return "python3", ""
		}
		return w, ""
	}
	return "", ""
}

// shebangLanguage returns the language of a #! line's program, or "". A version at the end of the name doesn't count:
// python3.11.
func shebangLanguage(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	name, _ := shebangProgram(first)
	switch base := strings.TrimRight(path.Base(name), "0123456789."); base {
	case "python", "node", "ruby", "perl", "bash":
		return base
	case "sh", "dash", "zsh", "ksh":
		return "bash"
	case "nodejs":
		return "node"
	}
	return ""
}

// isProgramDir reports whether a directory is on the PATH of sandboxes.
func isProgramDir(dir string) bool {
	return slices.Contains([]string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"}, dir)
}

// inSandbox reports whether a program is where a #! line says.
func (c *check) inSandbox(direct string) bool {
	return isProgramDir(path.Dir(direct)) && c.program(path.Base(direct))
}

// interpreter asks as an execution would.
// It asks the Set as the executor does, so in a daemon it agrees with executions. Files
// outside of scripts/ that are only imported are left out.
func (c *check) interpreter(p program) {
	if c.machine == nil || c.machine.Runtimes == nil || !strings.HasPrefix(p.path, "scripts/") && !p.isStarted() {
		return
	}
	_, err := c.machine.Runtimes.ForScript(c.skill, p.path)
	if missing, ok := errors.AsType[*runtime.MissingError](err); ok {
		switch name := missing.Interpreter; {
		case name == "python3": // the daemon brings one
		case c.has(p.path, manifest.RuleNoInterpreter), c.has(p.path, RuleShebangInterpreter):
		case missing.Reason != "":
			c.warn(p.path, 0, RuleInterpreterMissing, "%v", missing)
		case name == "cmd" || name == "powershell":
			c.warn(p.path, 0, manifest.RuleNoInterpreter, "no interpreter is known for it: %s is no program of Linux", name)
		default:
			c.warn(p.path, 0, RuleInterpreterMissing, "its interpreter %s is not on this machine: install it where the daemon runs", name)
		}
	}
	if unknown, ok := errors.AsType[*runtime.UnknownExtensionError](err); ok && !c.has(p.path, manifest.RuleNoInterpreter) {
		c.warn(p.path, 0, manifest.RuleNoInterpreter, "%v: use a known extension (.py .sh .js .ts .rb .pl) or a #! line", unknown)
	}
	if venv, ok := errors.AsType[*runtime.VenvError](err); ok && !c.has("venv", RuleVenv) {
		c.warn("venv", 0, RuleVenv, "%s: leave it out and declare python_packages instead", c.venvText(venv))
	}
}

// venvText says why a venv can't be used. Without a daemon, nothing is known about the Python
// that comes with one.
func (c *check) venvText(e *runtime.VenvError) string {
	made, _, known := strings.Cut(e.Reason, ", and ")
	switch {
	case !known || c.machine.Daemon || c.skill.Manifest.Python == string(runtime.System):
		return e.Error()
	case c.skill.Manifest.Python == string(runtime.Embedded):
		return made + ", and whether the embedded Python, which the skill asks for, is the same only a daemon knows (skillrun validate " + c.skill.Name + " asks it); if it is not"
	}
	return e.Error() + "; the embedded Python of a daemon may be the one (skillrun validate " + c.skill.Name + " asks it); if not"
}
