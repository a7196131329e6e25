package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

const twoNamespaces = "skills: [{path: one, namespace: one}, {path: two, namespace: two, recursive: true}]\n"

// writeNamespaces writes a skill hello to two roots, and a skill only to the second.
func writeNamespaces(t *testing.T, dir string) {
	t.Helper()
	for path, name := range map[string]string{"one/hello": "hello", "two/deep/hello": "hello", "two/only": "only"} {
		at := filepath.Join(dir, path)
		script := "import os\nprint('" + path + "', os.environ['SKILL_NAME'], os.path.exists('/skills/" + name + "/SKILL.md'), open('in.txt').read() if os.path.exists('in.txt') else '')\n"
		if err := errors.Join(os.MkdirAll(filepath.Join(at, "scripts"), 0o755), os.WriteFile(filepath.Join(at, "scripts/x.py"), []byte(script), 0o644),
			os.WriteFile(filepath.Join(at, "SKILL.md"), []byte("---\nname: "+name+"\ndescription: A skill of "+path+".\n---\n\nText.\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// Skills of roots with namespaces run by their full name, and by their name while it is unique. Scripts
// see the paths and the name that every skill has.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeNamespaces(t, dir)
	d := startDaemonIn(t, dir, twoNamespaces)
	d.run(script("one/hello", "scripts/x.py")).wantStdout(t, "one/hello hello True \n")
	d.run(script("two/hello", "scripts/x.py")).wantStdout(t, "two/deep/hello hello True \n")
	r := d.run(script("only", "scripts/x.py"))
	r.wantStdout(t, "two/only only True \n")
	if r.header.Skill != "two/only" {
		t.Errorf("the header has %q", r.header.Skill)
	}
	request := script("one/hello", "scripts/x.py")
	request.Files = []*pb.InputFile{{Path: "in.txt", Source: &pb.InputFile_Uri{Uri: "skill://two/only/SKILL.md"}}}
	if got := d.run(request).stdout.String(); !strings.Contains(got, "A skill of two/only.") {
		t.Errorf("a file of another namespace: %s", got)
	}
	_, err := d.try(script("hello", "scripts/x.py"))
	wantStatus(t, err, "InvalidArgument", "AMBIGUOUS_SKILL_NAME")
	if !strings.Contains(err.Error(), "one/hello, two/hello") {
		t.Errorf("no candidates: %v", err)
	}
	_, err = d.try(script("one/only", "scripts/x.py"))
	wantStatus(t, err, "NotFound", "SKILL_NOT_FOUND")
	_, err = d.try(script("three/hello", "scripts/x.py"))
	wantStatus(t, err, "InvalidArgument", "INVALID_SKILL_NAME")

	list, err := d.skills.ListSkills(t.Context(), &pb.ListSkillsRequest{})
	var names []string
	for _, s := range list.GetSkills() {
		names = append(names, s.Name)
	}
	if want := []string{"one/hello", "two/hello", "two/only"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("skills %v, %v", names, err)
	}
	// Records have the full name. A request for them may have the name.
	for _, skill := range []string{"two/only", "only"} {
		if l, err := d.runs.ListExecutions(t.Context(), &pb.ListExecutionsRequest{Skill: skill}); err != nil || len(l.Executions) != 1 || l.Executions[0].Skill != "two/only" {
			t.Errorf("executions of %s: %v, %v", skill, l, err)
		}
	}
}

// The command line takes full names.
func TestNamespacesByTheClient(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeNamespaces(t, dir)
	d := startDaemonIn(t, dir, twoNamespaces)
	for _, c := range []struct{ args, want string }{
		{"run two/hello scripts/x.py", "two/deep/hello hello True \n"},
		{"run only scripts/x.py", "two/only only True \n"},
		{"skills", "two/only "},
		{"skills two/hello", "A skill of two/deep/hello."},
		{"validate two/hello", "two/hello: valid"},
		{"ps --all --skill only", "two/only"},
		{"activate two/only", "Text."},
	} {
		if out, err := d.cli(strings.Fields(c.args)...).CombinedOutput(); err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("skillrun %s: %v\n%s", c.args, err, out)
		}
	}
	out, err := d.cli("run", "hello", "scripts/x.py").CombinedOutput()
	if want := `"hello" is the name of several skills; use one of one/hello, two/hello (AMBIGUOUS_SKILL_NAME)`; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("a name of two skills: %v\n%s", err, out)
	}
}

// The official client reads and verifies skills of namespaces, also two of the same name.
func TestMCPNamespacesOfficialClient(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	dir := newDir(t)
	writeNamespaces(t, dir)
	d := startDaemonIn(t, dir, twoNamespaces)
	r := checkSkills(t, "2026-07-28", binary(t, "skillrun"), "mcp", "--address", "unix://"+d.dir+"/s.sock")
	var listed []string
	for _, e := range r.Entries {
		listed = append(listed, e["uri"].(string))
	}
	if want := []string{"skill://one/hello/SKILL.md", "skill://two/hello/SKILL.md", "skill://two/only/SKILL.md"}; !slices.Equal(listed, want) || r.Files != 6 {
		t.Errorf("listed %v with %d files", listed, r.Files)
	}
}
