package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// skillsAnswers is the output of answers.mjs: parts with answers by URI, or by the name of a field.
type skillsAnswers map[string]map[string]any

// skillsAnswersOf runs answers.mjs against a server.
func skillsAnswersOf(t *testing.T, era string, server ...string) skillsAnswers {
	t.Helper()
	var a skillsAnswers
	data := runClient(t, "answers.mjs", append([]string{era}, server...))
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("%v: %s", err, tail(string(data), 1000))
	}
	return a
}

// differences names what two servers answer differently. Of a skill with different entries, only the
// entry counts.
func differences(ours, theirs skillsAnswers) []string {
	var out, roots []string
	compare := func(part string) {
		keys := maps.Clone(ours[part])
		maps.Copy(keys, theirs[part])
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			mine, here := ours[part][key]
			other, there := theirs[part][key]
			line := part + " " + key
			switch {
			case slices.ContainsFunc(roots, func(root string) bool { return key == root || strings.HasPrefix(key, root+"/") }):
				continue
			case !there:
				line += " (skillrun only)"
			case !here:
				line += " (the other only)"
			case reflect.DeepEqual(mine, other):
				continue
			}
			out = append(out, line)
			if root, ok := strings.CutSuffix(key, "/SKILL.md"); ok && part == "entries" {
				roots = append(roots, root)
			}
		}
	}
	compare("entries")
	for _, part := range slices.Sorted(maps.Keys(ours)) {
		if part != "entries" {
			compare(part)
		}
	}
	return out
}

// writePeerSkills adds skills about which servers can disagree.
func writePeerSkills(t *testing.T, dir string) {
	t.Helper()
	many := map[string]string{}
	for i := range 512 {
		many[fmt.Sprintf("f/%03d", i)] = "x"
	}
	writeSkill(t, dir, "too-many", "", many)
	writeSkill(t, dir, "hidden", "disable-model-invocation: true", nil)
	writeSkill(t, dir, "alias", "x-first: &a {k: v}\nx-second: *a", nil)
	writeSkill(t, dir, "folded", "x-quoted: \"one\n  two\"", nil)
	writeSkill(t, dir, "twice", "license: MIT\nlicense: Apache-2.0", nil)
	writeSkill(t, dir, "cached", "", map[string]string{"scripts/__pycache__/a.cpython-311.pyc": "x", "scripts/a.py": "print(1)\n"})
	writeSkill(t, dir, "hollow", "", nil)
	for path, text := range map[string]string{
		"lower/skill.md": "---\nname: lower\ndescription: d\n---\n", "marked/SKILL.md": "\ufeff---\nname: marked\ndescription: d\n---\n",
		"other-name/SKILL.md": "---\nname: another\ndescription: d\n---\n", "group/member/SKILL.md": "---\nname: member\ndescription: d\n---\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, "skills", filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "skills", path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "skills/hollow/assets"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// peerDifferences are the answers in which the two servers differ, with the reason. docs/mcp.md says
// for each who keeps to the specification.
var peerDifferences = map[string]string{
	"entries skill://alias/SKILL.md (skillrun only)":         "the other reads a part of YAML",
	"entries skill://folded/SKILL.md (skillrun only)":        "the other reads a part of YAML",
	"entries skill://another/SKILL.md (skillrun only)":       "its folder on disk has another name",
	"entries skill://linked/SKILL.md (skillrun only)":        "the other refuses a skill with a link",
	"entries skill://group/member/SKILL.md (the other only)": "skillrun needs recursive: true",
	"entries skill://nested/inner/SKILL.md (the other only)": "a skill in a skill",
	"entries skill://hidden/SKILL.md (the other only)":       "disable-model-invocation",
	"entries skill://marked/SKILL.md (the other only)":       "a byte order mark before the front matter",
	"entries skill://too-many/SKILL.md (the other only)":     "513 files",
	"refused skills/get skill://too-many/SKILL.md":           "513 files",
	"entries skill://cached/SKILL.md":                        "skillrun leaves __pycache__ out",
	"entries skill://names/SKILL.md":                         "the other leaves hidden files out, and writes [ and ] in URIs",
	"directory name":                                         "the name of a SKILL.md in its directory",
	"directory ttlMs":                                        "the other's default",
	"get ttlMs":                                              "the other's default",
	"list ttlMs":                                             "the other's default",
	"files skill://bytes/assets/latin1.txt":                  "a text that is not UTF-8",
	"files skill://large/assets/controls.txt":                "a large text with control characters is a blob",
	"files skill://plain/assets/empty":                       "the type of a file without an extension",
	"listed skill:///Not%20Listed/SKILL.md (skillrun only)":  "a resource that is no entry",
	"listed skill://lower/skill.md (skillrun only)":          "a resource that is no entry",
	"listed skill://twice/SKILL.md (skillrun only)":          "a resource that is no entry",
}

// skillrun and the official TypeScript server give the same answers about the same folders, but for
// the differences that are known.
func TestMCPSkillsBesideOfficialServer(t *testing.T) {
	t.Parallel()
	nodeProgram(t)
	dir := newDir(t)
	writeMCPSkills(t, dir)
	addTrickySkills(t, dir)
	writePeerSkills(t, dir)
	d := startDaemonIn(t, dir, "skills: [skills]\n")
	const era = "2026-07-28" // the revision to which the extension belongs
	ours := skillsAnswersOf(t, era, binary(t, "skillrun"), "mcp", "--address", "unix://"+d.dir+"/s.sock")
	theirs := skillsAnswersOf(t, era, nodeProgram(t), clientModule(t, "peer.mjs"), filepath.Join(dir, "skills"))
	if len(ours["entries"]) < 115 || len(theirs["entries"]) < 115 || len(ours["files"]) < 20 {
		t.Fatalf("%d and %d entries, %d files", len(ours["entries"]), len(theirs["entries"]), len(ours["files"]))
	}
	got, want := differences(ours, theirs), slices.Sorted(maps.Keys(peerDifferences))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
