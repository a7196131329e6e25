package manifest

import "time"

// Limits on a SKILL.md. Those on requirements are in requirements.go.
const (
	MaxBytes            = 1 << 20  // bytes of SKILL.md
	MaxFrontMatterBytes = 64 << 10 // bytes of its front matter
	maxYAMLDepth        = 32
	maxYAMLNodes        = 10_000  // each use of an alias counts
	maxYAMLBytes        = 1 << 20 // bytes of scalars; each use of an alias counts
	maxFindings         = 1_000

	MaxNameRunes          = 64
	maxNameBytes          = 255 // NAME_MAX: the name is a directory inside the sandbox
	MaxDescriptionRunes   = 1024
	MaxCompatibilityRunes = 500

	// MaxExecutionTime is the highest max_execution_time that a skill can set.
	MaxExecutionTime = 600 * time.Second
	maxMemoryMB      = 1 << 20 // 1 TiB
	// MinMemoryBytes is the least memory in which a sandbox and a small program can
	// start. With less, the start fails, or only seems to succeed.
	MinMemoryBytes = 8 << 20
)
