package snapshot

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Links are resolved in memory. For every path through random trees of links, the result
// must be the same as the kernel's with RESOLVE_BENEATH.
func TestResolveLikeTheKernel(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		randomTree(t, rnd, dir, names, 3)
		tr := mustScan(t, dir)
		fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		mustDo(t, err)
		for range 200 {
			p := randomPath(rnd, names, 5)
			wantPath, want := kernelResolve(t, fd, dir, p)
			got := tr.Resolve(p)
			if got.Reason != want || want == 0 && got.Path != wantPath {
				t.Errorf("seed %d, %s: got %q, reason %d, the kernel says %q, %d", seed, p, got.Path, got.Reason, wantPath, want)
			}
		}
		unix.Close(fd)
	}
}

func randomTree(t *testing.T, rnd *rand.Rand, dir string, names []string, depth int) {
	t.Helper()
	for _, name := range names {
		p := filepath.Join(dir, name)
		switch n := rnd.IntN(10); {
		case n < 3 && depth > 0:
			mustDo(t, os.Mkdir(p, 0o755))
			randomTree(t, rnd, p, names, depth-1)
		case n < 5:
			mustDo(t, os.WriteFile(p, nil, 0o644))
		case n < 9:
			target := randomPath(rnd, names, 4)
			if rnd.IntN(20) == 0 {
				target = "/" + target
			}
			mustDo(t, os.Symlink(target, p))
		}
	}
}

func randomPath(rnd *rand.Rand, names []string, most int) string {
	parts := make([]string, 1+rnd.IntN(most))
	for i := range parts {
		switch n := rnd.IntN(8); {
		case n < 2:
			parts[i] = ".."
		case n == 2:
			parts[i] = "."
		default:
			parts[i] = names[rnd.IntN(len(names))]
		}
	}
	return strings.Join(parts, "/")
}

// kernelResolve opens a path beneath dir and returns the path of the opened file.
func kernelResolve(t *testing.T, fd int, dir, p string) (string, Reason) {
	t.Helper()
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}
	got, err := unix.Openat2(fd, p, how)
	for errors.Is(err, unix.EAGAIN) { // EAGAIN after a rename anywhere on the system, see openat2(2)
		got, err = unix.Openat2(fd, p, how)
	}
	switch {
	case errors.Is(err, unix.EXDEV):
		return "", ReasonEscapes
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return "", ReasonNotFound
	case errors.Is(err, unix.ELOOP):
		return "", ReasonLoop
	}
	mustDo(t, err)
	defer unix.Close(got)
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", got))
	mustDo(t, err)
	return strings.TrimPrefix(strings.TrimPrefix(at, dir), "/"), 0
}

// A chain of as many links as the kernel follows works, and one more does not.
func TestLinkChain(t *testing.T) {
	for _, n := range []int{maxLinks, maxLinks + 1} {
		f := files{"l0": "x"}
		for i := 1; i <= n; i++ {
			f[fmt.Sprintf("l%d", i)] = fmt.Sprintf("-> l%d", i-1)
		}
		_, dir := skillDir(t, f)
		last := fmt.Sprintf("l%d", n)
		_, kernel := os.Stat(filepath.Join(dir, last))
		e, err := mustScan(t, dir).Lookup(last)
		if (err == nil) != (kernel == nil) || err == nil && e.Path != "l0" {
			t.Errorf("%d links: %+v, %v, the kernel says %v", n, e, err, kernel)
		}
	}
}
