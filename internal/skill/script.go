package skill

import (
	"bytes"
	"path"
	"strings"
)

// Script is a program of a skill that detection found. Any regular file can be
// run; this is the list that a model is shown.
type Script struct {
	Path        string // relative to the skill
	Language    string // python, bash, sh, node, ruby, perl, batch, powershell, or "" if not known
	Description string // its first comment or docstring, at most 500 characters
}

// languageOf is the language that an extension stands for, in lower case.
var languageOf = map[string]string{
	".py": "python", ".sh": "bash", ".js": "node", ".rb": "ruby", ".pl": "perl",
	".bat": "batch", ".cmd": "batch", ".ps1": "powershell",
}

// runnable are the languages that Linux has an interpreter for.
var runnable = map[string]bool{"python": true, "bash": true, "sh": true, "node": true, "ruby": true, "perl": true}

// mayBeScript reports whether a script is looked for at p: in the skill's root, or
// in scripts/ down to 5 levels below it; not in hidden, cache or dependency
// directories.
func mayBeScript(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if strings.HasPrefix(part, ".") || part == "node_modules" || part == "venv" {
			return false
		}
	}
	dir := parent(p)
	if dir == "" {
		return true
	}
	return (dir == "scripts" || strings.HasPrefix(dir, "scripts/")) && strings.Count(dir, "/") <= maxScriptLevels
}

// detectScript judges a file by its name and its first bytes: by the extension,
// else by its shebang. Text and data are no scripts; a file of scripts/ that is
// executable but tells nothing about itself is one of unknown language.
func detectScript(p string, executable bool, head []byte) (Script, bool) {
	ext := strings.ToLower(path.Ext(p))
	language, ok := languageOf[ext]
	if !ok {
		switch ext {
		case ".md", ".txt", ".json", ".yaml", ".yml", ".csv":
			return Script{}, false
		}
		name, shebang := shebangProgram(head)
		if !shebang && (parent(p) == "" || !executable || ext != "") {
			return Script{}, false
		}
		language = languageOfProgram(name)
	}
	sc := Script{Path: p, Language: language}
	if bytes.IndexByte(head, 0) < 0 { // not a binary
		sc.Description = describe(language, head)
	}
	return sc, true
}

// shebangProgram is the name of the program that a first line "#!..." asks for,
// through env or directly.
func shebangProgram(head []byte) (string, bool) {
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return "", false
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return "", true
	}
	if path.Base(words[0]) != "env" {
		return path.Base(words[0]), true
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return path.Base(w), true
		}
	}
	return "", true
}

// languageOfProgram knows interpreters with and without a version, as python3.11.
func languageOfProgram(name string) string {
	switch base := strings.TrimRight(name, "0123456789."); base {
	case "python", "bash", "node", "ruby", "perl", "sh":
		return base
	case "nodejs":
		return "node"
	case "dash":
		return "sh"
	}
	return ""
}

// scriptHead keeps the beginning of a file.
type scriptHead struct{ bytes []byte }

func (h *scriptHead) write(b []byte) {
	h.bytes = append(h.bytes, b[:min(len(b), maxScriptHead-len(h.bytes))]...)
}
