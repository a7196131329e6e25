package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// A Launch describes a program that a command line of uv, pipx or npx runs: "uv run", "uv tool run", "uvx",
// "pipx run", and the words of nodeLaunchers.
// Sources: uv's "CLI Reference" (docs.astral.sh/uv/reference/cli) and pipx's "run".
type Launch struct {
	Program []string // the words in front of Rest: "python", "python -m", the tool's program
	Rest    int      // index of the first word of the line that follows Program unchanged
	With    []string // requirements that the line adds to the script's
	Tool    string   // requirement of a tool, which runs without the skill's packages
	Python  string   // specifier of the interpreter's version
	Node    bool     // Tool is a Node package, such as eslint@9
}

// Args returns the words that run instead of the line.
func (l Launch) Args(line []string) []string {
	return slices.Concat(l.Program, line[min(l.Rest, len(line)):])
}

// uvFlags are options of uv and pipx that change nothing here: nothing is downloaded, and the
// skill's environment is the only one.
var uvFlags = strings.Fields(`
	--quiet -q --verbose -v --no-project --isolated --no-sync --frozen --locked --offline --no-config --no-cache -n
	--no-progress --exact --refresh --no-env-file --native-tls --system-certs --no-python-downloads --managed-python
	--no-managed-python --no-dev --script -s --gui-script`)

// launchers are the words that begin a Launch, with the options that each knows.
var launchers = []struct {
	words []string
	tool  bool   // its word is a tool, not a program
	spec  string // the option that names the tool's package
}{
	{[]string{"uv", "run"}, false, ""}, {[]string{"uv", "tool", "run"}, true, "--from"},
	{[]string{"uvx"}, true, "--from"}, {[]string{"pipx", "run"}, true, "--spec"},
}

// A launchReader reads the options of one line.
// at is the position in line of the word that is read next.
type launchReader struct {
	Launch
	line         []string
	at           int
	script       bool // --script: the word is a script, whatever its name
	module       bool
	specOption   string
	spec         string
	toolLauncher bool
}

// ParseLaunch reads the words of a command. ok is false if it is not a command of uv, pipx or npx that
// starts a program. The error names the part of the command that the daemon can't run.
func ParseLaunch(line []string) (l Launch, ok bool, err error) {
	for _, launcher := range launchers {
		at, ok := after(line, launcher.words)
		if !ok {
			continue
		}
		r := launchReader{line: line, at: at, toolLauncher: launcher.tool, specOption: launcher.spec}
		if err := r.options(); err != nil {
			return Launch{}, true, fmt.Errorf("%s: %w", strings.Join(launcher.words, " "), err)
		}
		if err := r.program(); err != nil {
			return Launch{}, true, fmt.Errorf("%s: %w", strings.Join(launcher.words, " "), err)
		}
		return r.Launch, true, nil
	}
	return parseNode(line)
}

// after returns the index of the word that follows words at the beginning of a line. Options without a
// value may come between words.
func after(line, words []string) (int, bool) {
	at := 0
	for _, word := range words {
		for at > 0 && at < len(line) && slices.Contains(uvFlags, line[at]) {
			at++
		}
		if at >= len(line) || line[at] != word {
			return 0, false
		}
		at++
	}
	return at, true
}

// options reads the options in front of the program.
// An unknown option is an error, not skipped: it could take a value, and then the next word would
// be mistaken for the program.
func (r *launchReader) options() error {
	for ; r.at < len(r.line); r.at++ {
		word := r.line[r.at]
		if word == "--" {
			r.at++
			return nil
		}
		if word == "-" || !strings.HasPrefix(word, "-") {
			return nil
		}
		name, value, given := strings.Cut(word, "=")
		// take reads the value of an option: after =, or in the next word.
		take := func() error {
			if !given {
				if r.at++; r.at >= len(r.line) {
					return fmt.Errorf("option %s needs a value", name)
				}
				value = r.line[r.at]
			}
			return nil
		}
		var err error
		switch {
		case name == "--with" || name == "-w":
			if err = take(); err == nil {
				err = r.with(value)
			}
		case name == "--python" || name == "-p":
			if err = take(); err == nil {
				err = r.python(value)
			}
		case r.specOption != "" && name == r.specOption:
			if err = take(); err == nil {
				r.spec, err = toolRequirement(value)
			}
		case !r.toolLauncher && (word == "-m" || word == "--module"):
			r.at++
			r.module = true
			return nil
		case slices.Contains(uvFlags, word):
			r.script = r.script || word == "--script" || word == "-s" || word == "--gui-script"
		default:
			return fmt.Errorf("option %s can't be met in a sandbox; leave it out", name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// with adds the requirements of --with, which may be separated by commas, as the clauses of one
// requirement are.
func (r *launchReader) with(value string) error {
	var texts []string
	for _, part := range strings.Split(value, ",") {
		part = strings.TrimSpace(part)
		if n := len(texts); n > 0 && packageName.FindString(part) == "" {
			if texts[n-1] += "," + part; len(texts[n-1]) > maxRequirementBytes {
				break // toolRequirement refuses it
			}
		} else {
			texts = append(texts, part)
		}
	}
	for _, text := range texts {
		text, err := toolRequirement(text)
		if err != nil {
			return err
		}
		r.With = append(r.With, text)
	}
	return nil
}

// pythonRequest matches a bare version with or without the name of CPython. Other implementations,
// such as pypy@3.10, do not match: no such interpreter is installed.
var pythonRequest = lazyregexp.New(`^(?:c?python[@-]?)?([0-9]+(?:\.[0-9]+){0,2})$`)

// python reads a version of --python: 3.12, python3.12, cpython@3.12, >=3.11.
func (r *launchReader) python(value string) error {
	if m := pythonRequest.FindStringSubmatch(value); m != nil {
		r.Python = "==" + m[1]
		// 3.12 means any 3.12.x, as for uv; 3.12.4 means exactly this version.
		if strings.Count(m[1], ".") < 2 {
			r.Python += ".*"
		}
		return nil
	}
	for _, clause := range commas(value) {
		if !versionClause.MatchString(clause) {
			return fmt.Errorf("--python %.80s: want a version, such as 3.12 or >=3.11", value)
		}
	}
	r.Python = value
	return nil
}

var isPythonProgram = lazyregexp.New(`^python(3(\.[0-9]+)?)?$`)

// program reads the word that runs.
// The cases, in order:
//
//	uv run -m mod, uv run x.py, uv run -    the skill's Python
//	pipx run x.py                           a script as well
//	uvx --from package program              a tool, with the package that is named
//	uvx python                              no tool: the interpreter
//	uvx tool                                a tool whose package has the program's name
//	uv run program                          a program of the skill's environment; Program stays empty
func (r *launchReader) program() error {
	word := ""
	if r.Rest = r.at; r.at < len(r.line) {
		word = r.line[r.at]
	}
	isScript := r.script || strings.EqualFold(path.Ext(word), ".py")
	switch {
	case r.module:
		r.Program = []string{"python", "-m"}
	case !r.toolLauncher && (word == "" || word == "-"), isScript && word != "" && (!r.toolLauncher || r.spec == ""):
		r.Program = []string{"python"}
	case word == "":
		return fmt.Errorf("names no program")
	case r.toolLauncher && r.spec != "":
		r.Tool = r.spec
	case r.toolLauncher && !isPythonProgram.MatchString(word):
		text, err := toolRequirement(word)
		if err != nil {
			return err
		}
		p, _ := ParseRequirement(text)
		// The version is no part of the program's name: "uvx ruff@0.8.0 check" runs ruff.
		r.Tool, r.Program, r.Rest = text, []string{p.Name}, r.at+1
	}
	if r.Tool != "" && len(r.With) > 0 {
		return fmt.Errorf("--with can't be met for a tool: name a package that brings both")
	}
	return nil
}

// toolRequirement is a requirement as a command line writes it: ruff, ruff@0.8.0, ruff@latest,
// black==24.10.0.
func toolRequirement(word string) (string, error) {
	name, version, at := strings.Cut(word, "@")
	text := word
	if at && !strings.ContainsAny(version, "/: ") {
		text = name
		if version != "latest" {
			text += "==" + version
		}
	}
	p, err := ParseRequirement(text)
	if err != nil {
		return "", err
	}
	if p.URL != "" || p.Marker != "" {
		return "", fmt.Errorf("requirement %.80q: packages come from the daemon's index only", word)
	}
	return text, nil
}
