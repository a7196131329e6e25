package permission

import (
	"path"
	"slices"
	"strings"
)

// Files of a session must not become code. An input comes from the caller, who may send code. But a file of a
// session may come from the program of another skill, and the program of this skill may have more rights: another
// network, credentials, secret variables. So this package hides files of sessions that a program could load by their
// names. It does not check names that a request or a program itself gives to an interpreter.

// Hides returns a function that takes the name of a file of the session. It returns the reason if the program of this
// grant may not see the file, or else "". dir is the request's working directory. secret says that the request has
// secret variables.
//
// The skill's scripts and commands see no file that they could load as code without naming it. Inline code sees all
// files, because it belongs to the caller, like the modules that the caller left in the session. With a network,
// credentials or secret variables, it sees only the files that a script sees. A command that runs no code of the skill
// counts as inline code.
func (g Grant) Hides(dir string, secret bool) func(name string) string {
	has := g.skill.Has
	secret = secret || g.network != nil || len(g.secrets) > 0
	own, deep := g.source.Kind == Script, secret
	var loads []placedCode // of the skill
	for _, c := range g.loads {
		p := c.place(has, dir)
		if p.shipped {
			loads = append(loads, p)
			deep = deep || p.module || p.folder == "." && slices.Contains([]string{".py", ""}, strings.ToLower(path.Ext(p.file)))
		}
		own = own || p.shipped || isIn(c.name, g.skill.BaseDir())
	}
	for _, c := range g.code {
		if p := c.place(has, dir); p.shipped && !slices.Contains(loads, p) {
			loads = append(loads, p)
		}
	}
	return func(name string) string {
		if g.scoped {
			if reason := refusedByRules(has, name); reason != "" {
				return reason
			}
		}
		for _, p := range loads {
			if reason := p.refusesFile(name); reason != "" {
				return reason
			}
		}
		switch {
		case !own && !secret:
			return ""
		case g.found(dir, name):
			return "another skill may have made them, and the program could load them as code: " + hiddenRemedy
		case deep && (imported(name) || imported(beneath(dir, name))):
			return "another skill may have made them, and a Python could import them: " + hiddenRemedy +
				", or put them into a folder whose name has a hyphen"
		case secret && (path.Base(name) == "HEAD" || ownedByGit(name)):
			return "another skill may have made them, and git could run commands that they name: " + hiddenRemedy
		}
		return ""
	}
}

const hiddenRemedy = "send them as input files"

// found reports whether a program could load a file as code because of its name and its place. Some names count
// everywhere. Others count only in the skill's folders, at the top of the workspace, in the working directory, and in
// the folders between the last two, because node and git search these, too.
func (g Grant) found(dir, name string) bool {
	folder, base := path.Dir(name), path.Base(name)
	first, _, _ := strings.Cut(name, "/")
	switch {
	case inPackages(name), startFiles[base] != "":
		return true
	case !hasCodeSuffix(base) && !strings.HasPrefix(base, "__init__.") && !slices.Contains(nodeFiles, base) &&
		(g.source.Kind == Script || !slices.Contains(buildFiles, base)):
		return false
	}
	return folder == "." || g.skill.Has(first) || within(dir, folder) ||
		strings.HasPrefix(base, "__init__.") && within(dir, path.Dir(folder))
}

// nodeFiles say which code node, tsx, bun and deno load for a name. With a name and exports in the
// package.json of a folder above the script, for example, node loads a file of that folder for the name
// (https://nodejs.org/api/packages.html, "Self-referencing a package using its name").
var nodeFiles = strings.Fields("package.json tsconfig.json deno.json deno.jsonc bunfig.toml .npmrc .yarnrc.yml")

// buildFiles are files with commands, or names of commands, that a build tool in the same folder runs. They are hidden
// only from commands: a script of the skill may read such a file as data.
var buildFiles = strings.Fields(`Makefile makefile GNUmakefile justfile Rakefile Gemfile Cargo.toml build.gradle pom.xml build.xml
	CMakeLists.txt pyproject.toml setup.cfg tox.ini pytest.ini .pre-commit-config.yaml`)

// within reports whether folder is the directory dir or above it. Both are relative to the workspace.
func within(dir, folder string) bool {
	dir = path.Clean(dir)
	return folder == "." || dir == folder || strings.HasPrefix(dir, folder+"/")
}

// beneath returns name relative to dir, or "" if name is not beneath dir.
func beneath(dir, name string) string {
	rest, ok := strings.CutPrefix(name, path.Clean(dir)+"/")
	if !ok {
		return ""
	}
	return rest
}

// imported reports whether a Python with its folder in sys.path can import a file. A folder without an
// __init__.py is a namespace package: it adds modules to the installed packages of its name, such as
// google, and comes before them (PEP 420).
func imported(name string) bool {
	if !slices.Contains([]string{".py", ".pyc", ".so"}, strings.ToLower(path.Ext(name))) {
		return false
	}
	parts := strings.Split(name, "/")
	last := len(parts) - 1
	parts[last], _, _ = strings.Cut(parts[last], ".") // x.cpython-311-x86_64-linux-gnu.so
	return !slices.ContainsFunc(parts, func(p string) bool {
		return strings.ContainsFunc(p, func(r rune) bool {
			return r < 0x80 && r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		})
	})
}

// loadsOf returns the words of a plan that name code.
func loadsOf(plan Plan) (loads []codeWord) {
	for _, c := range plan.commands() {
		if at, module := codeAt(c.Args); at >= 0 {
			word := c.Args[at]
			if module {
				word = strings.TrimPrefix(word, "-m")
			}
			loads = append(loads, codeWord{name: word, module: module})
		}
	}
	return loads
}
