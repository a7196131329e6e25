package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// NodeToolTarget is where the environment of a Node tool is mounted.
const NodeToolTarget = "/opt/npx"

// programsDir has a tool's program under the name by which npx runs it, if the package has given
// it another one.
const programsDir = "bin"

// A NodeTool is the package that a command line of npx names, and the program that it runs.
type NodeTool struct {
	Text    string // as in [manifest.Needs.NodeTools]: eslint@9
	Program string
}

// PrepareNodeTool is PrepareNode for a package whose program the skill's command lines run by npx.
// The zero Environment with a nil error means that the skill has the program without it.
func (s *Store) PrepareNodeTool(ctx context.Context, tenantName string, sk *skill.Skill, tool manifest.Requirement, node Node, rebuild bool, log func([]byte) error) (Environment, error) {
	name, _ := manifest.SplitNodeTool(tool.Text)
	l := &Lease{}
	defer l.Release()
	u := Use{Tenant: tenantName, Skill: sk, Image: node.Image, Node: node}
	if s.addNode(l, u) == nil && s.hasProgram(l, u, NodeTool{tool.Text, path.Base(name)}) {
		return Environment{}, nil
	}
	npm, ok := s.program(node.Image, "npm")
	if !ok {
		return Environment{}, ErrNoNpm
	}
	n := &nodePlan{Node: node, npm: npm, manifest: toolManifest(tool.Text), tool: name}
	return s.prepare(ctx, tenantName, &plan{skill: sk.Name, node: n, key: s.nodeToolKey(tool.Text, node)}, rebuild, log)
}

// toolManifest is the package.json of a tool's environment.
func toolManifest(tool string) []byte {
	name, version := manifest.SplitNodeTool(tool)
	if version == "" {
		version = "latest"
	}
	text, _ := json.Marshal(map[string]any{"dependencies": map[string]string{name: version}}) // can't fail
	return text
}

// nodeToolKey differs from the key of a skill that declares the same package: its environment has
// no programsDir.
func (s *Store) nodeToolKey(tool string, node Node) string {
	return s.nodeKeyOf(node, toolManifest(tool), "tool")
}

// linkProgram makes a tool's program known by the name of its package. npx runs the program of that
// name, or the only one (docs.npmjs.com/cli/commands/npx, "Description").
func (p *plan) linkProgram(dir string) error {
	if p.node.tool == "" {
		return nil
	}
	name := path.Base(p.node.tool)
	programs, err := programsOf(dir)
	if err != nil {
		return err
	}
	if slices.Contains(programs, name) {
		return nil
	}
	own, err := programsOfPackage(dir, p.node.tool)
	if err != nil {
		return &BuildError{Skill: p.skill, Reason: "it can't be used: " + err.Error()}
	}
	own = slices.DeleteFunc(own, func(name string) bool { return !slices.Contains(programs, name) })
	switch len(own) {
	case 0:
		return &BuildError{Skill: p.skill, Reason: fmt.Sprintf("it can't be used: package %s has no program", p.node.tool)}
	case 1:
		at := filepath.Join(dir, programsDir)
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(at, 0o755); err != nil { // whatever the umask
			return err
		}
		return os.Symlink("../node_modules/.bin/"+own[0], filepath.Join(at, name))
	}
	return nil // a command line names one of them, with -p
}

// programsOf lists the programs of all packages of a frozen tree.
func programsOf(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "node_modules/.bin"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// programsOfPackage lists the programs that the package.json of a package names. A single text is
// a program with the package's name.
func programsOfPackage(dir, name string) ([]string, error) {
	text, err := readFile(filepath.Join(dir, "node_modules", name, "package.json"), maxMetadata)
	if err != nil {
		return nil, fmt.Errorf("package %s has no readable package.json", name)
	}
	var p struct {
		Bin map[string]string `json:"bin"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, nil
	}
	return slices.Sorted(maps.Keys(p.Bin)), nil
}

// hasProgram reports whether the skill's own packages, shipped or prepared, have the program of a
// tool. Shipped programs are put on PATH, prepared ones are there. As with npx, a version in the
// command line asks for the package itself.
func (s *Store) hasProgram(l *Lease, u Use, tool NodeTool) bool {
	if _, version := manifest.SplitNodeTool(tool.Text); version != "" {
		return false
	}
	if _, err := u.Skill.Lookup(shippedPrograms + "/" + tool.Program); err == nil {
		l.Path = append([]string{u.Skill.BaseDir() + "/" + shippedPrograms}, l.Path...)
		return true
	}
	for _, m := range l.Mounts {
		if m.Target == NodeTarget {
			_, err := os.Lstat(filepath.Join(m.Source, ".bin", tool.Program))
			return err == nil
		}
	}
	return false
}

// shippedPrograms are the programs of packages that a skill brings, relative to the skill.
const shippedPrograms = "node_modules/.bin"

// addNodeTool adds the environment of a tool to a lease, unless the skill's packages have its
// program. The error is a *PackagesError or a *RequirementError.
func (s *Store) addNodeTool(l *Lease, u Use) error {
	tool := *u.NodeTool
	if s.hasProgram(l, u, tool) {
		return nil
	}
	missing := &PackagesError{Skill: u.Skill.Name, Packages: []string{tool.Text}, Node: u.Node.name()}
	tools := u.Skill.NodeTools()
	at := slices.IndexFunc(tools, func(t manifest.Requirement) bool { return t.Text == tool.Text })
	if at < 0 { // without a version, every version will do
		at = slices.IndexFunc(tools, func(t manifest.Requirement) bool {
			name, _ := manifest.SplitNodeTool(t.Text)
			return name == tool.Text
		})
	}
	if at < 0 {
		missing.Undeclared = true
		return missing
	}
	if u.Node == (Node{}) || u.Node.Image != u.Image {
		return missing
	}
	tool.Text = tools[at].Text
	k, err := s.take(tenantDir(u.Tenant), s.nodeToolKey(tool.Text, u.Node))
	if err != nil {
		return err
	}
	if k == nil {
		return missing
	}
	l.also(func() { s.release(k) })
	for _, dir := range []string{programsDir, "node_modules/.bin"} {
		if _, err := os.Lstat(filepath.Join(k.root(), dir, tool.Program)); err == nil {
			l.Path = append([]string{path.Join(NodeToolTarget, dir)}, l.Path...)
			l.Mounts = append(l.Mounts, runtime.Mount{Source: k.root(), Target: NodeToolTarget})
			return nil
		}
	}
	programs, err := programsOf(k.root())
	if err != nil {
		return err
	}
	return &RequirementError{Text: tool.Text, File: tools[at].File, Line: tools[at].Line,
		Reason: noProgram(tool.Program, programs)}
}
