package executor

import (
	"io"

	"github.com/skillrun/skillrun/internal/permission"
	"github.com/skillrun/skillrun/internal/runtime"
)

// maxPreloadText is how much of a script is looked through for its imports.
const maxPreloadText = 64 << 10

// preloadsOf returns what an interpreter may have imported for the program, if that
// is one Python and no more; else nil. Whether it is there ahead changes nothing but
// how soon it starts.
func (e *execution) preloadsOf() []string {
	if e.invocation.Language != "python" {
		return nil
	}
	switch e.req.Source.Kind {
	case permission.Code:
		text := e.req.Source.Code
		return runtime.Preloads([]byte(text[:min(len(text), maxPreloadText)]))
	case permission.Script:
		f, _, err := e.skill.Open(e.req.Source.Script)
		if err != nil {
			return nil // its start will say why
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, maxPreloadText))
		if err != nil {
			return nil
		}
		return runtime.Preloads(text)
	}
	return nil
}
