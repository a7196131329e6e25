package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/survey"
)

// surveySkill is the text of a SKILL.md with command lines of each class.
const surveySkill = "---\nname: good\ndescription: d\n---\n\n```bash\npython scripts/ok.py in.csv\nrm in.csv\ncd scripts && ls\n" +
	"for f in *.csv; do python scripts/ok.py \"$f\"; done\n```\n\n```bash\npython scripts/ok.py <file>\n```\n\n```python\nimport os\n```\n"

// surveyScripts fail for one reason each.
var surveyScripts = map[string]string{
	"ok.py":       "import argparse\nargparse.ArgumentParser().parse_args()\n",
	"package.py":  "import there_is_no_such_package\n",
	"module.py":   "from . import other\n",
	"network.py":  "import urllib.request\nurllib.request.urlopen('http://example.invalid/')\n",
	"usage.sh":    "echo \"usage: usage.sh FILE\" >&2; exit 2\n",
	"own.py":      "raise ValueError('mine')\n",
	"program.sh":  "there-is-no-such-program\n",
	"confined.sh": "touch /usr/x\n",
	"notes.txt":   "not a script\n",
}

// writeSurveyFolders writes folders of skills at several levels: two load, and two more in a namespace.
func writeSurveyFolders(t *testing.T, root string) {
	t.Helper()
	files := map[string]string{
		"one/deep/good/SKILL.md": surveySkill,
		"two/good/SKILL.md":      surveySkill,
		"two/listed/SKILL.md":    "---\nname: listed\ndescription: d\nallowed-tools: Bash(git log:*)\n---\n\n```sh\n$ git log --oneline\ngit push\n```\n",
		"two/broken/SKILL.md":    "no front matter\n",
		"two/README.md":          "not a skill\n",
	}
	for name, text := range surveyScripts {
		files["one/deep/good/scripts/"+name] = text
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("listed", filepath.Join(root, "two/linked")); err != nil {
		t.Fatal(err)
	}
}

// make survey takes folders, also with a namespace. It counts the skills that load, the command lines that are
// allowed and the scripts that run, and each failure by its class.
func TestSurvey(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	writeSurveyFolders(t, dir)
	// Without skillrun-python in its directory, the daemon unpacks no Python.
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	output(t, exec.Command("cp", binary(t, "skillrund"), binary(t, "skillrun"), bin))
	cmd := exec.Command("bash", "../../deploy/survey.sh", "--json", "--timeout=5m", "--", filepath.Join(dir, "one"), filepath.Join(dir, "two"), "again="+filepath.Join(dir, "two"))
	cmd.Env = append(os.Environ(), "SKILLRUN_BIN="+bin)
	lines := strings.Split(strings.TrimSpace(string(output(t, cmd))), "\n")
	var got survey.Report
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("%v: %s", err, lines[len(lines)-1])
	}
	want := survey.Report{
		Skills:   map[survey.Class]int{survey.Loaded: 4, "another skill has the name": 1, "its manifest is invalid": 2, "a link in place of a folder": 2},
		Commands: map[survey.Class]int{survey.Allowed: 3, survey.NotOwnScript: 3, survey.NoRule: 2, survey.ChangesDir: 2, survey.NeedsShell: 2},
		Scripts: map[survey.Class]int{
			survey.Ran: 1, survey.MissingPackage: 1, survey.NotAProgram: 1, survey.NeedsNetwork: 1, survey.UsageError: 1, survey.OwnError: 1,
			survey.MissingProgram: 1, survey.Confined: 1,
		},
		ThroughUs: 1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v\n%s", got, want, strings.Join(lines, "\n"))
	}
	for _, line := range lines[:len(lines)-1] {
		var l survey.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Kind == "" || l.Skill == "" || l.Class == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
}
