package skill

import "time"

// Limits on reading a skill folder. [Bounds] can change the first two.
const (
	DefaultMaxFiles = 100_000
	DefaultMaxBytes = 1 << 30

	MaxManifestBytes    = 1 << 20  // bytes of SKILL.md
	MaxFrontMatterBytes = 64 << 10 // bytes of its front matter
	maxYAMLDepth        = 32
	maxYAMLNodes        = 10_000  // each use of an alias counts
	maxYAMLBytes        = 1 << 20 // bytes of scalars; each use of an alias counts
	maxFindings         = 1_000

	MaxNameRunes          = 64
	maxNameBytes          = 255 // NAME_MAX: the name is a directory inside the sandbox
	maxDescriptionRunes   = 1024
	maxCompatibilityRunes = 500

	maxPathBytes  = 1024 // beneath the skill; leaves room for any prefix within PATH_MAX
	maxPathDepth  = 64   // reading holds one open descriptor for each level
	maxLinks      = 40   // the kernel's limit, see path_resolution(7)
	maxLinkSteps  = 256  // components followed for one path
	maxRootNames  = 10_000
	maxWatches    = 8192
	scanAttempts  = 3        // attempts at a folder that changes during the read
	maxScriptHead = 16 << 10 // bytes that detection and description see

	maxScriptLevels      = 5 // folders beneath scripts/
	maxDescriptionLines  = 50
	maxScriptDescription = 500 // characters

	// MaxExecutionTime is the highest max_execution_time that a skill can set.
	MaxExecutionTime = 600 * time.Second
	maxMemoryMB      = 1 << 20 // 1 TiB
	// MinMemoryBytes is the least memory in which a sandbox and a small program can
	// start. With less, the start fails, or only seems to succeed.
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
