package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// mcpClients is where make puts the packages of testdata/mcpclients.
const mcpClients = "../../.tools/mcpclients"

// nodeProgram returns the Node.js of the packages, with which their programs run.
func nodeProgram(t *testing.T) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	node, err := filepath.Abs(mcpClients + "/node_modules/node-linux-" + cmp.Or(arch, runtime.GOARCH) + "/bin/node")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(node); err != nil {
		t.Skip("the clients of MCP from npm are not installed: run make mcp-clients")
	}
	return node
}

// nodeCommand returns a command that runs a JavaScript program in the directory of the packages.
func nodeCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(nodeProgram(t), args...)
	cmd.Dir = mcpClients
	home := t.TempDir() // the Inspector keeps files there
	cmd.Env = append(os.Environ(), "HOME="+home, "NO_COLOR=1", "PATH="+filepath.Dir(cmd.Path)+":"+os.Getenv("PATH"))
	return cmd
}

// output runs a command and returns its standard output.
func output(t *testing.T, cmd *exec.Cmd) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, tail(stdout.String(), 4000), tail(stderr.String(), 4000))
	}
	return stdout.Bytes()
}

// clientModule returns a copy of a module of testdata/mcpclients from which it finds the packages: a
// module imports packages from above its own file. The path is relative to their directory.
func clientModule(t *testing.T, module string) string {
	t.Helper()
	script, err := os.ReadFile("testdata/mcpclients/" + module)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(mcpClients, "test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, module), script, 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Base(dir), module)
}

// runClient runs a module of testdata/mcpclients, and returns its standard output.
func runClient(t *testing.T, module string, args []string, env ...string) []byte {
	t.Helper()
	cmd := nodeCommand(t)
	cmd.Args = append(append(cmd.Args, clientModule(t, module)), args...)
	cmd.Env = append(cmd.Env, env...)
	return output(t, cmd)
}

// A skillsReport is the output of check.mjs.
type skillsReport struct {
	Entries     []map[string]any
	Files       int
	Directories int
}

// checkSkills runs check.mjs, the official client's skills module, against a server.
func checkSkills(t *testing.T, era string, server ...string) skillsReport {
	t.Helper()
	var r skillsReport
	data := runClient(t, "check.mjs", append([]string{era}, server...))
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%v: %s", err, tail(string(data), 1000))
	}
	return r
}

// writeMCPSkills writes skills that a server of the extension can get wrong.
func writeMCPSkills(t *testing.T, dir string) {
	t.Helper()
	writeSkill(t, dir, "plain", "license: MIT", map[string]string{"references/guide.md": "# Guide\n", "scripts/a.py": "print(1)\n", "assets/empty": ""})
	writeSkill(t, dir, "fields", `compatibility: needs nothing
allowed-tools: Bash(git:*) Read
version: 1.0
released: 2026-09-13
enabled: yes
count: 010
metadata:
  zeta: "1"
  alpha: "a: b # c"
x-deep:
  zeta: [1, two, ~]
  alpha: >
    folded
    text
x-custom: [true, false, 1.5e3, "ünï"]`, nil)
	writeSkill(t, dir, "bytes", "", map[string]string{
		"assets/all.bin": string(slices.Repeat([]byte("\x00\x01\xfe\xff"), 1000)), "assets/latin1.txt": "na\xefve\n", "assets/crlf.txt": "a\r\nb\r\n",
		"assets/mark.txt": "\ufefftext\n", "assets/separators.txt": "a\u2028b\u2029c\n", "assets/controls.txt": "\x01\x02\x7f\n",
	})
	writeSkill(t, dir, "nested", "", map[string]string{
		"inner/SKILL.md": "---\nname: inner\ndescription: A skill in a skill.\n---\n\nInner.\n", "inner/scripts/x.py": "print(2)\n",
	})
}

// addTrickySkills adds skills that only skillrun has to get right.
func addTrickySkills(t *testing.T, dir string) {
	t.Helper()
	writeSkill(t, dir, "names", "", map[string]string{"assets/a b?#%&ü'\"<>.txt": "odd\n", "assets/[x](y).md": "x\n", ".hidden/file": "x\n"})
	writeSkill(t, dir, "large", "", map[string]string{
		"assets/text.txt": strings.Repeat("0123456789abcde\n", 5<<16), "assets/data.bin": strings.Repeat("\x00\xff", 2<<20),
		"assets/controls.txt": strings.Repeat("\x01", 1<<20+1),
	})
	writeSkill(t, dir, "linked", "", map[string]string{"references/guide.md": "# Guide\n"})
	for name, target := range map[string]string{"guide.md": "references/guide.md", "refs": "references", "references/up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, "skills/linked", name)); err != nil {
			t.Fatal(err)
		}
	}
	writeSkill(t, dir, "Not Listed", "name: Not Listed\ndescription: d", nil)
	for i := range 110 {
		writeSkill(t, dir, fmt.Sprintf("many-%03d", i), "", nil)
	}
}

// startWithMCPSkills starts a daemon with all skills of these tests. It skips the test if there
// is no node for the clients.
func startWithMCPSkills(t *testing.T) *running {
	t.Helper()
	nodeProgram(t)
	dir := newDir(t)
	writeMCPSkills(t, dir)
	addTrickySkills(t, dir)
	return startDaemonIn(t, dir, "")
}

// The official TypeScript client's skills module lists, gets, reads and verifies every file, in a
// version of the protocol with sessions and in one without.
func TestMCPSkillsOfficialClient(t *testing.T) {
	t.Parallel()
	d := startWithMCPSkills(t)
	for _, era := range []string{"legacy", "2026-07-28"} {
		t.Run(era, func(t *testing.T) {
			r := checkSkills(t, era, binary(t, "skillrun"), "mcp", "--address", "unix://"+d.dir+"/s.sock")
			listed := map[string]bool{}
			for _, e := range r.Entries {
				listed[e["uri"].(string)] = true
			}
			for _, name := range []string{"plain", "fields", "bytes", "nested", "names", "large", "linked", "many-000", "many-109", "calculator"} {
				if !listed["skill://"+name+"/SKILL.md"] {
					t.Errorf("%s is not listed", name)
				}
			}
			if listed["skill:///Not%20Listed/SKILL.md"] || listed["skill://nested/inner/SKILL.md"] {
				t.Errorf("listed: %v", slices.Sorted(maps.Keys(listed)))
			}
			if r.Files < 130 || r.Directories < 120 {
				t.Errorf("%d files and %d directories", r.Files, r.Directories)
			}
		})
	}
}

// The Inspector's command line finds nothing that breaks the extension.
func TestMCPSkillsInspector(t *testing.T) {
	t.Parallel()
	d := startWithMCPSkills(t)
	inspect := func(args ...string) []byte {
		t.Helper()
		return output(t, nodeCommand(t, slices.Concat([]string{"node_modules/.bin/mcp-inspector", "--cli"},
			[]string{binary(t, "skillrun"), "mcp", "--address", "unix://" + d.dir + "/s.sock"}, args)...))
	}
	verified := 0
	for line := range bytes.Lines(inspect("--method", "skills/list", "--verify", "--require-digests")) {
		var report struct {
			URI, Outcome             string
			Ok                       bool
			Conformance, Frontmatter []map[string]any
			Files                    []struct{ Status string }
		}
		if err := json.Unmarshal(line, &report); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if !report.Ok || len(report.Conformance)+len(report.Frontmatter) > 0 || len(report.Files) == 0 {
			t.Errorf("%s", line)
		}
		verified++
	}
	if verified < 120 {
		t.Errorf("%d skills verified", verified)
	}
	var got struct {
		Resources []struct{ URI, MimeType string }
	}
	if err := json.Unmarshal(inspect("--method", "resources/directory/read", "--uri", "skill://plain"), &got); err != nil || len(got.Resources) != 4 {
		t.Errorf("directory: %+v, %v", got, err)
	}
}

// A host that holds an entry refuses changed and new files until it has asked for the entry again. It
// can load a skill that is not listed.
func TestMCPSkillsChangeOfficialClient(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	dir := newDir(t)
	writeSkill(t, dir, "hidden", "disable-model-invocation: true", nil)
	for _, era := range []string{"legacy", "2026-07-28"} {
		writeSkill(t, dir, "changing-"+era, "", map[string]string{"references/guide.md": "# Guide\n"})
	}
	d := startDaemonIn(t, dir, "skills: [skills]\n")
	for _, era := range []string{"legacy", "2026-07-28"} {
		got := runClient(t, "change.mjs", []string{era, filepath.Join(dir, "skills/changing-"+era), binary(t, "skillrun"), "mcp", "--address", "unix://" + d.dir + "/s.sock"})
		const want = `{"heldChanged":"size","heldNew":"unlisted","heldSame":"verified","freshChanged":"verified","freshNew":"verified",` +
			`"directory":["guide.md","new.md"],"hiddenListed":false,"hidden":"verified"}`
		if string(bytes.TrimSpace(got)) != want {
			t.Errorf("%s: got  %s\nwant %s", era, got, want)
		}
	}
}
