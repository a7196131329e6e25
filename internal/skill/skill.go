// Package skill knows what a skill is: a folder with a SKILL.md, imported once
// into an immutable snapshot that is named by its digest.
//
// The flow is one way. A Registry finds skill folders in its roots. Each folder
// is read beneath a descriptor (scan.go), which gives a tree: its entries, those
// that are refused, and their digest (tree.go). Its SKILL.md is parsed
// leniently (manifest.go), the tree is copied into the store under its digest
// (store.go), and the result is a Skill, which never changes. Everything that is
// asked of a Skill later (Lookup, Has, Activate, Validate) is answered from memory;
// only Open touches the snapshot.
//
// A folder is input from a stranger: it may be broken, hostile, or changing while
// it is read. A folder that can't be loaded is a Problem; an entry that must not be
// used is Refused, and the rest of its skill works.
package skill

import (
	"path"
	"strings"
	"sync"
)

// Skill is one version of a skill. It is immutable and safe for concurrent use;
// whoever holds one may go on using it after the registry has moved on.
type Skill struct {
	Name   string
	Digest string // "sha256:" and 64 hex digits, see tree.go
	// Manifest is the front matter, Body the text after it with LF line ends.
	Manifest Manifest
	Body     string
	// Dir is the snapshot on the host. Its entries belong to 1000:1000 and must not
	// be changed; the directory above it is open to root only.
	Dir     string
	Scripts []Script // in the order of their paths
	// Warnings is what loading noticed and let pass.
	Warnings []Finding
	Refused  []Refused // in the order of their paths
	// FileCount and SizeBytes count regular files that are not refused.
	FileCount int
	SizeBytes int64

	tree     tree
	needs    needs
	findings []Finding // of strict validation
	derived  sync.Map  // see Derived
}

// BaseDirVar is what a skill writes where it means its own folder.
const BaseDirVar = "{baseDir}"

// baseDirVars are BaseDirVar and the spelling that other agents use for it.
var baseDirVars = []string{BaseDirVar, "${CLAUDE_SKILL_DIR}", "${CLAUDE_PLUGIN_ROOT}"}

// BaseDir is the skill's folder inside every sandbox. A name may hold blanks and
// characters that mean something to a shell: whoever puts the path into a command
// line has to quote it.
func (s *Skill) BaseDir() string { return "/skills/" + s.Name }

// Within makes a path as instructions have it relative to the skill: one that begins
// with {baseDir} or one of its other spellings, or an absolute one that lies beneath
// BaseDir. Any other path stays as it is, and [Skill.Lookup] judges it.
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

// Expand replaces {baseDir}, and its other spellings ${CLAUDE_SKILL_DIR} and
// ${CLAUDE_PLUGIN_ROOT}, by BaseDir.
func (s *Skill) Expand(text string) string {
	for _, v := range baseDirVars {
		text = strings.ReplaceAll(text, v, s.BaseDir())
	}
	return text
}

// EffectiveVersion is the front matter's version, else metadata.version, else
// "0.0.0".
func (s *Skill) EffectiveVersion() string {
	if v := s.Manifest.Version; v != "" {
		return v
	}
	if v := s.Manifest.Metadata["version"]; v != "" {
		return v
	}
	return "0.0.0"
}
