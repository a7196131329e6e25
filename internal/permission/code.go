package permission

import (
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// An interpreter is a program that runs code from its arguments or from a file. A rule such
// as Bash(python:*) therefore grants any code.
type interpreter struct {
	valued string // short options that take a value
	inline string // short options whose value is the code itself
	module string // short options whose value is the name of a module
	// words may come between the program and the file, as in "deno run x.ts".
	words []string
}

// interpreters has the known interpreters. The options are from their manuals: python(1),
// node(1), perlrun(1), ruby(1), php(1). An unknown interpreter's file counts as an ordinary
// argument: the rule then does not protect the file (files.go), and the sandbox still holds.
var interpreters = map[string]interpreter{
	"python": {valued: "WX", inline: "c", module: "m"}, "pypy": {valued: "WX", inline: "c", module: "m"},
	"node": {valued: "rC", inline: "ep"}, "nodejs": {valued: "rC", inline: "ep"}, "tsx": {}, "ts-node": {inline: "ep"},
	"bun": {inline: "e", words: []string{"run"}}, "deno": {words: []string{"run", "test"}}, "go": {words: []string{"run"}},
	"ruby": {valued: "Ir", inline: "e"}, "perl": {valued: "I", inline: "eE"}, "php": {valued: "cdz", inline: "rBRE"},
	"lua": {valued: "l", inline: "e"}, "luajit": {valued: "l", inline: "e"}, "texlua": {}, "texluac": {}, "pandoc-lua": {inline: "e", valued: "l"}, "Rscript": {inline: "e"}, "julia": {inline: "eE"},
	"java": {}, "tclsh": {}, "guile": {inline: "c"}, "jshell": {}, "groovy": {inline: "e"}, "elixir": {inline: "e"}, "osascript": {inline: "e"},
}

// interpreterOf finds an interpreter by its name without directory and version.
func interpreterOf(name string) (interpreter, bool) {
	i, ok := interpreters[withoutVersion(path.Base(name), func(known string) bool { _, ok := interpreters[known]; return ok })]
	return i, ok
}

// shells are runners whose first operand is a script; see codeAt.
var shells = strings.Fields("sh bash rbash dash ash zsh ksh ksh93 mksh yash fish csh tcsh")

// A codeWord is a word of a command that names code in the workspace.
type codeWord struct {
	name   string
	module bool // name is a Python module, which is searched in the working directory
}

// codeAt returns the position of the word in args that names a file or module with code, or
// -1. A relative path as the program is code in the workspace. An absolute path is not: the
// folders beneath which it could lie are read-only.
func codeAt(args []string) (at int, module bool) {
	if l, ok, err := manifest.ParseLaunch(args); ok && err == nil {
		inner, module := codeAt(l.Args(args))
		if inner < len(l.Program) {
			return -1, false
		}
		return inner - len(l.Program) + l.Rest, module
	}
	name := args[0]
	if strings.Contains(name, "/") && !strings.HasPrefix(name, "/") {
		return 0, false
	}
	if runnerAt(args) >= 0 {
		at := payload(args)
		if at == 0 {
			return -1, false
		}
		if slices.Contains(shells, runnerName(name)) {
			return at, false
		}
		inner, module := codeAt(args[at:])
		if inner < 0 {
			return -1, false
		}
		return at + inner, module
	}
	if i, ok := interpreterOf(name); ok {
		return i.codeAt(args)
	}
	if strings.HasPrefix(name, "/") {
		return 0, false
	}
	return -1, false
}

// codeAt is codeAt for an interpreter's arguments: the first word that is not an option,
// unless an option takes the code or module itself.
func (in interpreter) codeAt(args []string) (at int, module bool) {
	for i := 1; i < len(args); i++ {
		arg := args[i]
		switch {
		case len(arg) < 2 || arg[0] != '-':
			if !slices.Contains(in.words, arg) {
				return i, false
			}
			continue
		case arg[1] == '-':
			continue
		}
		kind, value := in.option(arg)
		if value {
			i++
		}
		switch {
		case kind == 'c' || i == len(args):
			return -1, false
		case kind == 'm':
			return i, true
		}
	}
	return -1, false
}

// option analyses a cluster of short options. kind is 'c' if an option takes code, 'm' if
// one takes a module, else 0. value says that the next word is the option's value. getopt(3): in
// "-uc" the u is a flag, and the c takes the rest of the word or the next word.
func (in interpreter) option(cluster string) (kind byte, value bool) {
	for j := 1; j < len(cluster); j++ {
		last := j+1 == len(cluster)
		switch c := cluster[j]; {
		case strings.IndexByte(in.inline, c) >= 0:
			return 'c', last
		case strings.IndexByte(in.module, c) >= 0:
			return 'm', last
		case strings.IndexByte(in.valued, c) >= 0:
			return 0, last
		}
	}
	return 0, false
}

// codeOf returns the code that args run, if the rule names it: letter by letter, or by a
// word with a wildcard and other text. A rule such as Bash(python:*) does not name any
// code.
func (r rule) codeOf(args []string) (codeWord, bool) {
	at, module := codeAt(args)
	switch {
	case at < 0 || r.kind == wholeTool:
		return codeWord{}, false
	case r.kind == wildcardWords && at >= r.fixed && (at > r.fixed || at >= len(r.words) || r.words[at] == wildcard):
		return codeWord{}, false
	}
	word := args[at]
	if module {
		word = strings.TrimPrefix(word, "-m")
	}
	return codeWord{name: word, module: module}, true
}
