package snapshot

import "math"

// Limits on reading a skill folder. [Bounds] can change the first two.
const (
	DefaultMaxFiles = 100_000
	DefaultMaxBytes = 1 << 30

	MaxPathBytes  = 1024     // beneath the skill; leaves room for any prefix within PATH_MAX
	MaxPathDepth  = 64       // reading holds one open descriptor for each level
	maxLinks      = 40       // the kernel's limit, see path_resolution(7)
	maxLinkSteps  = 256      // components followed for one path
	maxScriptHead = 16 << 10 // bytes that detection and description see

	// maxListed bounds the entries that Children and Files look at. Directories that link to each
	// other can have far more paths than entries.
	maxListed = 16 << 10

	// NameBytes is minNameBytes, or nameBytes for each entry that a skill may have. Paths of packages have about 80 bytes.
	minNameBytes = 16 << 20
	nameBytes    = 256

	maxScriptLevels      = 5 // folders beneath scripts/
	maxDescriptionLines  = 50
	maxScriptDescription = 500 // characters
)

// Bounds limits a whole skill. A skill that exceeds one is not loaded.
type Bounds struct {
	MaxFiles int   // entries of every kind; 0: DefaultMaxFiles
	MaxBytes int64 // of regular files; 0: DefaultMaxBytes
}

// NameBytes bounds the paths of all entries and the targets of all links together. They stay in memory while the
// skill is loaded, and no other bound counts them.
func (b Bounds) NameBytes() int64 {
	return max(minNameBytes, nameBytes*min(int64(b.WithDefaults().MaxFiles), math.MaxInt64/nameBytes))
}

// WithDefaults replaces zeros.
func (b Bounds) WithDefaults() Bounds {
	if b.MaxFiles == 0 {
		b.MaxFiles = DefaultMaxFiles
	}
	if b.MaxBytes == 0 {
		b.MaxBytes = DefaultMaxBytes
	}
	return b
}
