package executor

import (
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/sandbox"
)

// maxPreloadText is how much of a script is looked through for its imports.
const maxPreloadText = 64 << 10

// Bounds of what is looked through of a skill for where its modules are searched for.
const (
	maxSearchedFiles = 500
	maxSearchedText  = 4 << 20
)

// pythonOf says how an interpreter that is ready may be had for the program, if that is
// one Python and no more; else nil. Whether one is there changes nothing but how soon
// the program starts.
func (e *execution) pythonOf() *sandbox.Python {
	source := e.req.Source
	switch {
	case source.Kind == permission.Command:
		return e.pythonOfCommand(e.grant.Plan())
	case e.invocation.Language != "python":
		return nil
	case source.Kind == permission.Code:
		return e.pythonOfText([]byte(source.Code))
	case source.Kind == permission.Script:
		python, err := e.pythonOfFile(source.Script)
		if err != nil {
			return nil // its start will say why
		}
		return python
	}
	return nil
}

// pythonName is a program that may be the one Python that the machine has.
var pythonName = regexp.MustCompile(`^python(3(\.\d+)?)?$`)

// pythonOfCommand is pythonOf for a line that was checked.
func (e *execution) pythonOfCommand(plan permission.Plan) *sandbox.Python {
	if len(plan) != 1 || len(plan[0].Pipeline) != 1 || len(e.invocation.Path)+len(e.invocation.Mounts) > 0 {
		return nil // a Python that is found by another PATH is another one
	}
	args := plan[0].Pipeline[0].Args
	if len(args) < 2 || !pythonName.MatchString(args[0]) {
		return nil
	}
	if args[1] == "-c" && len(args) > 2 {
		return e.pythonOfText([]byte(args[2]))
	}
	if strings.HasPrefix(args[1], "-") {
		return nil
	}
	file, absolute := strings.CutPrefix(args[1], e.skill.BaseDir()+"/")
	if !absolute {
		file = path.Join(e.req.Dir, args[1]) // the workspace shows the skill's files
	}
	if filepath.IsLocal(file) {
		if python, err := e.pythonOfFile(file); err == nil {
			return python
		}
	}
	// Of a file that the request brings, or that another line made, nothing is known.
	return &sandbox.Python{Imports: runtime.CommonPreloads(), Elsewhere: true}
}

// pythonOfText is pythonOf for a text that the request has.
func (e *execution) pythonOfText(text []byte) *sandbox.Python {
	return &sandbox.Python{
		Imports:   runtime.Preloads(text[:min(len(text), maxPreloadText)]),
		Elsewhere: len(text) > maxPreloadText || runtime.SearchesElsewhere(text) || e.bringsModules() || searchesElsewhere(e.skill),
	}
}

// pythonOfFile is pythonOf for a file of the skill, which is read once.
func (e *execution) pythonOfFile(file string) (*sandbox.Python, error) {
	entry, err := e.skill.Lookup(file)
	if err != nil {
		return nil, err
	}
	type key struct{ path string }
	type found struct {
		imports   []string
		elsewhere bool
	}
	of, err := skill.Derived(e.skill, key{entry.Path}, func() (found, error) {
		text, err := readText(e.skill, entry.Path, maxPreloadText+1)
		return found{
			imports:   runtime.Preloads(text[:min(len(text), maxPreloadText)]),
			elsewhere: len(text) > maxPreloadText || runtime.SearchesElsewhere(text) || searchesElsewhere(e.skill),
		}, err
	})
	if err != nil {
		return nil, err
	}
	return &sandbox.Python{Imports: of.imports, Elsewhere: of.elsewhere || e.bringsModules()}, nil
}

// bringsModules reports whether the request has files that a program may import, of
// which nothing is known.
func (e *execution) bringsModules() bool {
	return slices.ContainsFunc(e.req.Files, func(f Input) bool { return strings.HasSuffix(f.Path, ".py") })
}

// searchesElsewhere reports whether a module of the skill may change where others are
// searched for: runtime.SearchesElsewhere for all of them but those of its venv, which a
// Python finds behind those of its own.
func searchesElsewhere(sk *skill.Skill) bool {
	type key struct{}
	elsewhere, _ := skill.Derived(sk, key{}, func() (bool, error) {
		files, left := 0, maxSearchedText
		for entry := range sk.Entries() {
			if entry.Kind == skill.KindDir || path.Ext(entry.Path) != ".py" || strings.HasPrefix(entry.Path, "venv/") && runtime.HasVenv(sk) {
				continue
			}
			text, err := readText(sk, entry.Path, left)
			files, left = files+1, left-len(text)
			if err != nil || left <= 0 || files > maxSearchedFiles || runtime.SearchesElsewhere(text) {
				return true, nil // of what can't be read nothing is known either
			}
		}
		return false, nil
	})
	return elsewhere
}

// readText is the first bytes of a file of a skill.
func readText(sk *skill.Skill, file string, most int) ([]byte, error) {
	f, _, err := sk.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)))
}
