package pyzygote

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

// Dir is the directory of the fork server in the root file system of Python zygotes. They
// have it as their PYTHONPATH, so that Python runs its sitecustomize.py at the start.
const Dir = "/opt/skillrun/forkserver"

//go:embed program/*.py program/forkserver/*.py
var program embed.FS

// Files returns the fork server: the text of each file by its path beneath Dir.
func Files() map[string]string {
	files := map[string]string{}
	err := fs.WalkDir(program, "program", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := program.ReadFile(path)
		files[strings.TrimPrefix(path, "program/")] = string(text)
		return err
	})
	if err != nil {
		panic(err) // an embedded file can't be unreadable
	}
	return files
}

// modules are the modules that a zygote may import. zygote.py holds the list, and refuses
// any other module, too.
var modules = func() []string {
	_, text, _ := strings.Cut(Files()["forkserver/zygote.py"], "\nMODULES = \"\"\"")
	text, _, _ = strings.Cut(text, `"""`)
	return strings.Fields(text)
}()

// Modules returns the modules that a Python zygote may import.
func Modules() []string { return slices.Clone(modules) }
