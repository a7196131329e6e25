package executor

import (
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/sandbox"
)

// maxPreloadText, in bytes, is the part of a script that is searched for imports. A longer script
// counts as one that searches elsewhere.
const maxPreloadText = 64 << 10

// Bounds on the search for changes of the module path in a skill.
const (
	maxSearchedFiles = 500
	maxSearchedText  = 4 << 20
)

// A preload chooses the Python zygote for an execution whose program is one Python. It reads texts
// only. Its choice changes how soon the program starts, and nothing else, because of Elsewhere: a
// program that might import its own module of a preimported name is executed and not forked
// (sandbox.Python). So in doubt Elsewhere is set.
type preload struct {
	skill      *skill.Skill
	invocation runtime.Invocation
	dir        string // working directory
	modules    bool   // the request has files that a program may import
}

// pythonOf returns the Python zygote for a program, or nil if the program is not exactly one Python.
func pythonOf(grant permission.Grant, invocation runtime.Invocation, req Request) *sandbox.Python {
	source := grant.Source()
	p := preload{skill: grant.Skill(), invocation: invocation, dir: req.Dir, modules: bringsModules(req.inputPaths())}
	switch {
	case source.Kind == permission.Command:
		return p.ofCommand(planOf(grant))
	case invocation.Language != "python":
		return nil
	case source.Kind == permission.Code:
		return p.ofText([]byte(source.Code))
	case source.Kind == permission.Script:
		python, err := p.ofFile(source.Script)
		if err != nil {
			return nil // its start will say why
		}
		return python
	}
	return nil
}

// bringsModules reports whether one of a request's files may be imported by a program. A
// request's files lie in the workspace, from which a script may import.
func bringsModules(paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return strings.HasSuffix(p, ".py") })
}

// pythonName is a program that may be the one Python that the machine has.
var pythonName = lazyregexp.New(`^python(3(\.\d+)?)?$`)

// ofCommand is pythonOf for a line that was checked.
// Options other than -c are left to a started Python: some change how the interpreter initialises,
// which is over in a zygote.
func (p preload) ofCommand(plan permission.Plan) *sandbox.Python {
	if len(plan) != 1 || len(plan[0].Pipeline) != 1 || len(p.invocation.Path)+len(p.invocation.Mounts) > 0 {
		return nil // another PATH may lead to another Python
	}
	args := plan[0].Pipeline[0].Args
	if len(args) < 2 || !pythonName.MatchString(args[0]) {
		return nil
	}
	if args[1] == "-c" && len(args) > 2 {
		return p.ofText([]byte(args[2]))
	}
	if strings.HasPrefix(args[1], "-") {
		return nil
	}
	file := inSkill(p.skill, args[1])
	if !path.IsAbs(args[1]) {
		file = path.Join(p.dir, args[1]) // the workspace shows the skill's files
	}
	if filepath.IsLocal(file) {
		if python, err := p.ofFile(file); err == nil {
			return python
		}
	}
	// The request may bring the file, so its imports are not known.
	return &sandbox.Python{Imports: runtime.CommonPreloads(), Elsewhere: true}
}

// ofText is pythonOf for a text that the request has.
func (p preload) ofText(text []byte) *sandbox.Python {
	return &sandbox.Python{
		Imports:   runtime.Preloads(text[:min(len(text), maxPreloadText)]),
		Elsewhere: len(text) > maxPreloadText || runtime.SearchesElsewhere(text) || p.modules || searchesElsewhere(p.skill),
	}
}

// ofFile is pythonOf for a file of the skill. The file is read once: skill.Derived keeps the result as
// long as the snapshot. The kept result leaves out p.modules, which depends on the request.
func (p preload) ofFile(file string) (*sandbox.Python, error) {
	entry, err := p.skill.Lookup(file)
	if err != nil {
		return nil, err
	}
	type key struct{ path string }
	type found struct {
		imports   []string
		elsewhere bool
	}
	of, err := skill.Derived(p.skill, key{entry.Path}, func() (found, error) {
		text, err := readText(p.skill, entry.Path, maxPreloadText+1)
		return found{
			imports:   runtime.Preloads(text[:min(len(text), maxPreloadText)]),
			elsewhere: len(text) > maxPreloadText || runtime.SearchesElsewhere(text),
		}, err
	})
	if err != nil {
		return nil, err
	}
	return &sandbox.Python{Imports: of.imports, Elsewhere: of.elsewhere || p.modules || searchesElsewhere(p.skill)}, nil
}

// searchesElsewhere reports whether a module of the skill may change the module path. It calls
// runtime.SearchesElsewhere for each module, except for modules of the skill's venv, because Python
// searches the venv after its own modules.
// A snapshot does not change, so Derived keeps the answer for the skill.
func searchesElsewhere(sk *skill.Skill) bool {
	type key struct{}
	elsewhere, _ := skill.Derived(sk, key{}, func() (bool, error) {
		files, left := 0, maxSearchedText
		for entry := range sk.Entries() {
			if entry.Kind == snapshot.KindDir || path.Ext(entry.Path) != ".py" || strings.HasPrefix(entry.Path, "venv/") && runtime.HasVenv(sk) {
				continue
			}
			text, err := readText(sk, entry.Path, left)
			files, left = files+1, left-len(text)
			if err != nil {
				return true, err // not kept: the next execution reads the file again
			}
			if left <= 0 || files > maxSearchedFiles || runtime.SearchesElsewhere(text) {
				return true, nil
			}
		}
		return false, nil
	})
	return elsewhere
}

// readText returns the first bytes of a file of a skill: at most most bytes.
func readText(sk *skill.Skill, file string, most int) ([]byte, error) {
	f, _, err := sk.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)))
}
