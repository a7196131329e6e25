package manifest

import (
	"encoding/json"
	"time"
)

// Names are the accepted names of a manifest, the preferred one first.
var Names = []string{"SKILL.md", "skill.md"}

// Manifest is the front matter of a SKILL.md. An absent or null field has its zero value.
// So has a field whose value has the wrong type; that value is kept in Unknown, so that
// nothing is lost.
type Manifest struct {
	Name        string
	Description string
	License     string
	// Compatibility describes the skill's needs, as prose.
	Compatibility string
	// Metadata holds further fields of the author. A value that is not a scalar is
	// JSON text.
	Metadata map[string]string
	// AllowedTools are the entries of allowed-tools, split but not interpreted.
	AllowedTools []string
	// HasAllowedTools tells an empty allowed-tools from a missing one.
	HasAllowedTools bool

	Version        string
	Author         string
	Tags           []string
	ActivationMode string
	RequiredTools  []string
	OptionalTools  []string
	Model          string
	// Mode says that the skill changes the agent's behaviour instead of doing a task.
	Mode      bool
	WhenToUse string
	// DisableModelInvocation hides the skill from models.
	DisableModelInvocation bool

	MaxExecutionTime time.Duration // in (0, 600 s]; 0: not given
	MaxMemoryBytes   int64         // 0: not given; from max_memory, which is in MiB
	NetworkAccess    bool
	Python           string // auto, system, embedded; empty: not given
	PythonPackages   []string
	SystemPackages   []string

	// Unknown holds all other fields. The values are nil, bool, float64, string, []any
	// and map[string]any.
	Unknown map[string]any
}

// Document is a parsed SKILL.md with the findings of the parser.
type Document struct {
	Manifest
	Body     string // the text after the front matter, with LF line ends
	BodyLine int    // number of its first line, from 1
	// JSON is the front matter as a JSON object, with every field as the author wrote it. It is
	// nil if the file has no front matter (asJSON).
	JSON json.RawMessage
	// itemLines has the lines of each list's items, by the name of the field.
	itemLines map[string][]int
	Findings
}

// Parse reads a SKILL.md. Findings name it as file. folder is the name that the
// skill should have; empty skips that check. If something prevents loading, Document.Err
// returns it, and the Document holds whatever could be read.
func Parse(data []byte, file, folder string) *Document {
	d := &Document{Findings: Findings{File: file}}
	src, ok := splitFrontMatter(data, &d.Findings)
	if !ok {
		return d
	}
	d.Body, d.BodyLine = src.body, src.bodyLine
	root, ok := parseYAML(src, &d.Findings)
	if !ok {
		return d
	}
	d.JSON = asJSON(root, src.yaml)
	r := readFields(root, &d.Findings)
	d.Manifest = r.manifest()
	d.itemLines = r.itemLines
	checkRequired(&d.Manifest, r, folder)
	return d
}

// Validate checks the text of a SKILL.md. folder is the name of its folder; if it is
// empty, the rule that the skill has the folder's name is skipped.
func Validate(skillMD, folder string) []Finding {
	d := Parse([]byte(skillMD), Names[0], folder)
	Sort(d.List)
	return d.List
}
