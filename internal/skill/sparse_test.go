package skill

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A sparse file of a skill costs no more disk in its snapshot, and has the same content.
func TestSparseFileStaysSparse(t *testing.T) {
	root, dir := skillDir(t, files{})
	const size = 8 << 20
	f, err := os.Create(filepath.Join(dir, "sparse"))
	mustDo(t, err)
	for _, at := range []int64{0, size / 2} {
		_, err := f.WriteAt([]byte("x"), at)
		mustDo(t, err)
	}
	mustDo(t, errors.Join(f.Truncate(size), f.Close()))
	want, err := os.ReadFile(filepath.Join(dir, "sparse"))
	mustDo(t, err)

	r := open(t, RegistryConfig{Roots: Roots(root)})
	skills := r.List()
	if len(skills) != 1 {
		t.Fatalf("%d skills, want 1: %v", len(skills), r.Problems())
	}
	path := filepath.Join(skills[0].Dir, "sparse")
	got, err := os.ReadFile(path)
	mustDo(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes that differ from the %d of the file", len(got), len(want))
	}
	var st unix.Stat_t
	mustDo(t, unix.Stat(path, &st))
	if used := st.Blocks * 512; used > size/4 {
		t.Errorf("the copy takes %d bytes on disk; two blocks of data would do", used)
	}
}
