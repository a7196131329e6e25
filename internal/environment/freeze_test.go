package environment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/skillrun/skillrun/internal/hosttest"
	"github.com/skillrun/skillrun/internal/skill"
)

// freezeFiles freezes a tree that no sandbox has made. A text "-> x" is a link to x. A name with a slash at its end is a
// directory.
func freezeFiles(t *testing.T, p *plan, maxBytes int64, files map[string]string) (frozen, error) {
	t.Helper()
	dir := hosttest.Dir(t)
	into := filepath.Join(dir, "into")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		at := filepath.Join(dir, builtDir, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(at, 0o755))
		case link:
			err = errors.Join(err, os.Symlink(target, at))
		default:
			err = errors.Join(err, os.WriteFile(at, []byte(text), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return freeze(root, into, p, maxBytes)
}

// Files, links and directories count with the blocks that they have on disk, however little is in them.
func TestEntriesCountAsOnDisk(t *testing.T) {
	t.Parallel()
	block := skill.DiskBytes(0)
	got, err := freezeFiles(t, &plan{}, 1<<20, map[string]string{
		"a/empty": "", "a/one": "1", "a/block": strings.Repeat("x", int(block)), "a/more": strings.Repeat("x", int(block)+1), "b/": "", "link": "-> a",
	})
	const entries = 2 + 1 + 1 + 1 + 2 + 1 // the directories, the files of a, and the link
	if err != nil || got.size != (entries+ownEntries)*block {
		t.Errorf("got %d bytes, %v; want %d", got.size, err, (entries+ownEntries)*block)
	}
	for kind, entry := range map[string]func(i int) (name, text string){
		"files":       func(i int) (string, string) { return fmt.Sprint(i), "1" },
		"empty files": func(i int) (string, string) { return fmt.Sprint(i), "" },
		"links":       func(i int) (string, string) { return fmt.Sprint(i), "-> ." },
		"directories": func(i int) (string, string) { return fmt.Sprint(i, "/"), "" },
	} {
		files := map[string]string{}
		for i := range 100 {
			name, text := entry(i)
			files[name] = text
		}
		fits := (100 + ownEntries) * block
		if got, err := freezeFiles(t, &plan{}, fits, files); err != nil || got.size != fits {
			t.Errorf("%s that fit: got %d bytes, %v; want %d", kind, got.size, err, fits)
		}
		if _, err := freezeFiles(t, &plan{}, fits-1, files); !oversize(err, "bytes", fits-1) {
			t.Errorf("%s beyond the bound: got %v, want %d bytes", kind, err, fits-1)
		}
	}
}

func oversize(err error, what string, limit int64) bool {
	over, ok := errors.AsType[*errOversize](err)
	return ok && *over == errOversize{what, limit}
}
