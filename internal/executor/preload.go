package executor

import (
	"io"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
)

// maxPreloadText is how much of a script is looked through for its imports.
const maxPreloadText = 64 << 10

// preloadsOf returns what an interpreter may have imported for the program, if that
// is one Python and no more; else nil. Whether it is there ahead changes nothing but
// how soon it starts.
func (e *execution) preloadsOf() []string {
	source := e.req.Source
	switch {
	case source.Kind == permission.Command:
		return e.preloadsOfCommand(e.grant.Plan())
	case e.invocation.Language != "python":
		return nil
	case source.Kind == permission.Code:
		return runtime.Preloads([]byte(source.Code[:min(len(source.Code), maxPreloadText)]))
	case source.Kind == permission.Script:
		preloads, err := e.preloadsOfFile(source.Script)
		if err != nil {
			return nil // its start will say why
		}
		return preloads
	}
	return nil
}

// pythonName is a program that may be the one Python that the machine has.
var pythonName = regexp.MustCompile(`^python(3(\.\d+)?)?$`)

// preloadsOfCommand is preloadsOf for a line that was checked.
func (e *execution) preloadsOfCommand(plan permission.Plan) []string {
	if len(plan) != 1 || len(plan[0].Pipeline) != 1 || len(e.invocation.Path)+len(e.invocation.Mounts) > 0 {
		return nil // a Python that is found by another PATH is another one
	}
	args := plan[0].Pipeline[0].Args
	if len(args) < 2 || !pythonName.MatchString(args[0]) {
		return nil
	}
	if args[1] == "-c" && len(args) > 2 {
		return runtime.Preloads([]byte(args[2][:min(len(args[2]), maxPreloadText)]))
	}
	if strings.HasPrefix(args[1], "-") {
		return nil
	}
	file, absolute := strings.CutPrefix(args[1], e.skill.BaseDir()+"/")
	if !absolute {
		file = path.Join(e.req.Dir, args[1]) // the workspace shows the skill's files
	}
	if filepath.IsLocal(file) {
		if preloads, err := e.preloadsOfFile(file); err == nil {
			return preloads
		}
	}
	// Of a file that the request brings, or that another line made, nothing is known.
	return runtime.CommonPreloads()
}

// preloadsOfFile is preloadsOf for a file of the skill, which is read once.
func (e *execution) preloadsOfFile(file string) ([]string, error) {
	entry, err := e.skill.Lookup(file)
	if err != nil {
		return nil, err
	}
	type key struct{ path string }
	return skill.Derived(e.skill, key{entry.Path}, func() ([]string, error) {
		f, _, err := e.skill.Open(entry.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, maxPreloadText))
		return runtime.Preloads(text), err
	})
}
