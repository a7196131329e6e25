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

var importLine = regexp.MustCompile(`(?m)^[ \t]*(?:import|from)[ \t]+([A-Za-z_][^\n#;]*)`)

var moduleName = regexp.MustCompile(`(?:^|,)[ \t]*([A-Za-z_]\w*)`)

// Preloads returns which modules an interpreter may have imported before it is given
// the text: common ones, and of the large ones those that the text seems to import.
// It errs on the side of speed only: a module that is there unused changes nothing
// but sys.modules, and one that is not there is imported when it is used.
func Preloads(text []byte) []string {
	found := slices.Clone(commonModules)
	for _, line := range importLine.FindAllSubmatch(text, -1) {
		for _, m := range moduleName.FindAllSubmatch(line[1], -1) {
			if name := string(m[1]); slices.Contains(largeModules, name) && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return found
}
