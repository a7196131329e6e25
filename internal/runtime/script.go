package runtime

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// extensions maps extensions to interpreters. cmd and powershell do not exist on
// Linux; they are listed so that the error can name them.
var extensions = map[string]string{
	".py": "python3", ".sh": "bash", ".bash": "bash", ".js": "node", ".mjs": "node", ".cjs": "node",
	".ts": "node", ".mts": "node", ".cts": "node", ".rb": "ruby", ".pl": "perl",
	".bat": "cmd", ".cmd": "cmd", ".ps1": "powershell",
}

// shebangBytes is how much of a #! line the kernel reads, execve(2).
const shebangBytes = 256

// ForScript returns the invocation of a file of a skill, by its extension, or by its
// #! line if the extension is unknown. The script is run by its path in the workspace, so that
// it can write into its directory. The case of the extension does not matter. The error is the
// skill's error for the path, an *UnknownExtensionError, a *MissingError or a *VenvError.
// The extension comes before the #! line, since the published contract names interpreters by
// extension; the line decides for other files only.
func (s *Set) ForScript(sk *skill.Skill, name string) (Invocation, error) {
	entry, err := sk.Lookup(name)
	if err != nil {
		return Invocation{}, err
	}
	var options []string
	ext := path.Ext(path.Clean(name))
	program, ok := extensions[strings.ToLower(ext)]
	if !ok {
		line, err := firstLine(sk, name)
		if err != nil {
			return Invocation{}, err
		}
		if program, options, ok = shebang(line); !ok {
			return Invocation{}, &UnknownExtensionError{Ext: ext, Program: program}
		}
	}
	inv, err := s.inSkill(sk, program, name)
	if err != nil {
		return Invocation{}, err
	}
	if typeScript[strings.ToLower(ext)] {
		if options, err = s.of(program).typeOptions(name); err != nil {
			return Invocation{}, err
		}
	}
	inv.Args = append(append(inv.Args, options...), skill.WorkspaceDir+"/"+entry.Path)
	return inv, nil
}

// typeScript has the extensions of files from which node must strip the types.
var typeScript = map[string]bool{".ts": true, ".mts": true, ".cts": true}

// typeOptions returns the options with which node runs TypeScript. The error is a
// *MissingError if the node of s is too old.
// Node strips types since 22.6 with an option, and without it since 22.18 and 23.6; since 22.18
// and 24.3 it prints no warning (https://nodejs.org/api/typescript.html, "History"). If the
// version is not known, node itself reports that it can't run the file.
func (s *Set) typeOptions(file string) ([]string, error) {
	version := s.byName["node"].Version
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return nil, nil
	}
	switch {
	case major > 24, major == 24 && minor >= 3, major == 22 && minor >= 18:
		return nil, nil
	case major > 22, major == 22 && minor >= 6:
		return []string{"--experimental-strip-types", "--disable-warning=ExperimentalWarning"}, nil
	}
	missing := s.missing("node", file)
	missing.Reason = "TypeScript needs Node.js 22.18 or newer, which strips the types; this is " + version
	return nil, missing
}

// firstLine returns the first shebangBytes bytes of a script up to the end of its first
// line.
// The kernel ignores the rest of a longer line, and so does this.
func firstLine(sk *skill.Skill, name string) (string, error) {
	f, _, err := sk.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	start, err := io.ReadAll(io.LimitReader(f, shebangBytes))
	if err != nil {
		return "", fmt.Errorf("script %s: %w", name, err)
	}
	line, _, _ := bytes.Cut(start, []byte("\n"))
	return string(line), nil
}

var pythonName = lazyregexp.New(`^python(2|3(\.[0-9]{1,3})?)?$`)

// shebang parses a #! line: /usr/bin/env and a known interpreter, or an absolute path
// whose last element is one. Options after it are kept, one per word. For any other
// line ok is false and program is the program that the line names.
// env -S splits the rest of the line into words (env(1)); here all lines are split so,
// although the kernel would pass the rest as one argument.
func shebang(line string) (program string, options []string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), "#!")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return "", nil, false
	}
	program, words = words[0], words[1:]
	if program == "/usr/bin/env" || program == "/bin/env" {
		if len(words) > 0 && words[0] == "-S" {
			words = words[1:]
		}
		if len(words) == 0 || strings.Contains(words[0], "/") {
			return program, nil, false
		}
		program, words = words[0], words[1:]
	} else if !path.IsAbs(program) {
		return program, nil, false
	}
	switch name := path.Base(program); {
	case name == "python":
		return "python3", words, true
	case name == "nodejs":
		return "node", words, true
	case name == "uv" || name == "pipx": // "uv run --script": the sandbox has no uv
		launch, ok, err := manifest.ParseLaunch(append(append([]string{name}, words...), "script.py"))
		if ok && err == nil && slices.Equal(launch.Program, []string{"python"}) {
			return "python3", nil, true
		}
	case pythonName.MatchString(name), name == "bash", name == "sh", name == "node", name == "ruby", name == "perl":
		return name, words, true
	}
	return program, nil, false
}
