package snapshot

import (
	"bytes"
	"path"
	"strings"
)

// Script is a program that detection found in a skill. Any regular file can be run; the
// list of scripts is for models.
type Script struct {
	Path        string // relative to the skill
	Language    string // python, bash, sh, node, ruby, perl, batch, powershell, or "" if not known
	Description string // its first comment or docstring, at most 500 characters
}

// languageOf maps a lowercase file extension to its language.
var languageOf = map[string]string{
	".py": "python", ".sh": "bash", ".js": "node", ".mjs": "node", ".cjs": "node", ".ts": "node", ".mts": "node", ".cts": "node",
	".rb": "ruby", ".pl": "perl",
	".bat": "batch", ".cmd": "batch", ".ps1": "powershell",
}

// Runnable reports whether the script's language has an interpreter on Linux.
func (s Script) Runnable() bool { return runnable[s.Language] }

var runnable = map[string]bool{"python": true, "bash": true, "sh": true, "node": true, "ruby": true, "perl": true}

// mayBeScript reports whether detection looks at p. It looks in the skill's root and in
// scripts/ down to maxScriptLevels below it, except in hidden directories, node_modules
// and venv.
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

// detectScript decides by the file's extension, else by its shebang, whether a file is a
// script.
// Text and data files are not. An executable file in scripts/ without extension and shebang
// is a script of unknown language.
func detectScript(p string, executable bool, head []byte) (Script, bool) {
	ext := strings.ToLower(path.Ext(p))
	if strings.HasSuffix(strings.ToLower(p), ".d"+ext) && strings.HasSuffix(ext, "ts") {
		return Script{}, false // declarations of types
	}
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

// ScriptByName returns the script that a file is by its extension, wherever it lies. Detection
// finds fewer: it looks in the skill's root and in scripts/.
func ScriptByName(p string) (Script, bool) { return detectScript(p, false, nil) }

// shebangProgram returns the base name of the program in a first line "#!...". In "#!/usr/bin/env
// PROGRAM" it is PROGRAM. It returns false if the first line is not a shebang.
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

// languageOfProgram maps an interpreter, with or without a version such as python3.11.
func languageOfProgram(name string) string {
	switch base := strings.TrimRight(name, "0123456789."); base {
	case "python", "bash", "node", "ruby", "perl", "sh":
		return base
	case "nodejs":
		return "node"
	case "dash":
		return "sh"
	case "uv", "pipx": // "uv run --script" runs Python
		return "python"
	}
	return ""
}

// scriptHead keeps the first maxScriptHead bytes of a file.
type scriptHead struct{ bytes []byte }

func (h *scriptHead) write(b []byte) {
	h.bytes = append(h.bytes, b[:min(len(b), maxScriptHead-len(h.bytes))]...)
}
