package environment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/skillrun/skillrun/internal/environment/download"
	"github.com/skillrun/skillrun/internal/lazyregexp"
)

var (
	npmLine    = lazyregexp.New(`^npm (?:error|ERR!) ?(.*)$`)
	npmMissing = lazyregexp.New(`404 .*GET http://127\.0\.0\.1:[0-9]+/(\S+)`)
	npmRequest = lazyregexp.New(`request to (https?://\S+) failed`)
	// npm's first word on a line, which repeats the code of the error (npm's lib/utils/error-message.js).
	npmLabel = lazyregexp.New(`^(?:notarget|enoent|notsup|nospc|rofs|engine|network|JSON\.parse|40[34]) `)
	// npm warns before it gives up: "tarball data for left@http://127.0.0.1:4873/file/0/left-1.0.0.tgz (sha512-...) seems
	// to be corrupted".
	npmCorrupted = lazyregexp.New(`(?m)^npm (?:warn|WARN) tarball tarball data for (\S+?)@([a-z]+:\S+) \(`)

	npmNoTarget   = lazyregexp.New(`No matching version found for (\S[^@\n]*)@(.+?)\.?(?:\n|$)`)
	npmNoVersions = lazyregexp.New(`No versions available for (\S+)`)
	npmPlatform   = lazyregexp.New(`Unsupported platform for (\S+): wanted (\{.*?\}) \(current: (\{.*?\})\)`)
	npmFound      = lazyregexp.New(`(?m)^Found: (\S+)`)
	npmUnresolved = lazyregexp.New(`(?m)^Could not resolve dependency:\n(?:\w+ )*(\S+)@"(.*?)" from (\S+)`)
	npmNotLocked  = lazyregexp.New(`(?m)^Missing: (\S+) from lock file`)
	npmOtherLock  = lazyregexp.New(`(?m)^Invalid: lock file's (\S+) does not satisfy (\S+)`)
	npmBadTag     = lazyregexp.New(`Invalid tag name "(.*?)" of package "(\S[^@\n]*)@`)
	npmBadName    = lazyregexp.New(`Invalid package name "(.*?)" of package ".*": (.*)`)
	npmOverride   = lazyregexp.New(`Override for (\S[^@\n]*)@(\S+) conflicts with direct dependency`)
	npmReference  = lazyregexp.New(`Unable to resolve reference (\$\S+)`)
	npmScript     = lazyregexp.New(`(?m)^path /workspace/env/(\S+)$`)
	npmCommand    = lazyregexp.New(`(?m)^command sh -c (.*)$`)
)

const sourcesOnly = "; packages come from the daemon's sources only"

// An npmFailure is what npm has said when it failed.
type npmFailure struct {
	code string   // such as ETARGET, or the exit code of an install script
	said []string // lines that are marked as errors, without the mark
	text string   // said as one text
	all  []byte   // the end of the whole output
}

func readNPM(out []byte) npmFailure {
	f := npmFailure{all: out}
	for line := range strings.Lines(string(out)) {
		m := npmLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || m[1] == "" || strings.HasPrefix(m[1], "A complete log") {
			continue
		}
		if code, ok := strings.CutPrefix(m[1], "code "); ok {
			f.code = cmp.Or(f.code, code)
		}
		f.said = append(f.said, m[1])
	}
	f.text = strings.Join(f.said, "\n")
	return f
}

// explainNode says why npm failed. Requests that don't go to the build's server and programs of
// git are a package's own wish for another source.
// npm's messages are for users of npm, and they can choose another registry. Here the reason must name
// a remedy of the skill's author or of the operator.
func (s *Store) explainNode(p *plan, last *tail) error {
	f := readNPM(last.last)
	if m := npmMissing.FindStringSubmatch(f.text); m != nil {
		return &NoPackageError{Name: strings.ReplaceAll(m[1], "%2f", "/"), Source: s.source(p)}
	}
	reason := cmp.Or(f.elsewhere(), f.reason(s.source(p), s.config.MemoryBytes), f.sentence(), last.reason())
	return &BuildError{Skill: p.skill, Reason: "npm: " + clip(reason)}
}

// elsewhere says which place a package needs that is none of the daemon's sources, or is empty.
func (f npmFailure) elsewhere() string {
	if strings.Contains(f.text, "git-is-off") {
		return "a package needs a git repository" + sourcesOnly
	}
	own := fmt.Sprintf("http://127.0.0.1:%d/", download.RegistryPort)
	if m := npmRequest.FindStringSubmatch(f.text); m != nil && !strings.HasPrefix(m[1], own) {
		return fmt.Sprintf("a package needs %.200s", m[1]) + sourcesOnly
	}
	if m := npmCorrupted.FindSubmatch(f.all); m != nil && f.code == "ENOENT" && bytes.HasPrefix(m[2], []byte("file:")) {
		return fmt.Sprintf("a package needs %.200s from %.200s", m[1], m[2]) + sourcesOnly
	}
	return ""
}

// reason says what an error of npm means for the author of a package.json, and what to do. It is empty for other
// errors. source is where packages come from, memory the bound of the build in bytes.
func (f npmFailure) reason(source string, memory int64) string {
	find := func(form *lazyregexp.Regexp) []string { return form.FindStringSubmatch(f.text) }
	switch f.code {
	case "ETARGET":
		if m := find(npmNoTarget); m != nil {
			return fmt.Sprintf("no version of package %s fits %.200s in %s; declare another version, or add one there",
				m[1], m[2], source)
		}
	case "ENOVERSIONS":
		if m := find(npmNoVersions); m != nil {
			return fmt.Sprintf("package %s has no version that can be used in %s; "+
				"declare another package, or add a version there", m[1], source)
		}
	case "EBADPLATFORM":
		if m := find(npmPlatform); m != nil {
			return fmt.Sprintf("package %s is for another platform: it needs %s, and scripts run on %s; "+
				"declare another version, or move the package to optionalDependencies",
				m[1], platformWords(m[2]), platformWords(m[3]))
		}
	case "ERESOLVE":
		found, m := find(npmFound), find(npmUnresolved)
		if found != nil && m != nil {
			return fmt.Sprintf("the packages do not fit together: %s needs %s %s, but there is %s; "+
				"declare versions that fit together", m[3], m[1], m[2], found[1])
		}
	case "EUSAGE":
		return f.lockReason()
	case "EINVALIDTAGNAME":
		if m := find(npmBadTag); m != nil {
			return fmt.Sprintf("package %s: %.80q is no version; write one, such as ^1.2.0", m[2], m[1])
		}
	case "EINVALIDPACKAGENAME":
		if m := find(npmBadName); m != nil {
			return fmt.Sprintf("package %.80q: not a valid name: %s", m[1], m[2])
		}
	case "EOVERRIDE":
		if m := find(npmOverride); m != nil {
			return fmt.Sprintf("overrides has another version of %[1]s than dependencies (%[2]s); "+
				"write the same version, or \"$%[1]s\" in overrides", m[1], m[2])
		}
	case "ENOSPC":
		return fmt.Sprintf("three quarters of environments.memory (%d bytes), in which the packages lie, are full; "+
			"declare fewer or smaller packages, or raise it", memory)
	case "EINTEGRITY":
		if m := npmCorrupted.FindSubmatch(f.all); m != nil {
			file := m[2][bytes.LastIndexByte(m[2], '/')+1:]
			return fmt.Sprintf("a file differs from its integrity: %.200s of package %.200s has another hash than the lock, "+
				"or %s, says; write the lock anew, or replace the file there", file, m[1], source)
		}
		return "a file differs from its integrity: " + f.sentence()
	}
	if m := find(npmReference); m != nil {
		return fmt.Sprintf("overrides: %.200s refers to a package that package.json does not declare", m[1])
	}
	if _, err := strconv.Atoi(f.code); err == nil {
		if m, command := find(npmScript), find(npmCommand); m != nil && command != nil {
			return fmt.Sprintf("the install script of %s failed with exit code %s: %s", m[1], f.code, command[1])
		}
	}
	return ""
}

// lockReason says how a lock differs from its package.json.
func (f npmFailure) lockReason() string {
	var differs []string
	for _, m := range npmNotLocked.FindAllStringSubmatch(f.text, -1) {
		differs = append(differs, "it lacks "+m[1])
	}
	for _, m := range npmOtherLock.FindAllStringSubmatch(f.text, -1) {
		differs = append(differs, "it has "+m[1]+" instead of "+m[2])
	}
	if len(differs) == 0 {
		return "npm can't use the lock; write it anew: npm install --package-lock-only"
	}
	if len(differs) > maxDiffers {
		differs = append(differs[:maxDiffers], "...")
	}
	return fmt.Sprintf("the lock does not fit package.json: %s; write it anew: npm install --package-lock-only",
		strings.Join(differs, ", "))
}

// maxDiffers bounds the differences between a lock and its package.json in one error.
const maxDiffers = 5

// platformWords writes {"os":"linux","cpu":"x64"} as "cpu x64, os linux".
func platformWords(text string) string {
	var fields map[string]string
	if json.Unmarshal([]byte(text), &fields) != nil {
		return text
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		words = append(words, name+" "+fields[name])
	}
	return strings.Join(words, ", ")
}

// sentence is the first line of npm's errors that is a sentence: codes come before it.
func (f npmFailure) sentence() string {
	i := slices.IndexFunc(f.said, func(line string) bool {
		first, _, _ := strings.Cut(line, " ")
		return !slices.Contains([]string{"code", "errno", "syscall", "path", "command", "dest"}, first)
	})
	if i < 0 {
		return ""
	}
	return npmLabel.ReplaceAllString(f.said[i], "")
}
