package survey

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// maxLogLine bounds a line of the log, in bytes. Most of a line is a path, of at most 4,096 bytes (PATH_MAX).
const maxLogLine = 1 << 20

// Classes of folders that did not load. A class applies if the error has its text. The texts come from skill.Problem,
// and the first one that matches counts.
var loadErrors = []struct {
	class Class
	text  string
}{
	{"another skill has the name", "is already loaded from"},
	{"a link in place of a folder", "is a link, and links are not followed"},
	{"no SKILL.md", "Missing required file"},
	{"too deep beneath its root", "levels beneath its root"},
	{"too large", "the maximum is"},
	{"it changed while it was read", "changing"},
}

// ReadLog reads the daemon's log, in its JSON form, and calls each for every folder that did not load. Only the log names
// these folders: a client can't list a skill that did not load.
func ReadLog(log io.Reader, each func(Line)) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		var l struct{ Msg, Folder, Err string }
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("the daemon's log is not JSON: %w; set log: {format: json} in its configuration", err)
		}
		if l.Msg != "skill not loaded" {
			continue
		}
		line := Line{Kind: KindSkill, Skill: l.Folder, Class: "its manifest is invalid", Detail: l.Err}
		for _, e := range loadErrors {
			if strings.Contains(l.Err, e.text) {
				line.Class = e.class
				break
			}
		}
		each(line)
	}
	return lines.Err()
}
