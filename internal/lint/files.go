package lint

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A program is a file of the skill that is meant to be run, or to be used by one
// that is.
type program struct {
	path       string
	language   string // python, bash, node, ruby, perl, or "" for any other
	executable bool
	text       string // at most maxText bytes
	lines      []string
}

// languages maps the extensions of programs to their languages.
// An empty language means a program that no rule can read. It is listed so that the rules
// about places and interpreters see it.
var languages = map[string]string{
	".py": "python", ".sh": "bash", ".bash": "bash", ".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".mts": "node", ".cts": "node", ".rb": "ruby", ".pl": "perl",
	".bat": "", ".cmd": "", ".ps1": "", ".php": "", ".lua": "", ".r": "", ".go": "", ".zsh": "", ".fish": "", ".jl": "", ".tcl": "", ".awk": "",
}

// read returns the beginning of a file of the skill, valid UTF-8.
// Invalid bytes become U+FFFD, because findings quote the text and protobuf strings must be
// UTF-8.
func (c *check) read(p string, most int64) (string, error) {
	f, _, err := c.skill.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most))
	return strings.ToValidUTF8(string(data), "\ufffd"), err
}

// readPrograms finds the programs of the skill. It skips code of others (packages in the
// skill, virtual environments) and material (templates, examples, tests), because nothing runs
// those unchanged.
func (c *check) readPrograms(ctx context.Context) error {
	for e := range c.skill.Entries() {
		if e.Kind != snapshot.KindFile || isForeign(e.Path) || isMaterial(e.Path) {
			continue
		}
		language, known := languages[strings.ToLower(path.Ext(e.Path))]
		// An unknown extension without the executable bit is data: images, JSON, text.
		if !known && path.Ext(e.Path) != "" && !e.Executable {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		text, err := c.read(e.Path, maxText)
		if err != nil {
			return err
		}
		head := strings.TrimPrefix(text, byteOrderMark)
		// A NUL near the beginning means a compiled program; file(1) judges the same way.
		if !known && !strings.HasPrefix(head, "#!") || strings.Contains(head[:min(len(head), 512)], "\x00") {
			continue
		}
		if !known {
			language = shebangLanguage(head)
		}
		if len(c.programs) == maxPrograms {
			return nil
		}
		c.programs = append(c.programs, program{e.Path, language, e.Executable, text, strings.Split(text, "\n")})
	}
	return nil
}

// isForeign reports whether p lies in what tools put into a skill.
// The skill's author can't mend findings there. Names that begin with a dot are settings of
// editors and version control.
func isForeign(p string) bool {
	return slices.ContainsFunc(strings.Split(p, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") || slices.Contains([]string{"node_modules", "venv", "site-packages", "vendor", "third_party"}, part)
	})
}

// isMaterial reports whether p lies in a directory of things to be copied or read.
// Only directories count: a program named test is a program.
func isMaterial(p string) bool {
	dirs := strings.Split(p, "/")
	return slices.ContainsFunc(dirs[:len(dirs)-1], func(part string) bool {
		return slices.Contains([]string{"assets", "references", "reference", "templates", "template", "examples", "example", "test", "tests", "docs", "evals"}, part)
	})
}

// isMissing reports whether Lookup's error says that there is nothing.
// For any other error there is an entry, so nothing is missing.
func isMissing(err error) bool {
	at, ok := errors.AsType[*snapshot.PathError](err)
	return ok && (at.Reason == snapshot.ReasonNotFound || at.Reason == snapshot.ReasonEscapes)
}
