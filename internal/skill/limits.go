package skill

import "time"

// Bounds of what is read from a skill folder. Those of a whole skill can be set,
// see Bounds.
const (
	DefaultMaxFiles = 100_000
	DefaultMaxBytes = 1 << 30

	MaxManifestBytes    = 1 << 20  // SKILL.md as a whole
	MaxFrontMatterBytes = 64 << 10 // its front matter
	maxYAMLDepth        = 32
	maxYAMLNodes        = 10_000  // visited, so each use of an alias counts
	maxYAMLBytes        = 1 << 20 // of scalars, likewise
	maxFindings         = 1_000

	MaxNameRunes          = 64
	maxNameBytes          = 255 // NAME_MAX: the name is a directory inside the sandbox
	maxDescriptionRunes   = 1024
	maxCompatibilityRunes = 500

	maxPathBytes  = 1024 // beneath the skill; leaves room for any prefix within PATH_MAX
	maxPathDepth  = 64   // each level holds a descriptor while it is read
	maxLinks      = 40   // as the kernel, path_resolution(7)
	maxLinkSteps  = 256  // components looked at for one path
	maxRootNames  = 10_000
	maxWatches    = 8192
	scanAttempts  = 3 // reads of a folder that changes meanwhile
	maxScriptHead = 16 << 10

	maxScriptLevels      = 5
	maxDescriptionLines  = 50
	maxScriptDescription = 500

	// MaxExecutionTime is the highest value that max_execution_time can have.
	MaxExecutionTime = 600 * time.Second
	maxMemoryMB      = 1 << 20 // a TiB
	// MinMemoryBytes is the least memory in which a sandbox and a small program
	// start. Below it the start would fail, or only seem to work.
	MinMemoryBytes = 8 << 20
)

// Bounds limits a whole skill. A skill that exceeds one is not loaded.
type Bounds struct {
	MaxFiles int   // entries of every kind; 0: DefaultMaxFiles
	MaxBytes int64 // of regular files; 0: DefaultMaxBytes
}

func (b Bounds) withDefaults() Bounds {
	if b.MaxFiles == 0 {
		b.MaxFiles = DefaultMaxFiles
	}
	if b.MaxBytes == 0 {
		b.MaxBytes = DefaultMaxBytes
	}
	return b
}
