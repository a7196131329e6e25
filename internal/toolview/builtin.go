package toolview

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// BuiltInSkill is the skill whose folder, empty but for its SKILL.md, is the run
// directory of RunPython without a skill. Its name is outside of the published
// grammar, so no valid skill has it; its root comes first, so no other one gets it.
const BuiltInSkill = "skillrun.run-python"

// builtInManifest keeps the skill out of lists.
const builtInManifest = `---
name: ` + BuiltInSkill + `
description: The empty run directory of the tool RunPython.
disable-model-invocation: true
python: embedded
---

The tool RunPython runs here when its call names no skill.
`

// WriteBuiltIn writes the built-in skill to a folder of its own in dir, which is
// made if need be, and returns that folder: the first root of the registry. A
// folder that is as it should be is not touched.
func WriteBuiltIn(dir string) (root string, err error) {
	root = filepath.Join(dir, "run-python")
	manifest := filepath.Join(root, "SKILL.md")
	want := []byte(builtInManifest)
	if have, err := os.ReadFile(manifest); err == nil && bytes.Equal(have, want) {
		return root, nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	if err := os.WriteFile(manifest+".new", want, 0o600); err != nil {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	if err := os.Rename(manifest+".new", manifest); err != nil {
		return "", fmt.Errorf("built-in skill: %w", err)
	}
	return root, nil
}
