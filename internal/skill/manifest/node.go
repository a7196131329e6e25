package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// Bounds of a skill's Node packages.
const (
	maxNodePackages = 1000    // that package.json declares
	maxNodeFile     = 1 << 20 // bytes of a package.json
	maxNodeLock     = 8 << 20 // bytes of a package-lock.json
	maxNodeSpec     = 200     // bytes of one version
	maxNodeName     = 214     // characters (npm's rule for new names)
	maxNodePath     = 4096    // bytes of a package's path in a lock; PATH_MAX
)

// nodeFiles are the files of a skill that may declare Node packages. The first one that declares
// some counts.
var nodeFiles = []string{"package.json", "scripts/package.json"}

// nodeLocks are the names of npm's lock. The first one counts (docs.npmjs.com, npm-shrinkwrap.json).
var nodeLocks = []string{"npm-shrinkwrap.json", "package-lock.json"}

// foreignLocks are the locks of pnpm, yarn and bun. Each has another format, which npm can't read
// as its own lock.
var foreignLocks = []string{"pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"}

// NodeNeeds are the Node packages that a skill declares. The zero NodeNeeds declares none.
type NodeNeeds struct {
	File string // package.json or scripts/package.json; empty: none declares a package
	Lock string // npm's lock in the same directory; empty: no such file
	// Unread is the lock of another program in the same directory, if npm's is not there. Its
	// versions do not count.
	Unread string
	// Manifest is a package.json with the declarations of File alone. Each names a package of the
	// registry, so that npm fetches nothing else.
	Manifest []byte
	// Packages are the names in the field dependencies. Programs of the skill import them. Other
	// fields list packages for development, optional packages, and packages of the skill's host.
	// The list is sorted.
	Packages []string
	// Problem says why the packages can't be prepared. Reason is empty if they can.
	Problem UnreadableRequirement
}

// The fields of package.json that declare packages, each a mapping from names to versions
// (docs.npmjs.com/cli/configuring-npm/package-json).
var nodeFields = []string{"dependencies", "devDependencies", "optionalDependencies", "peerDependencies"}

var (
	nodeName = lazyregexp.New(`^(?:@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*$`)
	// A range of versions, or a tag such as "latest". Whatever has a slash or a colon names
	// another source: a URL, a repository, a file (npm's "package-spec").
	nodeRange = lazyregexp.New(`^[A-Za-z0-9.^~<>=|*+ _-]*$`)
	// npm takes these for a directory and for a file (npm-package-arg, isPosixFile and isFileType).
	nodeFile = lazyregexp.New(`(?i)^ *\.|\.(?:tgz|tar|tar\.gz) *$`)
	// "npm:other@^1": another package of the registry.
	nodeAlias = lazyregexp.New(`^npm:((?:@[^/@]+/)?[^/@]+)(?:@(.*))?$`)
)

// CheckNodePackage reports whether a name and a version are of a package in a registry.
// Versions are checked by their characters, not by npm's grammar: npm itself refuses a bad range.
// The point is that no text leads npm to another place than the configured registry.
func CheckNodePackage(name, version string) error {
	// The bound comes first, because aliases can be nested: npm:a@npm:a@npm:a...
	if len(version) > maxNodeName+maxNodeSpec {
		return fmt.Errorf("package %.80q: its version is longer than %d bytes", name, maxNodeName+maxNodeSpec)
	}
	if !nodeName.MatchString(name) || len(name) > maxNodeName || name == "node_modules" {
		return fmt.Errorf("package %.80q: not a valid name", name)
	}
	if m := nodeAlias.FindStringSubmatch(version); m != nil {
		return CheckNodePackage(m[1], m[2])
	}
	if !nodeRange.MatchString(version) || nodeFile.MatchString(version) || len(version) > maxNodeSpec {
		return fmt.Errorf("package %.80q: %.80q is no version; packages come from the daemon's sources only: "+
			"write a version, such as ^1.2.0, or bring the package in node_modules of the skill", name, version)
	}
	return nil
}

// nodePackages reads the declarations of the first package.json that has some.
// A package.json without packages does not count, because many have only "type": "module".
func (n *needsReader) nodePackages() error {
	for _, name := range nodeFiles {
		at := n.tree.Resolve(name)
		if at.Reason != 0 || at.Entry.Kind != snapshot.KindFile {
			continue
		}
		n.File = name
		if n.Node.File != "" {
			n.Warn(0, RuleNodePackages, "its packages are not prepared: those of %s are", n.Node.File)
			continue
		}
		if at.Entry.Size > maxNodeFile {
			n.refuseNode(name, fmt.Errorf("is %d bytes long, the maximum is %d: it can't be read", at.Entry.Size, maxNodeFile))
			continue
		}
		text, err := n.open(at.Entry)
		if err != nil {
			return err
		}
		node, err := readNode(text)
		if err != nil {
			n.refuseNode(name, err)
			n.Node.Packages = node.Packages
			continue
		}
		if node.Manifest == nil {
			continue
		}
		n.Node, n.Node.File = node, name
		if err := n.nodeLock(path.Dir(name)); err != nil {
			return err
		}
	}
	return nil
}

// firstFile returns the first of the names that is a file in a directory of the skill.
func (n *needsReader) firstFile(dir string, names []string) (string, snapshot.Entry) {
	for _, name := range names {
		at := n.tree.Resolve(path.Join(dir, name))
		if at.Reason == 0 && at.Entry.Kind == snapshot.KindFile {
			return path.Join(dir, name), at.Entry
		}
	}
	return "", snapshot.Entry{}
}

// nodeLock reads the lock in the directory of a package.json.
// The lock is checked here only to report mistakes early. A build reads and checks it again.
func (n *needsReader) nodeLock(dir string) error {
	name, entry := n.firstFile(dir, nodeLocks)
	if name == "" {
		if n.Node.Unread, _ = n.firstFile(dir, foreignLocks); n.Node.Unread != "" {
			n.Warn(0, RuleNodeLock, "%s", UnreadNodeLock(n.Node.Unread))
			return nil
		}
		n.Warn(0, RuleNodeLock, "it has no package-lock.json, so another day gives other versions: run npm install --package-lock-only, and keep the file")
		return nil
	}
	n.File, n.Node.Lock = name, name
	if entry.Size > maxNodeLock {
		n.refuseNode(n.Node.File, fmt.Errorf("%s is %d bytes long, the maximum is %d", name, entry.Size, maxNodeLock))
		return nil
	}
	text, err := n.open(entry)
	if err != nil {
		return err
	}
	if _, err := NodeLock(text, n.Node.Manifest); err != nil {
		n.refuseNode(n.Node.File, err)
	} else if names := installScripts(text); len(names) > 0 {
		n.Warn(0, RuleNodeScripts, "packages with scripts that npm runs when it installs them: %s; skillrun prepare runs these scripts only if the daemon's configuration has environments.install_scripts", strings.Join(names, ", "))
	}
	return nil
}

// maxNamedScripts bounds the names in one finding.
const maxNamedScripts = 10

// installScripts returns the first packages of a lock that NodeLock accepts, by name, whose installation runs a script.
func installScripts(lock []byte) []string {
	var read struct {
		Packages map[string]lockedEntry `json:"packages"`
	}
	_ = json.Unmarshal(bytes.TrimPrefix(lock, []byte("\xef\xbb\xbf")), &read)
	var names []string
	for at, p := range read.Packages {
		// npm reads true only.
		if name, err := lockedName(at); string(p["hasInstallScript"]) == "true" && at != "" && err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) > maxNamedScripts {
		names = append(names[:maxNamedScripts], "...")
	}
	return names
}

// UnreadNodeLock says what the lock of another program means for a build.
func UnreadNodeLock(name string) string {
	return fmt.Sprintf("the versions in %s do not count: npm, which prepares the packages, reads only its own lock, so the ranges in package.json decide, and another day gives other versions; run npm install --package-lock-only, and keep package-lock.json", name)
}

// refuseNode reports why the Node packages of a package.json can't be prepared. It is a warning: scripts may not need
// them, or the skill may bring them. err is about n.File.
func (n *needsReader) refuseNode(file string, err error) {
	line := 0
	if broken, ok := errors.AsType[*jsonError](err); ok {
		line = broken.Line
	}
	n.Warn(line, RuleNodePackages, "%v", err)
	n.Node.Problem = UnreadableRequirement{File: n.File, Line: line, Reason: err.Error()}
	n.Node.File = file
}

// readNode reads a package.json. Manifest is nil if it declares no package.
// Scripts, registries and all other fields of the author's file are left out of Manifest on
// purpose. npm would run scripts while it installs, and ask other registries.
func readNode(text []byte) (NodeNeeds, error) {
	var all map[string]json.RawMessage
	if err := readJSON(text, &all); err != nil {
		return NodeNeeds{}, err
	}
	var node NodeNeeds
	clean := map[string]any{}
	count := 0
	fail := func(format string, args ...any) (NodeNeeds, error) {
		return NodeNeeds{Packages: node.Packages}, fmt.Errorf(format, args...)
	}
	for _, field := range nodeFields {
		packages := map[string]string{}
		if len(all[field]) > 0 {
			if err := json.Unmarshal(all[field], &packages); err != nil {
				return fail("%s is not a mapping from names to versions", field)
			}
		}
		names := slices.Sorted(maps.Keys(packages))
		if field == "dependencies" {
			node.Packages = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return CheckNodePackage(name, "") != nil })
		}
		for _, name := range names {
			if err := CheckNodePackage(name, packages[name]); err != nil {
				return fail("%s: %w", field, err)
			}
		}
		if len(packages) > 0 {
			clean[field] = packages
		}
		if field == "peerDependencies" {
			if optional := optionalPeers(all["peerDependenciesMeta"], packages); len(optional) > 0 {
				clean["peerDependenciesMeta"] = optional
			}
		}
		count += len(packages)
	}
	switch {
	case count == 0:
		return NodeNeeds{}, nil
	case count > maxNodePackages:
		return fail("it declares %d packages, the maximum is %d", count, maxNodePackages)
	case len(all["workspaces"]) > 0:
		return fail("it has workspaces, which can't be prepared")
	}
	if len(all["overrides"]) > 0 {
		var overrides any
		if err := json.Unmarshal(all["overrides"], &overrides); err != nil || !onlyVersions(overrides, 0) {
			return fail("overrides name more than versions; packages come from the daemon's sources only")
		}
		clean["overrides"] = overrides
	}
	var err error
	// Maps are written in the order of their keys, so that equal declarations give equal texts.
	node.Manifest, err = json.Marshal(clean)
	return node, err
}

// optionalPeers returns what the field peerDependenciesMeta says of these packages. npm does not install a peer that
// is optional, and its lock then lacks it.
func optionalPeers(meta json.RawMessage, peers map[string]string) map[string]map[string]json.RawMessage {
	var all map[string]json.RawMessage
	_ = json.Unmarshal(meta, &all) // npm ignores what is no object
	optional := map[string]map[string]json.RawMessage{}
	for name := range peers {
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(all[name], &fields)
		if value, ok := fields["optional"]; ok {
			optional[name] = map[string]json.RawMessage{"optional": value}
		}
	}
	return optional
}

// onlyVersions reports whether all texts of overrides are versions, or references to one that is
// declared ("$name").
// depth bounds the recursion; npm's own examples nest two levels.
func onlyVersions(value any, depth int) bool {
	switch v := value.(type) {
	case string:
		return nodeName.MatchString(strings.TrimPrefix(v, "$")) && strings.HasPrefix(v, "$") || CheckNodePackage("x", v) == nil
	case map[string]any:
		for _, inner := range v {
			if depth > 8 || !onlyVersions(inner, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}

// A lockedEntry is an entry of package-lock.json, by the exact names of its fields. A struct would not do: encoding/json
// takes "Integrity" for "integrity", and npm does not.
type lockedEntry map[string]json.RawMessage

// lockedPackage has the fields of an entry that say where a package comes from
// (docs.npmjs.com/cli/configuring-npm/package-lock-json).
type lockedPackage struct {
	name, version, resolved, integrity string
	link, inBundle                     bool
}

// read reads the fields. The error says that a field has another type.
func (e lockedEntry) read() (p lockedPackage, err error) {
	for name, to := range map[string]any{
		"name": &p.name, "version": &p.version, "resolved": &p.resolved, "integrity": &p.integrity, "link": &p.link, "inBundle": &p.inBundle,
	} {
		if value, ok := e[name]; ok {
			err = errors.Join(err, json.Unmarshal(value, to))
		}
	}
	return p, err
}

// bundles reports whether an entry has a list of packages that come within it.
func (e lockedEntry) bundles() bool {
	var names []string
	value := e["bundleDependencies"]
	return string(value) == "true" || json.Unmarshal(value, &names) == nil && len(names) > 0
}

// within reports whether the package at a path of a lock is below one of these packages.
func within(at string, packages map[string]bool) bool {
	for i := strings.LastIndex(at, "/node_modules/"); i >= 0; i = strings.LastIndex(at, "/node_modules/") {
		if at = at[:i]; packages[at] {
			return true
		}
	}
	return false
}

// lockedFields are the only fields of such an entry that npm gets: without "resolved" it asks the
// registry for the package of that name and version, and compares the integrity.
var lockedFields = []string{
	"name", "version", "integrity", "dev", "optional", "devOptional", "peer", "inBundle", "hasInstallScript", "bin", "engines", "os", "cpu", "libc",
	"dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta", "bundleDependencies",
}

// integrityForm is the form of Subresource Integrity (W3C), one or more hashes with blanks between.
var integrityForm = lazyregexp.New(`^(?:sha(?:1|256|384|512)-[A-Za-z0-9+/]+=*\s*)+$`)

// NodeLock returns a package-lock.json in which each package comes from the registry and has an
// integrity. manifest is NodeNeeds.Manifest. The error names an entry that comes from elsewhere.
func NodeLock(text, manifest []byte) ([]byte, error) {
	var lock struct {
		Version  int                    `json:"lockfileVersion"`
		Packages map[string]lockedEntry `json:"packages"`
	}
	if err := readJSON(text, &lock); err != nil {
		return nil, err
	}
	if lock.Version < 2 || lock.Version > 3 || lock.Packages == nil {
		return nil, fmt.Errorf("the lock has version %d; write it anew with npm 7 or later: npm install --package-lock-only", lock.Version)
	}
	bundlers := map[string]bool{} // without the skill: its own list is not in manifest
	for at, fields := range lock.Packages {
		if at != "" && fields.bundles() {
			bundlers[at] = true
		}
	}
	clean := map[string]any{"": json.RawMessage(manifest)}
	for at, fields := range lock.Packages {
		if at == "" {
			continue
		}
		name, err := lockedName(at)
		if err != nil {
			return nil, err
		}
		if err := checkLocked(at, name, fields, within(at, bundlers)); err != nil {
			return nil, err
		}
		kept := map[string]json.RawMessage{}
		for _, field := range lockedFields {
			if value, ok := fields[field]; ok {
				kept[field] = value
			}
		}
		clean[at] = kept
	}
	return json.Marshal(map[string]any{"name": "skill", "lockfileVersion": lock.Version, "requires": true, "packages": clean})
}

// lockedName returns the name of the package at a path of a lock: "b" of
// "node_modules/a/node_modules/b". All its folders must be names of packages.
func lockedName(at string) (string, error) {
	if len(at) > maxNodePath {
		return "", fmt.Errorf("the lock has a path of %d bytes, the maximum is %d", len(at), maxNodePath)
	}
	name := ""
	for i, part := range strings.Split("/"+at, "/node_modules/") {
		if i == 0 && part != "" || i > 0 && CheckNodePackage(part, "") != nil {
			return "", fmt.Errorf("the lock has %.200q, which is no package of a registry", at)
		}
		name = part
	}
	return name, nil
}

// checkLocked reports an entry of a lock that doesn't come from a registry, or has no integrity to
// compare.
// A link would make npm follow a path of the skill. Sources other than a registry (git, files,
// plain URLs) would be fetched without the daemon's bounds. bundled says that a package above it has a bundle.
func checkLocked(at, name string, fields lockedEntry, bundled bool) error {
	p, err := fields.read()
	if err != nil {
		return fmt.Errorf("the lock's entry %.200q has fields of another type", at)
	}
	if p.name != "" { // an alias
		name = p.name
	}
	switch {
	case p.link || p.version == "" || CheckNodePackage(name, p.version) != nil:
		return fmt.Errorf("the lock's entry %.200q is no version of a package in a registry; "+
			"write a version into package.json, such as ^1.2.0, and the lock anew: npm install --package-lock-only", at)
	case p.inBundle && bundled:
		return nil // it comes within another package
	case p.resolved != "" && !fromRegistry(p.resolved, name):
		return fmt.Errorf("the lock takes %.200q from %.200q; packages come from the daemon's sources only", at, p.resolved)
	case !integrityForm.MatchString(p.integrity):
		return fmt.Errorf("the lock's entry %.200q has no integrity; write the lock anew: npm install --package-lock-only", at)
	}
	return nil
}

// fromRegistry reports whether a URL names the file of a package in a registry. Any registry will do:
// npm takes the file from the daemon's registry and compares its integrity.
func fromRegistry(resolved, name string) bool {
	return (strings.HasPrefix(resolved, "https://") || strings.HasPrefix(resolved, "http://")) &&
		strings.Contains(strings.ReplaceAll(resolved, "%2f", "/"), "/"+name+"/-/") && strings.HasSuffix(resolved, ".tgz")
}
