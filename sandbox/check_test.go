package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A state directory on overlayfs, as in a container without a volume, is refused before the
// start, whether it exists or not.
func TestCheckStateDir(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(dir, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+dir+"/lower,upperdir="+dir+"/upper,workdir="+dir+"/work"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, 0); err != nil {
			t.Error(err)
		}
	})
	for _, path := range []string{merged, filepath.Join(merged, "not", "yet")} {
		if err := CheckStateDir(path); err == nil || !strings.Contains(err.Error(), merged+" is on overlayfs") {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if err := CheckStateDir(dir); err != nil {
		t.Error(err)
	}
}
