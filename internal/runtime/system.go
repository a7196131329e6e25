package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// DpkgStatus is Debian's list of installed packages, from the root of a file system.
const DpkgStatus = "var/lib/dpkg/status"

// maxStatusLine bounds a line of it.
const maxStatusLine = 1 << 20

var systemNames = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9+._-]*`)

// SystemName is the name in a text such as "jq", "jq>=1.6" or "jq (for JSON)". It is empty if
// the text has no name. Versions are not checked.
func SystemName(text string) string { return systemNames.FindString(strings.TrimSpace(text)) }

// SystemPackages knows which system packages a root file system has. A package counts if it
// is installed, or if an installed package provides it.
type SystemPackages struct {
	root    string
	program func(name string) bool

	// mu guards the fields below and is held while the file is read, so that parallel
	// executions read it once.
	mu   sync.Mutex
	at   time.Time       // of the status file that was read
	have map[string]bool // nil: the machine has no such file
}

// NewSystemPackages returns the packages of a root file system. program reports whether a
// program of that name is on a sandbox's PATH there.
func NewSystemPackages(root string, program func(name string) bool) *SystemPackages {
	return &SystemPackages{root: root, program: program}
}

// Has reports whether a program of that name is on a sandbox's PATH or a package
// of that name is installed. On a machine without dpkg a name that is no program
// can't be judged and counts as there.
func (s *SystemPackages) Has(text string) (bool, error) {
	name := SystemName(text)
	if name == "" {
		return false, nil
	}
	if s.program(name) {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		return false, err
	}
	return s.have == nil || s.have[strings.ToLower(name)], nil
}

// refresh reads the status file again if it has changed.
func (s *SystemPackages) refresh() error {
	f, err := OpenInside(s.root, DpkgStatus)
	if errors.Is(err, fs.ErrNotExist) {
		s.have = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("system packages: %w", err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return fmt.Errorf("system packages: %w", err)
	}
	if s.have != nil && fi.ModTime().Equal(s.at) {
		return nil
	}
	have := map[string]bool{}
	name := ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxStatusLine)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch key {
		case "Package":
			name = strings.TrimSpace(value)
		// The third word is the state: "install ok installed", or "hold ok installed" for a
		// package that is held back (dpkg(1)). Status comes before Provides.
		case "Status":
			if strings.HasSuffix(strings.TrimSpace(value), " installed") {
				have[name] = true
			}
		case "Provides":
			for _, p := range strings.Split(value, ",") {
				if n := SystemName(p); n != "" && have[name] {
					have[n] = true
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("system packages: %w", err)
	}
	s.have, s.at = have, fi.ModTime()
	return nil
}
