package skill

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Limits of a skill that MCP's Skills extension lists: every host must accept a skill up to them.
const (
	MaxListedFiles = 512
	MaxListedBytes = 16 << 20
)

// A Listing is what MCP's Skills extension says of a skill.
type Listing struct {
	// FrontMatter is a JSON object with every field as the author wrote it. name and
	// description are texts in it, and name is the skill's name.
	FrontMatter json.RawMessage
	Description string // in FrontMatter
}

// An UnlistedError says why MCP's Skills extension does not list a skill.
type UnlistedError struct {
	Name   string
	Reason string // the reason and the remedy, without the skill's name
}

func (e *UnlistedError) Error() string { return fmt.Sprintf("skill %s: %s", e.Name, e.Reason) }

// Listing returns the skill's part of the listing over MCP. The error is an *UnlistedError if the
// skill breaks the rules of the Agent Skills specification for its manifest, its name or its
// description, or exceeds the limits of MCP's Skills extension. Such a skill can be used in all
// other ways.
func (s *Skill) Listing() (Listing, error) { return s.listing, s.unlisted }

// Unlisted returns the reason why Listing returns an error, or "".
func (s *Skill) Unlisted() string {
	if e, ok := errors.AsType[*UnlistedError](s.unlisted); ok {
		return e.Reason
	}
	return ""
}

// Files returns the files of a skill that can be listed, with the paths that lead to them. It
// returns at most MaxListedFiles, and none of the skill's virtual environment.
func (s *Skill) Files() []snapshot.File {
	files, _ := s.tree.Files(MaxListedFiles, venvOf(&s.tree))
	return files
}

// Children lists a directory of the skill, see [snapshot.Tree.Children]. The skill's virtual
// environment is left out, as in Files.
func (s *Skill) Children(p, after string, most int) (list []snapshot.Child, next string, err error) {
	list, next, err = s.tree.Children(p, after, most)
	if venv := venvOf(&s.tree); p == "" && venv != "" {
		list = slices.DeleteFunc(list, func(c snapshot.Child) bool { return c.Name == venv })
	}
	return list, next, err
}

// HasVenv reports whether the skill ships a virtual environment.
func (s *Skill) HasVenv() bool { return venvOf(&s.tree) != "" }

// venvConfig makes venv/ of a skill a virtual environment (PEP 405).
const venvConfig = "venv/pyvenv.cfg"

// venvOf returns the path of the virtual environment that a skill ships, or "". It has installed
// packages, thousands of files that scripts run with and agents do not read. They would exceed the
// limits of the extension.
func venvOf(t *snapshot.Tree) string {
	if _, err := t.Lookup(venvConfig); err != nil {
		return ""
	}
	return "venv"
}

// list judges whether MCP's Skills extension may list the skill.
func (r *reading) list() (Listing, error) {
	fail := func(format string, args ...any) (Listing, error) {
		return Listing{}, &UnlistedError{Name: r.doc.Name, Reason: fmt.Sprintf(format, args...)}
	}
	if r.doc.JSON == nil {
		return fail("its frontmatter is too large with its aliases written out, or has a line separator (U+0085, U+2028, U+2029) that parsers read differently; make it simpler")
	}
	for _, f := range r.doc.List {
		switch f.Rule {
		case manifest.RuleByteOrderMark, manifest.RuleFrontMatter, manifest.RuleEncoding, manifest.RuleDuplicateKey:
			return fail("parsers of hosts refuse its manifest, which %s", strings.TrimSuffix(f.Message, ": the last one counts"))
		}
	}
	var fields map[string]json.RawMessage // not a struct: json matches its fields in any case
	if err := json.Unmarshal(r.doc.JSON, &fields); err != nil {
		return fail("its frontmatter is no JSON object: %v", err)
	}
	name, _ := textOf(fields, "name")
	description, isText := textOf(fields, "description")
	switch n := utf8.RuneCountInString(description); {
	case r.doc.File != manifest.Names[0]:
		return fail("its manifest is named %s; rename it to %s", r.doc.File, manifest.Names[0])
	case name != r.doc.Name || !manifest.PublishedName(name):
		return fail("its name must be a text of at most %d lowercase letters, digits and single hyphens; rename it", manifest.MaxNameRunes)
	case !isText || strings.TrimSpace(description) == "":
		return fail("its description must be a text; put it in quotes")
	case n > manifest.MaxDescriptionRunes:
		return fail("its description has %d characters, the maximum is %d; shorten it", n, manifest.MaxDescriptionRunes)
	}
	if why := optionalFields(fields); why != "" {
		return fail("%s", why)
	}
	if err := r.fits(); err != nil {
		return fail("%v", err)
	}
	return Listing{FrontMatter: r.doc.JSON, Description: description}, nil
}

// textOf returns a field of the frontmatter, if it is a text.
func textOf(fields map[string]json.RawMessage, field string) (text string, ok bool) {
	if len(fields[field]) == 0 || fields[field][0] != '"' {
		return "", false
	}
	return text, json.Unmarshal(fields[field], &text) == nil
}

// optionalFields returns the first mistake in fields that the Agent Skills specification describes. The
// official client refuses a whole listing that has one such skill.
func optionalFields(fields map[string]json.RawMessage) string {
	if _, given := fields["compatibility"]; given {
		text, ok := textOf(fields, "compatibility")
		if n := utf8.RuneCountInString(text); !ok || n == 0 || n > manifest.MaxCompatibilityRunes {
			return fmt.Sprintf("its compatibility must be a text of 1 to %d characters; shorten it, or leave it out", manifest.MaxCompatibilityRunes)
		}
	}
	if raw, given := fields["metadata"]; given {
		var values map[string]json.RawMessage
		err := json.Unmarshal(raw, &values)
		for key := range values {
			if _, ok := textOf(values, key); !ok {
				err = errors.New("not a text")
			}
		}
		if err != nil || values == nil {
			return "its metadata must map names to texts; put its values in quotes"
		}
	}
	if _, given := fields["__proto__"]; given {
		return "hosts refuse its field __proto__; remove it"
	}
	return ""
}

// fits checks the limits of the extension.
func (r *reading) fits() error {
	files, ok := r.tree.Files(MaxListedFiles, venvOf(r.tree))
	if !ok {
		return fmt.Errorf("it has more than %d files, or its links multiply them; remove files that agents and scripts do not use", MaxListedFiles)
	}
	var size int64
	for _, f := range files {
		size += f.Entry.Size
	}
	if size > MaxListedBytes {
		return fmt.Errorf("its files have %d bytes, the maximum is %d; remove files that agents and scripts do not use", size, MaxListedBytes)
	}
	return nil
}
