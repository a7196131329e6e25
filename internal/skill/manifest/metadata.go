package manifest

import (
	"errors"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// requirementHash matches a value of pip's --hash option.
var requirementHash = lazyregexp.New(`^(sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})$`)

// scripts reads the inline metadata (PEP 723) of the skill's Python scripts. It returns an error
// only if a file of the snapshot can't be read; mistakes of an author are findings.
func (n *needsReader) scripts() error {
	// The bound counts all scripts, with and without metadata: each has to be read to know.
	read := 0
	for _, sc := range n.tree.Scripts {
		if sc.Language != "python" {
			continue
		}
		at := n.tree.Resolve(sc.Path)
		if at.Reason != 0 || at.Entry.Kind != snapshot.KindFile {
			continue
		}
		n.File = sc.Path
		if read++; read > maxMetadataScripts {
			n.Warn(0, RuleScriptMetadata, "more than %d scripts: the metadata of the rest is ignored", maxMetadataScripts)
			return nil
		}
		if at.Entry.Size > maxMetadataScript {
			n.Warn(0, RuleScriptMetadata, "is longer than %d bytes: its metadata, if it has any, is ignored", maxMetadataScript)
			continue
		}
		text, err := n.open(at.Entry)
		if err != nil {
			return err
		}
		n.metadata(sc.Path, string(text))
	}
	return nil
}

// metadata reads the metadata block of one script. Other keys of the block, such as [tool],
// belong to other tools and are ignored (PEP 723).
// A clause of requires-python that can't be read drops the whole field: half of a range could
// select an interpreter that the author excludes.
func (n *needsReader) metadata(script, text string) {
	block, first, err := metadataBlock(text)
	n.File = script
	if err != nil {
		n.Error(first, RuleScriptMetadata, "script metadata: %v", err)
		return
	}
	if first == 0 {
		return
	}
	var fields struct {
		Dependencies   []string `toml:"dependencies"`
		RequiresPython string   `toml:"requires-python"`
	}
	if err := toml.Unmarshal([]byte(block), &fields); err != nil {
		line := first
		var where *toml.DecodeError
		if errors.As(err, &where) {
			row, _ := where.Position()
			line += row
		}
		n.Error(line, RuleScriptMetadata, "script metadata: %v", err)
		return
	}
	lines := strings.Split(block, "\n")
	// toml.Unmarshal gives no positions, so the line is searched for.
	lineOf := func(value string) int {
		for i, l := range lines {
			if strings.Contains(l, value) {
				return first + 1 + i
			}
		}
		return first // the text is written with escapes
	}
	for _, dep := range fields.Dependencies {
		// Each search reads the block, so there must not be many in vain.
		if n.full {
			break
		}
		dep = strings.TrimSpace(dep)
		n.add(Requirement{Text: dep, File: script, Line: lineOf(dep), Script: script})
	}
	if v := strings.TrimSpace(fields.RequiresPython); v != "" {
		line := lineOf("requires-python")
		for _, clause := range commas(v) {
			if !versionClause.MatchString(clause) {
				n.Error(line, RuleScriptMetadata, "requires-python: want versions such as >=3.11, not %s", snapshot.Printable(clause))
				return
			}
		}
		n.Versions = append(n.Versions, PythonVersion{Script: script, Specifier: v, Line: line})
	}
}

// metadataBlock finds the block of inline script metadata and the line that opens it, which
// is 0 if the script has no block. All lines of the block are comments. If several of them
// could close the block, the last one does, as PEP 723 says.
func metadataBlock(text string) (block string, first int, err error) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	for i := 0; i < len(lines); i++ {
		if lines[i] != "# /// script" {
			continue
		}
		end, last := i+1, 0
		// PEP 723 ends the block at the first line that is no comment of this form, and "# ///" may
		// be part of its text, for example within a multi-line string of TOML.
		for ; end < len(lines) && (lines[end] == "#" || strings.HasPrefix(lines[end], "# ")); end++ {
			if lines[end] == "# ///" {
				last = end
			}
		}
		if last == 0 {
			return "", i + 1, errors.New("the block is not closed: end it with a line '# ///'")
		}
		if first != 0 {
			return "", i + 1, errors.New("a second block; only one is allowed")
		}
		first = i + 1
		var b strings.Builder
		for _, line := range lines[i+1 : last] {
			b.WriteString(strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
			b.WriteByte('\n')
		}
		if b.Len() > maxMetadataBytes {
			return "", first, errors.New("the block is too long")
		}
		block = b.String()
		i = last
	}
	return block, first, nil
}
