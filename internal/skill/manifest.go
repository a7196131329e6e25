package skill

import "time"

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

// document is a parsed SKILL.md with the findings of the parser.
type document struct {
	Manifest
	body     string
	bodyLine int
	// itemLines has the lines of each list's items, by the name of the field.
	itemLines map[string][]int
	findings
}

// parseDocument reads a SKILL.md. Findings name it as file. folder is the name that the
// skill should have; empty skips that check. If something prevents loading, document.err
// returns it, and the document holds whatever could be read.
func parseDocument(data []byte, file, folder string) *document {
	d := &document{findings: findings{file: file}}
	src, ok := splitFrontMatter(data, &d.findings)
	if !ok {
		return d
	}
	d.body, d.bodyLine = src.body, src.bodyLine
	root, ok := parseYAML(src, &d.findings)
	if !ok {
		return d
	}
	r := readFields(root, &d.findings)
	d.Manifest = r.manifest()
	d.itemLines = r.itemLines
	checkRequired(&d.Manifest, r, folder)
	return d
}
