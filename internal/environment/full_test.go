package environment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/disktest"
	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/runtime"
)

// buildWithoutPip makes builds of a store install the package sk-large. pip would do the same in ten
// times the processor time. It writes into the sandbox's memory, which the disk of this test is not.
func buildWithoutPip(t *testing.T, s *Store) {
	t.Helper()
	const pip, large = "    done = subprocess.run(", `    site = TARGET + "/lib/python%d.%d/site-packages" % sys.version_info[:2]
    info = site + "/sk_large-1.0.dist-info"
    os.makedirs(info)
    with open(site + "/sklarge.py", "w") as f: f.write("TEXT = '" + "x" * (256 << 10) + "'\n")
    with open(info + "/METADATA", "w") as f: f.write("Metadata-Version: 2.1\nName: sk-large\nVersion: 1.0\n")
    return 0
`
	if strings.Count(string(buildProgram), pip) != 1 {
		t.Fatalf("build.py does not have %q once", pip)
	}
	s.runner = []byte(strings.Replace(string(buildProgram), pip, large+pip, 1))
}

// A disk that is full gives an error that says so, whichever file of a build has no room. It
// leaves nothing. After the operator made room, the same store builds the environment.
func TestDiskFullDuringABuild(t *testing.T) {
	t.Parallel()
	sk := newSkill(t, "python_packages: [sk-large]\n", nil)
	disk := hosttest.Dir(t)
	resize := disktest.Mount(t, disk, "mode=711,size=64m,nr_inodes=1000")
	index := newIndex(t)
	s := newStore(t, func(c *Config) { c.Dir = disk + "/environments"; index.from(c) })
	buildWithoutPip(t, s)
	tenantDir := disk + "/environments/acme"
	refused := func(options string) bool {
		resize(options)
		_, log, err := prepare(t, s, "acme", sk, runtime.System)
		if err == nil {
			return false
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: got %v, want a full disk\n%s", options, err, log)
		}
		t.Log(options, err)
		inTenant, err := filepath.Glob(tenantDir + "/[0-9a-f.]*") // all but prepared
		if l := append(leftIn(t, s), inTenant...); err != nil || len(l) > 0 {
			t.Errorf("%s: left behind: %v, %v", options, l, err)
		}
		return true
	}
	// No room for: a copied file, a compiled file; a build's directory, its input, a copied file.
	for _, options := range []string{"nr_inodes=1000,size=64k", "nr_inodes=1000,size=300k", "size=64m,nr_inodes=3", "size=64m,nr_inodes=5", "size=64m,nr_inodes=10"} {
		if !refused(options) {
			t.Errorf("%s: it has room", options)
		}
	}
	// One file more each time: compiled files, the manifest, the tenant's directory and the key.
	const few = 11
	files := few
	for refused(fmt.Sprintf("size=64m,nr_inodes=%d", files)) {
		files++
	}
	if files == few {
		t.Errorf("%d files are enough: the test tries no step after the copy", few)
	}
	entries, err := os.ReadDir(tenantDir)
	if err != nil || len(entries) != 2 {
		t.Errorf("the tenant's directory: %v, %v", entries, err)
	}
	l, err := s.Acquire(useOf("acme", sk, python(t, sk, runtime.System)))
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}
