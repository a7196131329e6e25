package pyzygote_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// forkServerWritable are the directories of a sandbox that scripts may write to.
var forkServerWritable = []string{"/workspace", "/tmp", "/home/skill"}

// takeFiles lists the files that scripts left in the sandbox, and removes them. A line has
// a name, mode and size, and the hash of a regular file's content. /workspace/sub stays.
func (c *forkTarget) takeFiles(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	root := filepath.Join("/proc", strconv.Itoa(c.pid), "root")
	for _, top := range forkServerWritable {
		dir := filepath.Join(root, top)
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || path == dir || path == filepath.Join(root, "/workspace/sub") {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s %v", strings.TrimPrefix(path, root), info.Mode())
			if d.Type().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				fmt.Fprintf(&b, " %d %.4x", len(data), sha256.Sum256(data))
			}
			b.WriteByte('\n')
			return nil
		})
		if err != nil {
			t.Fatalf("files of the sandbox: %v", err)
		}
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if filepath.Join(top, name.Name()) == "/workspace/sub" {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, name.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.String()
}
