package workspace

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A deep path costs a few system calls for each directory, not for each component of each directory's path. Allocations
// stand for them: os.Root allocates for each component.
func TestDeepInputsAreCheap(t *testing.T) {
	const depth = 1000
	in := []Input{{Path: strings.Repeat("a/", depth) + "x", Content: []byte("x")}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w, err := Stage(filepath.Join(t.TempDir(), "w"), Owner{UID: os.Getuid(), GID: os.Getgid()}, "", nil, in)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Remove()
	if n := (after.Mallocs - before.Mallocs) / depth; n > 100 {
		t.Errorf("%d allocations for each directory", n)
	}
}
