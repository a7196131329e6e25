package runtime

import (
	"slices"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// commonModules are small modules of Python's standard library. Importing them has no side
// effects, and most scripts of skills use some of them.
// The time to fork grows with the memory of the zygote, so the list has small modules only.
var commonModules = []string{
	"argparse", "base64", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "fractions",
	"functools", "glob", "hashlib", "html", "io", "itertools", "json", "logging", "math", "operator", "os", "pathlib", "platform", "random",
	"re", "shlex", "shutil", "signal", "statistics", "string", "struct", "subprocess", "tempfile", "textwrap", "time", "traceback", "types",
	"typing", "unicodedata", "urllib", "uuid", "zipfile", "zlib",
}

// largeModules take longer to import than Python takes to start. If the machine has them, a
// Python zygote imports them once for all scripts that use them.
var largeModules = []string{
	"asyncio", "bs4", "docx", "jinja2", "lxml", "networkx", "numpy", "openpyxl", "pandas", "PIL", "pptx", "pydantic", "pypdf",
	"reportlab", "requests", "scipy", "sqlite3", "sympy", "unittest", "xml", "yaml",
}

// uses are modules that a Python zygote must not import, with the large modules that they import. A zygote has no writable
// files: matplotlib looks for a directory for its configuration, and sklearn looks for shared memory, and decides for
// ever that it can't have several processes.
var uses = map[string][]string{"matplotlib": {"numpy"}, "seaborn": {"numpy", "pandas"}, "sklearn": {"numpy", "scipy"}}

// ownModules are the modules that every Python zygote imports for itself, and some that are
// built into Python.
var ownModules = []string{
	"__future__", "_thread", "abc", "builtins", "codecs", "collections", "ctypes", "enum", "errno", "functools", "gc", "io", "itertools",
	"json", "keyword", "math", "operator", "os", "re", "resource", "select", "signal", "site", "socket", "stat", "struct", "sys", "time",
}

var importLine = lazyregexp.New(`(?m)^[ \t]*(?:import[ \t]+([A-Za-z_][^\n#;]*)|from[ \t]+([A-Za-z_]\w*))`)

var moduleName = lazyregexp.New(`(?:^|,)[ \t]*([A-Za-z_]\w*)`)

// Preloads returns the modules that a Python zygote should import before it forks a child
// for the text. For a text that uses only ownModules it returns none, because a smaller
// zygote forks faster. Otherwise it returns the common modules, and those large modules
// that the text seems to import. A wrong guess only costs time: an unused module changes
// nothing but sys.modules, and a missing one is imported when the text uses it.
// The result is sorted, because it is part of the key of a Python zygote: two texts with the
// same modules share one zygote.
func Preloads(text []byte) []string {
	var large []string
	plain := true
	for _, name := range imports(text) {
		plain = plain && slices.Contains(ownModules, name)
		if slices.Contains(largeModules, name) {
			large = append(large, name)
		}
		large = append(large, uses[name]...)
	}
	if plain {
		return []string{}
	}
	found := append(large, commonModules...)
	slices.Sort(found)
	return slices.Compact(found)
}

// CommonPreloads returns the modules for a text that is not known in advance.
func CommonPreloads() []string { return slices.Clone(commonModules) }

// AllPreloads returns all names that Preloads may return.
func AllPreloads() []string { return slices.Concat(commonModules, largeModules) }

// imports returns the top-level names of the modules that the text seems to import.
// It reads lines and no syntax: an import in a string counts, and that only costs time.
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

// searching matches code that may change where Python searches for modules. Each expression
// begins with literal letters, which package regexp finds at memory speed.
var searching = []*lazyregexp.Regexp{
	lazyregexp.New(`sys\W{0,3}\.\s*path\b`),
	lazyregexp.New(`from\s+sys\s+import\b`),
	lazyregexp.New(`sys\s+as\b`),
	lazyregexp.New(`sitedir\b`),
	lazyregexp.New(`chdir\b`),
	lazyregexp.New(`runpy\b`),
	lazyregexp.New(`discover\b`), // unittest.TestLoader
	lazyregexp.New(`pytest\b`),
	lazyregexp.New(`load_module\b`), // of loaders and of imp: it loads into a module of that name that is there already
	lazyregexp.New(`load_source\b`),
}

// SearchesElsewhere reports whether a Python that runs the text may search other
// directories for modules than at its start. It errs on the side of yes.
// Such a script could import its own module where a Python zygote has already imported
// another one of that name. The fork server then executes the script instead of forking it.
func SearchesElsewhere(text []byte) bool {
	return slices.ContainsFunc(searching, func(r *lazyregexp.Regexp) bool { return r.Match(text) })
}
