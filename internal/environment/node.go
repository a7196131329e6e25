package environment

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/skillrun/skillrun/internal/environment/download"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/sandbox"
)

//go:embed build.js
var nodeBuildProgram []byte

// NodeTarget is where the prepared Node packages of a skill are mounted. The root of each sandbox
// has a link to it, /node_modules. Node looks for a package in the node_modules of each directory
// above the program (nodejs.org/api/modules.html, "Loading from node_modules folders"), so it finds
// them last: a skill's own node_modules come first.
const NodeTarget = "/opt/node_modules"

// A Node is the Node.js of executions in one root file system. The zero Node stands for a root without
// Node.js.
type Node struct {
	Runtime runtime.Runtime
	Image   runtime.Image
}

func (n Node) name() string {
	name := "node " + n.Runtime.Version
	if n.Image != (runtime.Image{}) {
		name += " in image " + n.Image.Name
	}
	return name
}

// A nodePlan is the part of a plan for npm.
type nodePlan struct {
	Node
	npm      string // in the sandbox
	manifest []byte // a package.json
	lock     []byte // nil: none
	tool     string // the package whose program it is for; empty: a skill's package.json
}

// InstallsNode reports whether a source of Node packages is configured.
func (s *Store) InstallsNode() bool { return s.registry != nil || s.tarballs != nil }

// PrepareNode is Prepare for the packages of a skill's package.json. Its error can be ErrNoRegistry
// or ErrNoNpm, too.
func (s *Store) PrepareNode(ctx context.Context, tenantName string, sk *skill.Skill, node Node, rebuild bool, log func([]byte) error) (Environment, error) {
	p, err := s.nodePlan(sk, node)
	if err != nil {
		return Environment{}, err
	}
	return s.prepare(ctx, tenantName, p, rebuild, log)
}

// nodePlan lists the contents of the environment for a skill's package.json.
// The lock is checked again, although the import of the skill has checked it: npm gets this text.
func (s *Store) nodePlan(sk *skill.Skill, node Node) (*plan, error) {
	needs := sk.Node()
	if needs.Problem.Reason != "" {
		return nil, problemOf(needs)
	}
	n := &nodePlan{Node: node, manifest: needs.Manifest}
	if needs.Lock != "" {
		text, err := readSkillFile(sk, needs.Lock)
		if err != nil {
			return nil, err
		}
		if n.lock, err = manifest.NodeLock(text, needs.Manifest); err != nil {
			return nil, &RequirementError{File: needs.Lock, Reason: err.Error()}
		}
	}
	var ok bool
	if n.npm, ok = s.program(node.Image, "npm"); !ok {
		return nil, ErrNoNpm
	}
	return &plan{skill: sk.Name, node: n, key: s.nodeKey(sk, node)}, nil
}

// problemOf is the error for Node packages that can't be prepared.
func problemOf(needs manifest.NodeNeeds) error {
	return &RequirementError{File: needs.Problem.File, Line: needs.Problem.Line, Reason: needs.Problem.Reason}
}

// program finds a program of an image or of this machine.
func (s *Store) program(image runtime.Image, name string) (string, bool) {
	if image == (runtime.Image{}) {
		return runtime.Program(s.config.Rootfs, name)
	}
	return image.Program(name)
}

func readSkillFile(sk *skill.Skill, name string) ([]byte, error) {
	f, e, err := sk.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, e.Size))
}

// nodeKey is the key of a skill's package.json and lock for a Node.js. Executions compute it, too,
// so it has the lock's digest in the skill's snapshot and not its text. Only the major version of
// Node.js counts: compiled modules work with each minor version (nodejs.org/api/process.html,
// process.versions.modules).
func (s *Store) nodeKey(sk *skill.Skill, node Node) string {
	needs := sk.Node()
	lock := ""
	if e, err := sk.Lookup(needs.Lock); needs.Lock != "" && err == nil {
		lock = e.SHA256
	}
	return s.nodeKeyOf(node, needs.Manifest, lock)
}

func (s *Store) nodeKeyOf(node Node, manifest []byte, lock string) string {
	major, _, _ := strings.Cut(node.Runtime.Version, ".")
	h := sha256.New()
	fmt.Fprintf(h, "skillrun node 1\x00node-%s linux-%s in %s image %s\x00%t\x00%s\x00%s", major, s.machine, path.Dir(node.Runtime.Path), node.Image.Digest, s.config.InstallScripts, manifest, lock)
	return hex.EncodeToString(h.Sum(nil))
}

// inputs are the files that a build of Node packages reads.
// All of them come from the daemon: the skill's own package.json could have scripts and a
// configuration.
func (n *nodePlan) inputs() map[string][]byte {
	files := map[string][]byte{"package.json": n.manifest, "build.js": nodeBuildProgram}
	if n.lock != nil {
		files["package-lock.json"] = n.lock
	}
	return files
}

// nodeSpec is the sandbox of a build with npm.
func (s *Store) nodeSpec(p *plan, inputs string) sandbox.Spec {
	options, _ := json.Marshal([]any{download.RegistryPort, p.node.npm, s.config.InstallScripts}) // can't fail
	spec := s.baseSpec(p, []string{p.node.Runtime.Path, buildTarget + "/build.js", string(options)}, s.config.Wall)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: inputs, Target: buildTarget})
	return spec
}

// completeNode compares the installed packages with the package.json. npm leaves out an optional
// package that doesn't install.
// It guards against an npm that ends well without having installed everything.
func (s *Store) completeNode(p *plan, dir string) error {
	var declared struct {
		Packages    map[string]string `json:"dependencies"`
		Development map[string]string `json:"devDependencies"`
		Optional    map[string]string `json:"optionalDependencies"`
	}
	if err := json.Unmarshal(p.node.manifest, &declared); err != nil {
		return err
	}
	for _, list := range []map[string]string{declared.Packages, declared.Development} {
		for name := range list {
			_, optional := declared.Optional[name]
			if _, err := os.Lstat(filepath.Join(dir, "node_modules", name, "package.json")); err != nil && !optional {
				return &BuildError{Skill: p.skill, Reason: "it can't be used: it lacks " + name}
			}
		}
	}
	return nil
}

// addNode adds the skill's Node packages to a lease: the prepared ones. It adds none if the skill
// brings its packages or needs none. The error is a *PackagesError or a *RequirementError.
// Prepared packages are mounted for every execution of the skill, because shell scripts may start
// Node.js. They are required only if the execution itself runs Node.js.
func (s *Store) addNode(l *Lease, u Use) error {
	needs := u.Skill.Node()
	if needs.File == "" || u.Node == (Node{}) || u.Node.Image != u.Image {
		return nil
	}
	if needs.Problem.Reason == "" {
		k, err := s.take(tenantDir(u.Tenant), s.nodeKey(u.Skill, u.Node))
		if err != nil {
			return err
		}
		if k != nil {
			l.NodeDigest = k.environment.Digest
			l.Path = append(l.Path, NodeTarget+"/.bin")
			l.Mounts = append(l.Mounts, runtime.Mount{Source: filepath.Join(k.root(), "node_modules"), Target: NodeTarget})
			l.also(func() { s.release(k) })
			return nil
		}
	}
	if !u.RunsNode {
		return nil
	}
	missing := s.missingNode(u)
	switch {
	case len(missing) == 0:
		return nil
	case needs.Problem.Reason != "":
		return problemOf(needs)
	}
	return &PackagesError{Skill: u.Skill.Name, Packages: missing, Node: u.Node.name()}
}

// HasNode reports whether a use that runs Node finds the packages of the skill's package.json.
func (s *Store) HasNode(u Use) bool {
	l := &Lease{}
	defer l.Release()
	return s.addNode(l, u) == nil
}

// debianModules are directories in which Debian's Node.js looks for packages of the system.
var debianModules = []string{"usr/share/nodejs", "usr/lib/nodejs", "usr/lib/x86_64-linux-gnu/nodejs", "usr/lib/aarch64-linux-gnu/nodejs"}

// missingNode lists the declared packages that are neither in the skill nor in the system.
func (s *Store) missingNode(u Use) []string {
	needs := u.Skill.Node()
	return slices.DeleteFunc(slices.Clone(needs.Packages), func(name string) bool {
		return u.Skill.ShipsNode(name) || slices.ContainsFunc(debianModules, func(dir string) bool {
			_, err := os.Stat(filepath.Join(s.rootfs(u.Image), dir, name))
			return err == nil
		})
	})
}

// also adds the release of another environment to a lease.
// Releases may be called twice, by an error path and by the end of the execution; each counts once.
func (l *Lease) also(release func()) {
	first := l.release
	l.release = sync.OnceFunc(func() {
		if first != nil {
			first()
		}
		release()
	})
}

// readNodePackages lists the packages of a frozen tree. It reads the copy, as readPackages does. A
// version that a package's package.json lacks is no error: npm has compared it.
func (f *freezer) readNodePackages() error {
	for _, at := range f.manifests {
		text, err := readFile(filepath.Join(f.into, at), maxMetadata)
		if err != nil {
			return &entryError{at, "not a readable file"}
		}
		var p struct{ Name, Version string }
		if json.Unmarshal(text, &p) != nil || manifest.CheckNodePackage(p.Name, p.Version) != nil {
			continue
		}
		entry := p.Name + "==" + p.Version
		if err := f.add(entry, entry); err != nil {
			return err
		}
	}
	if fi, err := os.Lstat(filepath.Join(f.into, "node_modules")); err != nil || !fi.IsDir() {
		return &entryError{"node_modules", "no directory"}
	}
	return nil
}

// nodeManifest matches the package.json of an installed package.
var nodeManifest = lazyregexp.New(`^(?:.*/)?node_modules/(?:@[^/]+/)?[^/@.][^/]*/package\.json$`)
