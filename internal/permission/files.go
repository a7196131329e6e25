package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill"
)

// A rule that names a file in the workspace means the skill's file there. No request file,
// no redirect and no other command of the line may replace that file. This file checks that
// by names alone. Programs that write files without naming them (tar, unzip) are not
// covered by the check. A rule that names {baseDir}/scripts/x.py does not need it, since
// that folder is read-only.

// RefusesFile returns the reason why a request with this grant may not have the input file name,
// or "". dir is the request's working directory; both are relative to the workspace. RefusesFile
// refuses files only for commands that a scoped rule covers, and for scripts if the policy
// refuses inline code. Any other caller may send code and needs no file to run it.
func (g Grant) RefusesFile(dir, name string) string {
	if g.scoped {
		if reason := refusedByRules(g.skill.Has, name); reason != "" {
			return reason
		}
	}
	for _, c := range g.code {
		if reason := c.refusesFile(g.skill.Has, dir, name); reason != "" {
			return reason
		}
	}
	return ""
}

// refusedByRules returns the reason why no command of a skill with scoped rules may have the input
// file name, or "".
func refusedByRules(has func(string) bool, name string) string {
	switch {
	case ownedByGit(name):
		return "files in .git can make git run any command, and the skill's allowed-tools limits which commands may run: " +
			"send a bundle or an archive that a script of the skill unpacks"
	case startFiles[path.Base(name)] != "":
		return startFiles[path.Base(name)] + " runs code that a file of this name has or names, and the skill's allowed-tools limits which code may run: give it another name"
	case strings.HasPrefix(name, "scripts/") && has("scripts"):
		return "scripts/ holds the skill's scripts, and its allowed-tools limits which code may run: put the file into another folder"
	}
	return ""
}

// refusesFile returns the reason why a request may not have an input file, because of the code that it
// runs, or "".
func (c codeWord) refusesFile(has func(string) bool, dir, name string) string {
	if p := c.place(has, dir); p.shipped {
		return p.refusesFile(name)
	}
	return ""
}

// A placedCode is a codeWord with its place in the workspace.
type placedCode struct {
	codeWord
	file, folder string
	pkg          string // the folder of a module's package, if the skill has it; else empty
	// shipped says that the skill has the file. The author of a rule means the skill's file, whatever the request's
	// working directory is. Code that the skill does not have belongs to the caller.
	shipped bool
}

// place finds the code of a command that starts in dir.
func (c codeWord) place(has func(string) bool, dir string) placedCode {
	file, ok := c.in(dir)
	p := placedCode{codeWord: c, file: file, folder: path.Dir(file)}
	if !ok {
		return p
	}
	unmoved, _ := c.in("")
	p.shipped = c.module || slices.ContainsFunc([]string{file, unmoved, p.folder, path.Dir(unmoved)},
		func(name string) bool { return name != "." && has(name) })
	if c.module && (has(c.packageIn(dir)) || has(c.packageIn(""))) {
		p.pkg = c.packageIn(dir)
	}
	return p
}

// refusesFile is codeWord.refusesFile for code that the skill ships.
func (p placedCode) refusesFile(name string) string {
	switch {
	case name == p.file:
		return fmt.Sprintf("the request runs %s, which must be the skill's own file: leave working_directory out of the request", excerpt(p.name))
	case p.folder != "." && !p.module && isIn(name, p.folder):
		return fmt.Sprintf("the request runs %s, and programs load files from the same folder: put the file into another folder", excerpt(p.name))
	case p.pkg != "" && isIn(name, p.pkg):
		return fmt.Sprintf("the request runs %s, which is in this folder: put the file into another folder", excerpt(p.name))
	case loadable(strings.TrimPrefix(name, p.folder+"/")), steersNode(p.file, name):
		return fmt.Sprintf("the request runs %s, which could load the file as code: give it another name, or put it into a folder", excerpt(p.name))
	}
	return ""
}

// steersNode reports whether node loads other code for the program in file because of the file name: a module in
// node_modules, or a package.json that gives a module's name to a file of any folder (nodeFiles).
func steersNode(file, name string) bool {
	if ext := strings.ToLower(path.Ext(file)); ext != "" && !slices.Contains(nodeSuffixes, ext) {
		return false
	}
	return inPackages(name) || slices.Contains(nodeFiles, path.Base(name)) && within(path.Dir(file), path.Dir(name))
}

// nodeSuffixes are the suffixes of programs that node, tsx, bun and deno run. They also run a file without a suffix.
var nodeSuffixes = strings.Fields(".js .mjs .cjs .node .ts .mts .cts .tsx .jsx")

// isIn reports whether the path name is in folder or beneath it.
func isIn(name, folder string) bool {
	return len(name) > len(folder) && name[len(folder)] == '/' && name[:len(folder)] == folder
}

// in returns the path of the code in the workspace if the command starts in dir. ok is
// false if the code lies elsewhere: in the skill's folder or the system's.
func (c codeWord) in(dir string) (file string, ok bool) {
	name := c.name
	if c.module {
		name = strings.SplitN(name, ".", 2)[0] + ".py"
	}
	if rest, absolute := strings.CutPrefix(path.Clean(name), skill.WorkspaceDir+"/"); absolute {
		return rest, true
	}
	file = path.Join(dir, name)
	return file, !strings.HasPrefix(name, "/") && file != ".." && !strings.HasPrefix(file, "../")
}

// packageIn returns the folder of a module's package in the workspace, for a command that starts in dir.
func (c codeWord) packageIn(dir string) string {
	name, _, _ := strings.Cut(c.name, ".")
	return path.Join(dir, name)
}

// startFiles has programs that, with any arguments, run a file of their working directory, or code that
// such a file names: Startup(R), octave(1), latexmk(1). javac's class path is its working directory unless
// an option names another. javac runs the processors and plugins that these files of META-INF/services
// name: javac(1).
var startFiles = map[string]string{
	".Rprofile": "R", ".Renviron": "R", ".RData": "R", ".octaverc": "Octave", "PKG_ADD": "Octave", "latexmkrc": "latexmk", ".latexmkrc": "latexmk",
	"javax.annotation.processing.Processor": "javac", "com.sun.source.util.Plugin": "javac",
}

// codeSuffixes are the suffixes of files that a program loads as code from its script's
// folder or from its working directory. In doubt a suffix is in the list: a caller can rename a
// refused file.
var codeSuffixes = strings.Fields(".py .pyc .so .js .mjs .cjs .node .ts .mts .cts .rb .pl .pm .pmc .php .lua .sh .bash .tsx .jsx .class .jar .m .oct .mex")

// loadable reports whether a program loads a file because of its name: a module or package
// in a folder that it searches, or a cached or installed module of Python or node.
func loadable(name string) bool {
	if inPackages(name) {
		return true
	}
	dir, last := path.Split(name)
	return dir == "" && hasCodeSuffix(last) || strings.Count(dir, "/") == 1 && strings.HasPrefix(last, "__init__.")
}

// inPackages reports whether a path has a folder of cached or installed modules.
func inPackages(name string) bool {
	for _, folder := range []string{"__pycache__", "node_modules"} {
		if strings.Contains(name, folder) && slices.Contains(strings.Split(name, "/"), folder) {
			return true
		}
	}
	return false
}

func hasCodeSuffix(name string) bool {
	ext := path.Ext(name)
	return ext != "" && slices.Contains(codeSuffixes, strings.ToLower(ext))
}

// ownedByGit reports whether a path, or the value of an option, lies in a directory named
// .git (in any case) or .hg.
func ownedByGit(name string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '=' }), func(part string) bool {
		return strings.EqualFold(part, ".git") || strings.EqualFold(part, ".hg")
	})
}

// checkWrite is checkPath for a file that a covered command writes to.
func checkWrite(name string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if ownedByGit(name) {
		return fmt.Errorf("files in .git can make git run any command")
	}
	if program := startFiles[path.Base(name)]; program != "" {
		return fmt.Errorf("%s runs code that a file of this name has or names", program)
	}
	return nil
}

// readers are programs for reading files. No wildcard covers the options by which they write, such as
// find -fprintf (programs.go), except for the options that onlyReads finds.
var readers = strings.Fields(`cat ls head tail wc file stat chmod test [ grep egrep fgrep find echo printf jq diff cmp cksum md5sum sha1sum
	sha256sum sha512sum du tree pwd true false sort cut tr nl od basename dirname realpath readlink mkdir which`)

// onlyReads reports whether a command can't write a file of the workspace: it is a reader, without an
// option such as sort -o.
func onlyReads(args []string) bool {
	options := guards[programOf(args[0])]
	return slices.Contains(readers, args[0]) && !slices.ContainsFunc(args[1:], func(arg string) bool {
		hit, _, _ := options.find(arg)
		return hit != nil && hit.opens
	})
}

// checkLine returns the reason why covered commands may not run in the same line, or "". It refuses
// a line in which one command could write the code that another one runs. covers[i] belongs to
// commands[i]. checkLine does not check a command whose rule has every word, because the skill's author
// wrote that command. It also does not check a command that runs code, since code can write anything.
func checkLine(commands []SimpleCommand, covers []cover) string {
	var code []codeWord
	git := false
	for _, c := range covers {
		git = git || c.env != nil
		if c.code != nil {
			code = append(code, *c.code)
		}
	}
	for i, c := range commands {
		for _, r := range c.Redirects {
			if r.Kind != Write && r.Kind != Append {
				continue
			}
			if err := checkWrite(r.Path); err != nil {
				return fmt.Sprintf("the redirect to %s: %v", excerpt(r.Path), err)
			}
			if one := replaced(code, r.Path); one != "" {
				return writesCode("the redirect to "+excerpt(r.Path), one)
			}
		}
		if at, _ := codeAt(covers[i].args); at >= 0 || covers[i].exact || onlyReads(covers[i].args) {
			continue
		}
		for _, arg := range covers[i].args[1:] {
			if git && covers[i].env == nil && (slices.ContainsFunc(names(arg), ownedByGit) || couldName(arg, ".git")) {
				return fmt.Sprintf("%s of %s: the same line runs git, and files in .git can make git run any command", excerpt(arg), excerpt(c.Args[0]))
			}
			if one := replaced(code, arg); one != "" {
				return writesCode(fmt.Sprintf("%s of %s", excerpt(arg), excerpt(c.Args[0])), one)
			}
		}
	}
	return ""
}

// writesCode is the refusal of a line that could change its own code, with the remedy.
func writesCode(what, code string) string {
	return fmt.Sprintf("%s could change %s, which the same line runs: write to another file, or use {baseDir}/%s in the rule and the command, which is read-only",
		what, excerpt(code), path.Clean(strings.TrimPrefix(code, skill.WorkspaceDir+"/")))
}

// replaced returns the code that a word could name, or whose folder it could name, or "".
// It compares names only, so it errs on the side of refusing.
func replaced(code []codeWord, word string) string {
	for _, c := range code {
		file, ok := c.in("")
		if !ok {
			continue
		}
		parts := strings.Split(file, "/")
		if c.module {
			parts = append(parts, strings.Split(c.name, ".")...)
		}
		for _, name := range names(word) {
			if slices.ContainsFunc(strings.Split(name, "/"), func(p string) bool { return slices.Contains(parts, p) }) ||
				path.Dir(file) == "." && loadable(path.Clean(name)) || !c.module && steersNode(file, path.Clean(name)) || endsIn(name, parts) {
				return c.name
			}
		}
		if slices.ContainsFunc(parts, func(part string) bool { return couldName(word, part) }) {
			return c.name
		}
	}
	return ""
}

// endsIn reports whether an option with an attached value, such as -tscripts or -rtscripts/x, could
// have a value that begins with one of the parts.
func endsIn(word string, parts []string) bool {
	first, _, _ := strings.Cut(word, "/")
	return strings.HasPrefix(word, "-") && slices.ContainsFunc(parts, func(part string) bool { return part != "." && strings.HasSuffix(first, part) })
}

// couldName reports whether a component of a pattern of file names could match name. As in
// a shell, a leading wildcard does not match a dot.
func couldName(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return false
	}
	return slices.ContainsFunc(strings.Split(pattern, "/"), func(part string) bool {
		hidden := strings.HasPrefix(name, ".") && strings.HasPrefix(part, "*")
		if at := strings.IndexByte(part, '['); at >= 0 {
			part = part[:at] + "*" // shells have more forms of [...] than package path
		}
		matched, err := path.Match(part, name)
		return strings.ContainsAny(part, "*?") && !hidden && (matched || err != nil)
	})
}

// names returns the pieces of a word that could be paths: the word, split at characters
// that end an option's name, quote or bracket.
func names(word string) []string {
	return strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("=:,;\"'`|<>(){}[]& \t\n", r) })
}
