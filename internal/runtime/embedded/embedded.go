// Package embedded carries a CPython and its pip as data and unpacks them.
//
// The data add about 45 MB to a program that imports this package. So only
// cmd/skillrun-python imports it: the daemon keeps a copy of its binary in memory.
package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
)

// module is the Go module that has the data.
const module = "github.com/kluctl/go-embed-python"

// layout is the version of Unpack's result. It is part of Name.
const layout = "1"

// moduleVersion matches the module's versions: CPython's version, the build date and a
// count.
var moduleVersion = regexp.MustCompile(`^v0\.0\.0-([0-9]+\.[0-9]+\.[0-9]+-[0-9]+-[0-9]+)$`)

// Name names Unpack's result: "cpython-", the module's version, and a hash of the version,
// the module's checksum and layout. Name reads the program's build information, not the
// data.
func Name() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("embedded Python: this program was built without build information")
	}
	return nameOf(info.Deps)
}

// nameOf is Name for a list of modules. A module without a checksum, such as one from a local
// directory, has no name: two builds could differ under one name.
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
