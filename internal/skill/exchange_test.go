package skill

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/skillrun/skillrun/internal/skill/snapshot"
)

// A folder that was exchanged during the read is read again, also if it is back by then, because an
// installer may have written to it while it was away.
func TestExchangedFolderIsNotTheSame(t *testing.T) {
	at := t.TempDir()
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	f := folder{root: root, relative: "a", path: filepath.Join(at, "a")}
	dir, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var before unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &before); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Still(f.root, f.relative, before); err != nil {
		t.Errorf("untouched: %v", err)
	}
	if err := snapshot.Still(dir, ".", before); err != nil {
		t.Errorf("root as a skill folder: %v", err)
	}
	// The time of a change may be as coarse as the kernel's tick (kernels before 6.13).
	for tick := before.Ctim; tick.Nano() <= before.Ctim.Nano(); {
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &tick); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range [][2]string{{"a", "old"}, {"b", "a"}, {"a", "b"}, {"old", "a"}} {
		if err := os.Rename(filepath.Join(at, step[0]), filepath.Join(at, step[1])); err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Still(f.root, f.relative, before); !errors.Is(err, snapshot.ErrChanging) {
			t.Errorf("after %s became %s: %v, want %v", step[0], step[1], err, snapshot.ErrChanging)
		}
	}
}
