package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write creates files in dir. The content "-> target" makes a link, "#!..." an executable,
// and a name that ends in / a directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			switch target, link := strings.CutPrefix(text, "-> "); {
			case strings.HasSuffix(name, "/"):
				err = os.MkdirAll(file, 0o755)
			case link:
				err = os.Symlink(target, file)
			case strings.HasPrefix(text, "#!"):
				err = os.WriteFile(file, []byte(text), 0o755)
			default:
				err = os.WriteFile(file, []byte(text), 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// says returns a program that prints text as its version.
func says(text string) string { return "#!/bin/sh\necho '" + text + "'\n" }

// fakeSet discovers interpreters that only print a version.
func fakeSet(t *testing.T, files map[string]string) *Set {
	t.Helper()
	root := t.TempDir()
	write(t, root, files)
	s, err := Discover(t.Context(), Config{Rootfs: root})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// allLanguages returns the files of a root file system with every interpreter.
func allLanguages() map[string]string {
	return map[string]string{
		"usr/bin/python3.11": says("Python 3.11.2"), "usr/bin/python3": "-> python3.11", "usr/bin/bash": says("GNU bash, version 5.2.15(1)-release"),
		"usr/bin/sh": "-> dash", "usr/bin/dash": "#!/bin/sh\necho no such option >&2\nexit 2\n", "usr/bin/node": says("v20.19.2"),
		"usr/bin/ruby": says("ruby 3.1.2p20 (2022-04-12)"), "usr/bin/perl": says("\nThis is perl 5, version 36, subversion 0 (v5.36.0)"),
	}
}
