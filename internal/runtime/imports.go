package runtime

import (
	"regexp"
	"slices"
)

// commonModules are of Python's standard library, small, without effects when they
// are imported, and in most scripts of skills.
var commonModules = []string{
	"argparse", "base64", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "fractions",
	"functools", "glob", "hashlib", "html", "io", "itertools", "json", "logging", "math", "operator", "os", "pathlib", "platform", "random",
	"re", "shlex", "shutil", "signal", "statistics", "string", "struct", "subprocess", "tempfile", "textwrap", "time", "traceback", "types",
	"typing", "unicodedata", "urllib", "uuid", "zipfile", "zlib",
}

// largeModules take longer to import than Python to start. A machine that has them
// installed imports them once for the scripts that use them.
var largeModules = []string{
	"asyncio", "bs4", "docx", "jinja2", "lxml", "matplotlib", "networkx", "numpy", "openpyxl", "pandas", "PIL", "pptx", "pydantic", "pypdf",
	"reportlab", "requests", "scipy", "sklearn", "sqlite3", "sympy", "unittest", "xml", "yaml",
}

// ownModules are those that every ready interpreter has imported for itself, and some
// that are a part of Python.
var ownModules = []string{
	"__future__", "_thread", "abc", "builtins", "codecs", "collections", "ctypes", "enum", "errno", "functools", "gc", "io", "itertools",
	"json", "keyword", "math", "operator", "os", "re", "resource", "select", "signal", "site", "socket", "stat", "struct", "sys", "time",
}

var importLine = regexp.MustCompile(`(?m)^[ \t]*(?:import[ \t]+([A-Za-z_][^\n#;]*)|from[ \t]+([A-Za-z_]\w*))`)

var moduleName = regexp.MustCompile(`(?:^|,)[ \t]*([A-Za-z_]\w*)`)

// Preloads returns which modules an interpreter may have imported before it is given
// the text: none for a text that uses only those that it has anyway, as the less there is
// in it the less work a fork is; else the common ones, and of the large ones those that
// the text seems to import. It errs on the side of speed only: a module that is there
// unused changes nothing but sys.modules, and one that is not there is imported when it
// is used.
func Preloads(text []byte) []string {
	var large []string
	plain := true
	for _, name := range imports(text) {
		plain = plain && slices.Contains(ownModules, name)
		if slices.Contains(largeModules, name) {
			large = append(large, name)
		}
	}
	if plain {
		return []string{}
	}
	found := append(large, commonModules...)
	slices.Sort(found)
	return slices.Compact(found)
}

// CommonPreloads is Preloads for a text that can't be read ahead.
func CommonPreloads() []string { return slices.Clone(commonModules) }

// AllPreloads are all names that Preloads may return.
func AllPreloads() []string { return slices.Concat(commonModules, largeModules) }

// imports returns the top names of what the text seems to import.
func imports(text []byte) (names []string) {
	for _, line := range importLine.FindAllSubmatch(text, -1) {
		if line[2] != nil {
			names = append(names, string(line[2]))
		}
		for _, m := range moduleName.FindAllSubmatch(line[1], -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// searching is what a text has in it that changes where modules are searched for.
// Each begins with letters, by which it is found at memory's speed.
var searching = []*regexp.Regexp{
	regexp.MustCompile(`sys\W{0,3}\.\s*path\b`),
	regexp.MustCompile(`from\s+sys\s+import\b`),
	regexp.MustCompile(`sys\s+as\b`),
	regexp.MustCompile(`sitedir\b`),
	regexp.MustCompile(`chdir\b`),
	regexp.MustCompile(`runpy\b`),
}

// SearchesElsewhere reports whether a Python that runs the text may search for modules in
// other directories than at its start. It errs on the side of yes.
func SearchesElsewhere(text []byte) bool {
	return slices.ContainsFunc(searching, func(r *regexp.Regexp) bool { return r.Match(text) })
}
