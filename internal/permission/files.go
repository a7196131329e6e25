package permission

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// What a rule names in the workspace has to be what the skill has there. A request
// file, a redirect or another command of the line must not put something else in its
// place: that is checked here, by names. It is not checked what a program writes
// without naming it (tar, unzip): a rule that names {baseDir}/scripts/x.py needs
// none of this, since nothing can write there.

// workspaceDir is where commands run. The workspace shows the skill's files too.
const workspaceDir = "/workspace/"

// RefusesFile says why a request with this grant may not bring the input file name,
// or "". dir is the working directory of the request; both are relative to the workspace.
// Only a command that rules with limits cover is looked at: whoever may send code of
// their own needs no file for it.
func (g Grant) RefusesFile(dir, name string) string {
	if !g.scoped {
		return ""
	}
	if ownedByGit(name) {
		return "git runs what the files in .git say, and the skill's allowed-tools limits what may run: " +
			"send a bundle or an archive that a script of the skill unpacks"
	}
	if slices.Contains(startFiles, path.Base(name)) {
		return "a program that starts beside it runs it, and the skill's allowed-tools limits what may run: give it another name"
	}
	if strings.HasPrefix(name, "scripts/") && g.skill.Has("scripts") {
		return "scripts/ holds the scripts of the skill, and its allowed-tools limits what may run: put the file into another folder"
	}
	for _, c := range g.code {
		if reason := c.refusesFile(g.skill.Has, dir, name); reason != "" {
			return reason
		}
	}
	return ""
}

func (c codeWord) refusesFile(has func(string) bool, dir, name string) string {
	file, ok := c.in(dir)
	if !ok {
		return ""
	}
	// The author means the skill's file, wherever the request starts the command. Code
	// that the skill doesn't have is the caller's own.
	unmoved, _ := c.in("")
	folder := path.Dir(file)
	shipped := c.module || slices.ContainsFunc([]string{file, unmoved, path.Dir(file), path.Dir(unmoved)},
		func(p string) bool { return p != "." && has(p) })
	switch {
	case !shipped:
		return ""
	case name == file:
		return fmt.Sprintf("the command runs %s, which has to be the skill's own: leave working_directory out of the request", excerpt(c.name))
	case folder != "." && !c.module && strings.HasPrefix(name, folder+"/"):
		return fmt.Sprintf("the command runs %s, and programs load files that lie beside it: put the file into another folder", excerpt(c.name))
	case loadable(strings.TrimPrefix(name, folder+"/")):
		return fmt.Sprintf("the command runs %s, which could load the file as code: give it another name, or put it into a folder", excerpt(c.name))
	}
	return ""
}

// in returns the path of the code in the workspace if it is looked for from dir. ok is
// false if it lies elsewhere: in the skill's own folder or the system's.
func (c codeWord) in(dir string) (file string, ok bool) {
	name := c.name
	if c.module {
		name = strings.SplitN(name, ".", 2)[0] + ".py"
	}
	if rest, absolute := strings.CutPrefix(path.Clean(name), workspaceDir); absolute {
		return rest, true
	}
	file = path.Join(dir, name)
	return file, !strings.HasPrefix(name, "/") && file != ".." && !strings.HasPrefix(file, "../")
}

// startFiles are run by R and Octave when they start in their folder, whatever script
// they are given: Startup(R), octave(1).
var startFiles = strings.Fields(".Rprofile .Renviron .octaverc")

// codeSuffixes end the names of files that a program loads as code if they lie beside
// it, or in the folder that it starts in.
var codeSuffixes = strings.Fields(".py .pyc .so .js .mjs .cjs .node .ts .rb .pl .pm .php .lua .sh .class .jar")

// loadable reports whether a program loads the file by its name: a module or a package
// in the folder it looks into, or what Python and node keep of modules.
func loadable(name string) bool {
	parts := strings.Split(name, "/")
	if slices.Contains(parts, "__pycache__") || slices.Contains(parts, "node_modules") {
		return true
	}
	last := parts[len(parts)-1]
	return len(parts) == 1 && slices.Contains(codeSuffixes, strings.ToLower(path.Ext(last))) ||
		len(parts) == 2 && strings.HasPrefix(last, "__init__.")
}

// ownedByGit reports whether a path, or the value of an option, lies in a directory
// named .git, in any case, or .hg.
func ownedByGit(name string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '=' }), func(part string) bool {
		return strings.EqualFold(part, ".git") || strings.EqualFold(part, ".hg")
	})
}

// checkWrite is checkPath for a file that a covered command opens for writing.
func checkWrite(name string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if ownedByGit(name) {
		return fmt.Errorf("git runs what the files in .git say")
	}
	return nil
}

// readers are programs that change no file, whatever their arguments.
var readers = strings.Fields(`cat ls head tail wc file stat chmod test [ grep egrep fgrep find echo printf diff cmp cksum md5sum sha1sum
	sha256sum sha512sum du tree pwd true false sort uniq cut tr nl od basename dirname realpath readlink mkdir which`)

// checkLine says why the commands of a line, each of them covered, may not run in one
// line, or "": one would write what another one runs.
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
		if at, _ := codeAt(covers[i].args); at >= 0 || covers[i].exact || slices.Contains(readers, covers[i].args[0]) {
			continue
		}
		for _, arg := range covers[i].args[1:] {
			if git && covers[i].env == nil && (slices.ContainsFunc(names(arg), ownedByGit) || couldName(arg, ".git")) {
				return fmt.Sprintf("%s of %s: the same line runs git, which runs what the files in .git say", excerpt(arg), excerpt(c.Args[0]))
			}
			if one := replaced(code, arg); one != "" {
				return writesCode(fmt.Sprintf("%s of %s", excerpt(arg), excerpt(c.Args[0])), one)
			}
		}
	}
	return ""
}

func writesCode(what, code string) string {
	return fmt.Sprintf("%s could change %s, which the same line runs: write elsewhere, or have the rule name {baseDir}/%s, which nothing can change",
		what, excerpt(code), path.Clean(strings.TrimPrefix(code, workspaceDir)))
}

// replaced returns the code that a word could name, or its folder, or "". It goes by
// names alone, so it errs towards yes.
func replaced(code []codeWord, word string) string {
	for _, c := range code {
		file, ok := c.in("")
		if !ok {
			continue
		}
		parts := strings.Split(file, "/")
		for _, name := range names(word) {
			if slices.ContainsFunc(strings.Split(name, "/"), func(p string) bool { return slices.Contains(parts, p) }) ||
				path.Dir(file) == "." && loadable(path.Clean(name)) {
				return c.name
			}
		}
		if slices.ContainsFunc(parts, func(part string) bool { return couldName(word, part) }) {
			return c.name
		}
	}
	return ""
}

// couldName reports whether a pattern of file names has a component that matches name.
// As in a shell, a wildcard at its begin matches no dot.
func couldName(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "*?[") {
		return false
	}
	return slices.ContainsFunc(strings.Split(pattern, "/"), func(part string) bool {
		hidden := strings.HasPrefix(name, ".") && strings.HasPrefix(part, "*")
		if at := strings.IndexByte(part, '['); at >= 0 {
			part = part[:at] + "*" // shells know more forms of [...] than package path
		}
		matched, err := path.Match(part, name)
		return strings.ContainsAny(part, "*?") && !hidden && (matched || err != nil)
	})
}

// names returns the pieces of a word that could be paths: all of it, and what stands
// behind an option or between quotes, brackets and blanks.
func names(word string) []string {
	return strings.FieldsFunc(word, func(r rune) bool { return strings.ContainsRune("=:,;\"'`|<>(){}[]& \t\n", r) })
}
