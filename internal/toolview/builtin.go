package toolview

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// BuiltInSkill names the skill whose folder is the run directory of RunPython without a
// skill; the folder has only a SKILL.md. The published grammar does not allow the name,
// so no valid skill has it. Its root comes first, so no other skill replaces it.
const BuiltInSkill = "skillrun.run-python"

// builtInManifest hides the skill from lists.
const builtInManifest = `---
name: ` + BuiltInSkill + `
description: The empty run directory of the tool RunPython.
disable-model-invocation: true
python: embedded
---

The tool RunPython runs here when its call names no skill.
`

// WriteBuiltIn writes the built-in skill to a folder in dir, which it creates if
// needed, and returns that folder: the first root of the registry. It leaves a correct
// folder untouched. The folder's name depends on the text. So in a takeover, a daemon of another release keeps its
// folder.
func WriteBuiltIn(dir string) (root string, err error) {
	want := []byte(builtInManifest)
	// Four bytes of the hash are enough: the names must differ between a few releases.
	sum := sha256.Sum256(want)
	root = filepath.Join(dir, "run-python-"+hex.EncodeToString(sum[:4]))
	manifest := filepath.Join(root, "SKILL.md")
	if have, err := os.ReadFile(manifest); err == nil && bytes.Equal(have, want) {
		return root, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	// Written as another file and then renamed: a crash leaves no half manifest (rename(2)).
	if err := os.WriteFile(manifest+".new", want, 0o600); err != nil {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	if err := os.Rename(manifest+".new", manifest); err != nil {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	return root, nil
}
