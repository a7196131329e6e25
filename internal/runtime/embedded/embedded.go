// Package embedded carries a CPython and its pip as data and unpacks them.
//
// The data are some 45 MB of the program that imports it, so only
// cmd/skillrun-python does: the daemon copies its own binary into memory.
package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
)

// module is where the data come from.
const module = "github.com/kluctl/go-embed-python"

// layout is the version of what Unpack makes of the data. It is part of Name.
const layout = "1"

// moduleVersion is how that module spells its versions: CPython's, the date of its
// build and a count.
var moduleVersion = regexp.MustCompile(`^v0\.0\.0-([0-9]+\.[0-9]+\.[0-9]+-[0-9]+-[0-9]+)$`)

// Name names what Unpack makes: cpython-, the version of CPython, and what tells it
// from every other content. It is taken from what the go command recorded in the
// program, so the data need not be read.
func Name() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("embedded Python: this program was built without build information")
	}
	return nameOf(info.Deps)
}

func nameOf(deps []*debug.Module) (string, error) {
	for _, m := range deps {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		version := moduleVersion.FindStringSubmatch(m.Version)
		if version == nil || m.Sum == "" {
			return "", fmt.Errorf("embedded Python: %s %s %q: want a released version with its checksum", m.Path, m.Version, m.Sum)
		}
		sum := sha256.Sum256([]byte(m.Version + " " + m.Sum + " " + layout))
		return "cpython-" + version[1] + "-" + hex.EncodeToString(sum[:6]), nil
	}
	return "", fmt.Errorf("embedded Python: %s is not among this program's modules", module)
}
