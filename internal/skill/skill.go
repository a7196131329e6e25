package skill

import (
	"path"
	"strings"
	"sync"

	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Skill is one version of a skill. It is immutable and safe for concurrent use. A caller
// may go on using it after the registry has loaded another version.
type Skill struct {
	Name   string // the full name, "namespace/name" in a root with a namespace
	Digest string // "sha256:" and 64 hex digits, see package snapshot
	// Manifest is the front matter. Body is the text after it, with LF line ends.
	Manifest manifest.Manifest
	Body     string
	// Dir is the snapshot's path on the host. Its entries belong to the registry's Owner;
	// nothing may change them. The directory above it is open to the daemon's user only.
	Dir     string
	Scripts []snapshot.Script // sorted by path
	// Warnings are the findings that loading tolerated.
	Warnings []manifest.Finding
	Refused  []snapshot.Refused // sorted by path
	// FileCount and SizeBytes cover the regular files that are not refused.
	FileCount int
	SizeBytes int64

	// Answers Lookup and Has without the disk.
	tree     snapshot.Tree
	needs    manifest.Needs
	listing  Listing
	unlisted error              // an *UnlistedError, or nil
	findings []manifest.Finding // see Validate
	derived  sync.Map           // see Derived
	pushedBy string             // see PushedBy
}

// PushedBy returns the tenant that has pushed the skill. It is empty for a skill of a root.
func (s *Skill) PushedBy() string { return s.pushedBy }

// BareName returns the skill's name without the namespace, which is the name in its front matter.
func (s *Skill) BareName() string {
	_, name := manifest.SplitName(s.Name)
	return name
}

// WorkspaceDir is the directory of every sandbox in which programs start: a copy-on-write
// view of the skill's folder. The skill's scripts run from there.
const WorkspaceDir = "/workspace"

// baseDirVar is the placeholder for the skill's folder in instructions and rules.
const baseDirVar = "{baseDir}"

// baseDirVars are baseDirVar and the spellings of other agents.
var baseDirVars = []string{baseDirVar, "${CLAUDE_SKILL_DIR}", "${CLAUDE_PLUGIN_ROOT}"}

// BaseDir returns the path of the skill's snapshot inside every sandbox, which is read-only. A
// skill's name may have blanks and shell metacharacters, so quote the path in a command line.
func (s *Skill) BaseDir() string { return "/skills/" + s.BareName() }

// Within converts a path from a skill's instructions into one relative to the skill. It
// accepts paths that begin with {baseDir} or another spelling of it, and absolute paths
// beneath BaseDir. Any other path is returned unchanged, for [Skill.Lookup] to judge.
func (s *Skill) Within(p string) string {
	abs := p
	for _, v := range baseDirVars {
		if rest, ok := strings.CutPrefix(p, v); ok && (rest == "" || rest[0] == '/') {
			abs = s.BaseDir() + rest
		}
	}
	if !path.IsAbs(abs) {
		return p
	}
	rest, ok := strings.CutPrefix(path.Clean(abs), s.BaseDir())
	if ok && (rest == "" || rest[0] == '/') {
		return strings.TrimPrefix(rest, "/")
	}
	return abs
}

// Expand replaces {baseDir} and its other spellings, ${CLAUDE_SKILL_DIR} and
// ${CLAUDE_PLUGIN_ROOT}, by BaseDir.
func (s *Skill) Expand(text string) string {
	for _, v := range baseDirVars {
		text = strings.ReplaceAll(text, v, s.BaseDir())
	}
	return text
}

// EffectiveVersion returns the front matter's version, else metadata.version, else "0.0.0".
func (s *Skill) EffectiveVersion() string {
	if v := s.Manifest.Version; v != "" {
		return v
	}
	if v := s.Manifest.Metadata["version"]; v != "" {
		return v
	}
	return "0.0.0"
}
