package environment

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/skill/manifest"
)

// maxMetadata bounds the METADATA of one package, in bytes.
const maxMetadata = runtime.MaxMetadata

// installed are the versions of distributions by their normal names.
type installed map[string]string

// lacks says how the installed packages fail a requirement. An empty text means that they meet
// it.
func (in installed) lacks(r manifest.PythonRequirement) string {
	return lackOf(runtime.Packages{Versions: in}, r)
}

// lackOf returns "" if have meets r, else r as it was written, with the version that was
// found in brackets.
func lackOf(have runtime.Packages, r manifest.PythonRequirement) string {
	found, ok := have.Has(r)
	switch {
	case ok:
		return ""
	case found == "":
		return r.Name + r.Specifier
	}
	return fmt.Sprintf("%s%s (installed: %s)", r.Name, r.Specifier, found)
}

// metadata reads the name and the version of a core metadata file.
func metadata(r io.Reader) (name, version string) { return runtime.PackageMetadata(r) }

// stampOf changes when an entry of one of the directories is added or removed.
func stampOf(dirs []string) string {
	var stamp strings.Builder
	for _, dir := range dirs {
		if fi, err := os.Stat(dir); err == nil {
			fmt.Fprintf(&stamp, "%s %s\n", dir, fi.ModTime().Format(time.RFC3339Nano))
		}
	}
	return stamp.String()
}

// inLibrary reports whether a name is a module of an interpreter's standard library. Such a
// module comes with the interpreter, and no index has it. The result is remembered, because
// every execution asks.
func (s *Store) inLibrary(inv runtime.Invocation, name string) (bool, error) {
	embedded := embeddedRoot(inv)
	key := inv.Python.Version + "\x00" + inv.Image.Digest + "\x00" + embedded + "\x00" + name
	s.mu.Lock()
	is, known := s.library[key]
	s.mu.Unlock()
	if known {
		return is, nil
	}
	// Without the lock, because InLibrary reads directories. Two callers may do it twice and
	// store the same result.
	is, err := runtime.InLibrary(s.rootfs(inv.Image), embedded, inv.Python, name)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.library) >= maxPassed {
		clear(s.library)
	}
	s.library[key] = is
	return is, nil
}
