package skill

import "time"

// Manifest is the front matter of a SKILL.md. A field that is absent, null or of
// a type that can't be read as its own has its zero value; in the last case it is
// also kept in Unknown, so that nothing is lost.
type Manifest struct {
	Name        string
	Description string
	License     string
	// Compatibility says in prose what the skill needs.
	Compatibility string
	// Metadata holds what its author added. A value that is no scalar is JSON text.
	Metadata map[string]string
	// AllowedTools are the entries of allowed-tools, split but not interpreted.
	AllowedTools []string
	// HasAllowedTools tells an empty allowed-tools from none at all.
	HasAllowedTools bool

	Version        string
	Author         string
	Tags           []string
	ActivationMode string
	RequiredTools  []string
	OptionalTools  []string
	Model          string
	// Mode says that the skill changes the agent's behaviour and is no task.
	Mode      bool
	WhenToUse string
	// DisableModelInvocation keeps the skill out of what a model is shown.
	DisableModelInvocation bool

	MaxExecutionTime time.Duration // in (0, 600 s]; 0: not given
	MaxMemoryBytes   int64         // 0: not given; max_memory counts MiB
	NetworkAccess    bool
	Python           string // auto, system, embedded; empty: not given
	PythonPackages   []string
	SystemPackages   []string

	// Unknown holds every other field, as nil, bool, float64, string, []any and
	// map[string]any.
	Unknown map[string]any
}

// document is a SKILL.md that was read, and what reading it noticed.
type document struct {
	Manifest
	body     string
	bodyLine int
	// itemLines are the lines of a list's items, by field.
	itemLines map[string][]int
	findings
}

// parseDocument reads a SKILL.md. file is its name in findings, folder the name
// that its skill should have (empty: not checked). What loading can't let pass is
// in document.err; the rest of the document is then as far as it could be read.
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
